// consist calibrate on the processor: a file with measured figures that other commands take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "consist/cost.h"
#include "consist/files.h"
#include "core/cost/machine_file.h"
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
  EXPECT_EQ(machine.step_error.source, FigureSource::measured_here);
  EXPECT_GT(machine.step_error.value, 0);
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

  const auto explained = run({"explain", "--model", "llama-tiny", "--ranks", "2", "--summary", "--machine", file});
  EXPECT_EQ(explained.status, 0) << explained.output;
  EXPECT_THAT(explained.output, HasSubstr("here, 2 ranks a node"));

  const auto again = run(command);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, HasSubstr(file + " is there already"));
}

TEST(Calibrate, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  const std::string file = folder / "m.json";
  for (const auto& [words, says] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--ranks", "0"}, "--ranks is 0; it must be at least 1"},
           {{"--seconds", "0"}, "--seconds must be above 0"},
           {{"--models", "llama-tiny,"}, "has an empty name"},
           {{"--models", "nothing", "--device", "cpu"}, "'nothing' is neither a folder nor a preset"},
           {{"--transport", "pigeons"}, "pigeons"},
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
