// consist calibrate on the processor: a file with measured figures that other commands take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "consist/cost.h"
#include "consist/files.h"
#include "core/cost/machine_file.h"
#include "launch/measure/links.h"
#include "launch/measure/transport_list.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

test::ChildResult run(const std::vector<std::string>& words) {
  std::vector<std::string> all{CONSIST_BINARY_DIR "/bin/consist"};
  all.insert(all.end(), words.begin(), words.end());
  return test::run_child(all);
}

/// The curve of an op; fails the test without one.
const LinkRates::Curve& curve(const Machine& machine, const std::string& op) {
  for (const LinkRates::Curve& curve : machine.node.curves) {
    if (curve.op == op) return curve;
  }
  ADD_FAILURE() << "no curve of " << op;
  return machine.node.curves.front();
}

/// Expects figures of the device, of links and of the host that were measured.
void expect_measured(const Machine& machine) {
  std::set<std::string> ops;
  for (const DeviceRates::OpTimes& times : machine.device.times) {
    EXPECT_EQ(times.source, FigureSource::measured_here);
    for (const auto& point : times.points) EXPECT_GT(point.seconds, 0) << times.op;
    ops.insert(times.op);
  }
  for (const char* op : {"linear", "linear_input_grad", "linear_weight_grad", "attention", "attention_grad", "rms_norm", "adamw"})
    EXPECT_TRUE(ops.contains(op)) << op;
  for (const char* op : {"all_reduce", "all_gather", "reduce_scatter", "send", "*"}) {
    EXPECT_EQ(curve(machine, op).source, FigureSource::measured_here) << op;
    EXPECT_GE(curve(machine, op).rates.size(), 2U) << op;
  }
  EXPECT_EQ(curve(machine, "send").members, 2);
  for (const Figure& figure : {machine.host_alone, machine.host_shared, machine.host_both, machine.rank_skew})
    EXPECT_EQ(figure.source, FigureSource::measured_here);
  EXPECT_GT(machine.host_shared.value, 0);
}

TEST(Calibrate, WritesWhatItMeasuredAndOtherCommandsTakeIt) {
  const TemporaryFolder folder;
  const std::string file = folder / "here.json";
  const std::vector<std::string> command{"calibrate",
                                         "--device",
                                         "cpu",
                                         "--ranks",
                                         "2",
                                         "--models",
                                         "llama-tiny",
                                         "--seconds",
                                         "0.01",
                                         "--output",
                                         file,
                                         "--samples",
                                         folder / "samples.json"};
  const auto result = run(command);
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("[1/3] llama-tiny, 2 layers, 1 x 64 tokens, fp32: "));
  EXPECT_THAT(result.output, HasSubstr("check: llama-tiny, 4 layers, 4 x 128 tokens, fp32: measured "));
  EXPECT_THAT(result.output, HasSubstr("written: " + file));

  EXPECT_THAT(result.output, HasSubstr("energy is not known: the device does not tell its power"));
  EXPECT_FALSE(power_from_json(read_text(file, 10'000'000), file).is_known());

  const Machine machine = machine_from_json(read_text(file, 10'000'000), file);
  EXPECT_EQ(machine.name, "here");
  EXPECT_EQ(machine.device_kind, "cpu");
  EXPECT_EQ(machine.ranks_per_node, 2);
  // Two checks of one rank and one over the links are too few to say how far steps are off.
  EXPECT_TRUE(step_errors_from_json(read_text(file, 10'000'000), file).empty());
  expect_measured(machine);
  EXPECT_THAT(result.output, HasSubstr("host: "));
  const auto samples = nlohmann::json::parse(read_text(folder / "samples.json", 10'000'000));
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0]["step"], "llama-tiny, 2 layers, 1 x 64 tokens, fp32");
  EXPECT_GT(samples[0]["instructions"].size(), 20U);
  for (const auto& instruction : samples[0]["instructions"]) {
    ASSERT_EQ(instruction.size(), 8U);
    EXPECT_GT(instruction[5].get<double>(), 0) << instruction;
    EXPECT_EQ(instruction[7].get<int>() > 0, instruction[0].get<std::string>().starts_with("attention")) << "head sizes: " << instruction;
    if (instruction[0] == "linear") EXPECT_EQ(instruction[2], "products of 32 bits");
    if (instruction[0] == "lm_head_loss_grad") EXPECT_GT(instruction[6].get<double>(), 0) << "the logits";
  }

  ASSERT_NE(machine.find_transport("socket"), nullptr);
  EXPECT_EQ(machine.find_transport("socket")->node->curves[0].rates.size(), machine.node.curves[0].rates.size());
  EXPECT_EQ(machine.find_transport("socket")->node->curves[0].source, FigureSource::measured_here);
  EXPECT_EQ(machine.find_transport("socket")->network->curves[0].source, FigureSource::data_sheet) << "not measured";

  const auto explained = run({"explain", "--model", "llama-tiny", "--ranks", "2", "--summary", "--machine", file});
  EXPECT_EQ(explained.status, 0) << explained.output;
  EXPECT_THAT(explained.output, HasSubstr("here, 2 ranks a node"));

  const auto again = run(command);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, HasSubstr("--output " + file + " exists already"));
}

#ifdef CONSIST_WITH_LIBFABRIC
TEST(Calibrate, SeveralTransportsAreMeasuredOneAfterTheOther) {
  const TemporaryFolder folder;
  const std::string file = folder / "here.json";
  const auto result = run({"calibrate", "--device", "cpu", "--ranks", "2", "--models", "llama-tiny", "--seconds", "0.01",
                           "--transport", "socket,efa", "--efa.provider", "tcp", "--output", file});
  ASSERT_EQ(result.status, 0) << result.output;
  const Machine machine = machine_from_json(read_text(file, 10'000'000), file);
  const TransportLinks *socket = machine.find_transport("socket"), *efa = machine.find_transport("efa");
  ASSERT_TRUE(socket != nullptr && efa != nullptr);
  for (const TransportLinks* links : {socket, efa}) {
    ASSERT_TRUE(links->node.has_value()) << links->transport;
    EXPECT_EQ(links->node->curves.front().source, FigureSource::measured_here) << links->transport;
    EXPECT_EQ(links->node->beside_compute.source, FigureSource::measured_here) << links->transport;
  }
  EXPECT_EQ(machine.node.curves.front().rates.back().rate, socket->node->curves.front().rates.back().rate)
      << "the first is that of plans that name none";
  EXPECT_NE(efa->node->curves.front().rates.back().rate, socket->node->curves.front().rates.back().rate);
  EXPECT_FALSE(efa->network.has_value());
  EXPECT_FALSE(machine.device.times.empty()) << "what the first has measured stays";
  EXPECT_EQ(machine.name, "here");

  const auto predicted =
      run({"compare", "--predict", "--model", "llama-tiny", "--ranks", "2", "--machine", file, "--transport", "socket,efa"});
  EXPECT_EQ(predicted.status, 0) << predicted.output;
  EXPECT_EQ(predicted.output.find("is not known"), std::string::npos) << predicted.output;
}
#endif

TEST(Calibrate, TransportsOverTheSameLinksTakeWhatWasMeasured) {
  Machine machine = *find_machine("h200");
  const LinkRates measured{.curves = {{.op = "*", .rates = {{1, 7}}}}};
  const auto rate = [&](const char* transport) {
    return machine.find_transport(transport)->node->curves.back().rates.back().rate;
  };
  const double socket = rate("socket"), between_nodes = machine.find_transport("efa")->network->curves.back().rates.back().rate;
  launch::take_links(machine, "nvlink", measured);
  EXPECT_EQ(rate("nvlink"), 7);
  EXPECT_EQ(rate("efa"), 7) << "which goes over NVLink within a host";
  EXPECT_EQ(rate("socket"), socket);
  EXPECT_EQ(machine.find_transport("efa")->network->curves.back().rates.back().rate, between_nodes);
  launch::take_links(machine, "pigeons", {.curves = {{.op = "*", .rates = {{1, 1}}}}});
  EXPECT_EQ(rate("pigeons"), 1);
  EXPECT_EQ(rate("nvlink"), 7);
}

TEST(Calibrate, OfOneTransportTheOthersOptionsAreLeftOut) {
  const std::vector<std::string> given{"--ranks",  "2", "--transport=a,b", "--a.x", "1",          "--b.flag",
                                       "--output", "f", "--models",        "m",     "--overwrite"};
  const std::vector<std::string> first{"--ranks",  "2", "--a.x",       "1",           "--output", "f",
                                       "--models", "m", "--overwrite", "--transport", "a"};
  const std::vector<std::string> second{"--ranks", "2", "--b.flag", "--models", "m", "--transport", "b", "--add-links", "f"};
  EXPECT_EQ(launch::arguments_for("a", {"a", "b"}, given, ""), first);
  EXPECT_EQ(launch::arguments_for("b", {"a", "b"}, given, "f"), second);
}

TEST(Calibrate, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  const std::string file = folder / "m.json";
  for (const auto& [words, says] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--ranks", "0"}, "--ranks is '0'; it must be from 1 to 65536"},
           {{"--seconds", "0"}, "--seconds must be above 0"},
           {{"--models", "llama-tiny,"}, "has an empty name"},
           {{"--models", "nothing", "--device", "cpu"}, "'nothing' is neither a folder nor a preset"},
           {{"--transport", "pigeons"}, "pigeons"},
           {{"--transport", "socket,socket", "--ranks", "2"}, "--transport lists 'socket' twice"},
           {{"--transport", "socket,efa"}, "give --ranks 2 or more"},
           {{"--add-links", "there.json", "--ranks", "2"}, "--output has no place beside it"},
           {{"--sekonds", "1"}, "--sekonds"}}) {
    std::vector<std::string> command{"calibrate", "--output", file};
    command.insert(command.end(), words.begin(), words.end());
    const auto result = run(command);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(says));
    EXPECT_FALSE(std::ifstream(file).good()) << "nothing is written";
  }
}

}  // namespace
}  // namespace consist
