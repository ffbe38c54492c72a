// Machines as files, and the choice among them.
#include "core/cost/machine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/plan/machine_choice.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(MachineFile, ThoseThatShipAreReadAndWrittenToTheBit) {
  for (const char* name : {"h200", "h100", "a100", "l40s", "cpu"}) {
    const Machine* machine = find_machine(name);
    ASSERT_NE(machine, nullptr) << name;
    const std::string text = to_json(*machine);
    EXPECT_EQ(to_json(machine_from_json(text, "again")), text);
  }
  EXPECT_EQ(find_machine("abacus"), nullptr);
}

TEST(MachineFile, FiguresSayWhereTheyComeFrom) {
  const Machine& measured = *find_machine("h200");
  EXPECT_EQ(measured.node.beside_compute.source, FigureSource::measured);
  EXPECT_EQ(measured.device.peak_bf16.source, FigureSource::data_sheet);
  for (const char* name : {"h100", "a100", "l40s"}) {
    const Machine& sheet = *find_machine(name);
    EXPECT_EQ(sheet.device.memory_rate.source, FigureSource::data_sheet) << name;
    for (const LinkRates::Curve& curve : sheet.node.curves) {
      const bool of_two_h100s = name == std::string("h100") && curve.members == 2 && curve.op != "*";
      EXPECT_EQ(curve.source, of_two_h100s ? FigureSource::measured : FigureSource::data_sheet) << name << " " << curve.op;
    }
  }
}

std::string error_of(const Json& json) {
  try {
    machine_from_json(json.dump(), "m.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(MachineFile, ErrorsNameTheKeyAndWhatIsLegal) {
  const Json good = Json::parse(to_json(*find_machine("h200")));
  ASSERT_EQ(error_of(good), "");
  const auto with = [&](const char* pointer, const Json& value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    return error_of(bad);
  };
  const auto without = [&](const char* parent, const char* key) {
    Json bad = good;
    (*parent == '\0' ? bad : bad[Json::json_pointer(parent)]).erase(key);
    return error_of(bad);
  };
  EXPECT_THAT(without("/device", "memory_rate"), AllOf(HasSubstr("m.json: device"), HasSubstr("lacks the key \"memory_rate\"")));
  EXPECT_THAT(without("", "network"), HasSubstr("lacks the key \"network\""));
  EXPECT_THAT(without("/device/peak/bf16", "source"), HasSubstr("m.json: device: peak: bf16 lacks the key \"source\""));
  EXPECT_THAT(with("/device/memory_rate/value", -1), HasSubstr("device: memory_rate: value must be a number above 0.0, not -1"));
  EXPECT_THAT(with("/device/memory_rate/value", "fast"), HasSubstr("not \"fast\""));
  for (const double beyond : {1e308, 1e19, 1e-13, 5e-324})
    EXPECT_THAT(with("/device/memory_rate/value", beyond), HasSubstr("between 1e-12 and 1e18")) << beyond;
  EXPECT_THAT(with("/node/curves/0/latency", 1e300), HasSubstr("between 1e-12 and 1e18"));
  EXPECT_THAT(with("/node/curves/0/rates", Json::array({Json::array({1e3, 1e300})})), HasSubstr("between 1e-12 and 1e18"));
  EXPECT_THAT(with("/device/times/0/points/0/0", 1e300), HasSubstr("between 1e-12 and 1e18"));
  EXPECT_THAT(with("/node/curves/0/members", 3e9), HasSubstr("must be a whole number up to a million"));
  EXPECT_THAT(with("/device/memory_rate", 4.8e12), HasSubstr("must be an object"));
  EXPECT_THAT(with("/device/memory_rate/source", "hearsay"),
              HasSubstr("it can be \"data sheet\", \"measured on such a machine\""));
  EXPECT_THAT(with("/device/colour", "green"), HasSubstr("m.json: device has the unknown key \"colour\""));
  EXPECT_THAT(with("/device/reached/0/value", 1.5), HasSubstr("reached[0]: value is a share"));
  EXPECT_THAT(with("/device/reached/0/op", "linear"), HasSubstr("must say what op \"*\" reaches"));
  EXPECT_THAT(with("/device/reached/1/dtype", "int4"), HasSubstr("it can be fp32, bf16, fp8 or *"));
  EXPECT_THAT(with("/node/curves", Json::array()), HasSubstr("must have a curve of op \"*\""));
  EXPECT_THAT(with("/node/curves/0/rates", Json::array()), HasSubstr("node: curves[0]: rates is empty"));
  EXPECT_THAT(with("/node/curves/0/rates/1/0", 5), HasSubstr("rates[1] must have more bytes than the one before it"));
  EXPECT_THAT(with("/node/curves/0/rates/1/1", 1e15), HasSubstr("rates[1] takes less time than the one before it"));
  EXPECT_THAT(with("/node/curves/0/members", 1), HasSubstr("members must be a number of at least 2.0, not 1"));
  EXPECT_THAT(with("/ranks_per_node", 1.5), HasSubstr("ranks_per_node must be a whole number"));
  EXPECT_THAT(with("/version", 9), HasSubstr("this program reads version 1"));
  EXPECT_THAT(error_of(Json::array()), HasSubstr("m.json must be an object"));
  EXPECT_THROW(machine_from_json("{\"name\": \"a\", \"name\": \"b\"}", "twice.json"), DataError);
}

TEST(MachineFile, MeasuredTimesAreKeptToTheBit) {
  Machine machine = *find_machine("h200");
  machine.device.times = {{.op = "linear",
                           .dtype = DType::bf16,
                           .points = {{1e12 / 3, 1e9 / 7, 1e-3 / 3, 0.1, 1.0 / 3}, {2e12, 1e9, 3e-3}},
                           .demand = 1.0 / 7},
                          {.op = "linear", .dtype = DType::f32, .points = {{1e12, 1e9, 1e-2}}},
                          {.op = "attention", .dtype = DType::bf16, .depth = 64, .points = {{1e12, 1e9, 1e-2}}},
                          {.op = "attention", .dtype = DType::bf16, .depth = 128, .points = {{1e12, 1e9, 1e-2}}}};
  machine.device.throttling = {.lag = {0.025}, .memory_bound = {0.3}};
  machine.host_both = {0.7};
  machine.rank_skew = {0.02};
  machine.host_shared_ranks = 4;
  const std::string text = to_json(machine);
  const Machine again = machine_from_json(text, "again");
  EXPECT_EQ(to_json(again), text);
  EXPECT_EQ(again.device.times[0].points[0].scratch, 1.0 / 3);
  EXPECT_EQ(again.device.times[2].depth, 64);
  EXPECT_EQ(again.device.throttling.lag.value, 0.025);
  EXPECT_EQ(again.host_both.value, 0.7);
  EXPECT_EQ(again.rank_skew.value, 0.02);
  EXPECT_EQ(again.host_shared_ranks, 4);
  const Json good = Json::parse(text);
  const auto with = [&](const char* pointer, const Json& value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    return error_of(bad);
  };
  EXPECT_THAT(with("/device/times/1/dtype", "bf16"), HasSubstr("linear in bf16 stands in the list twice"));
  EXPECT_THAT(with("/device/times/3/depth", 64), HasSubstr("attention in bf16 stands in the list twice"));
  EXPECT_THAT(with("/device/times/3/depth", -1), HasSubstr("depth must be a number of at least 0"));
  EXPECT_THAT(with("/device/times/0/dtype", "int3"), HasSubstr("device: times[0]: dtype is \"int3\""));
  EXPECT_THAT(with("/device/times/0/points", Json::array()), HasSubstr("times[0]: points is empty"));
  EXPECT_THAT(with("/device/times/0/points/1", {1, 2}),
              HasSubstr("points[1] must be FLOPs, bytes and seconds above 0, perhaps load and scratch, each 0 or between 1e-12 and 1e18, not [1,2]"));
  EXPECT_THAT(with("/device/times/0/points/1", {1, 2, 3, 4, 5, 6}), HasSubstr("not [1,2,3,4,5,6]"));
  EXPECT_EQ(with("/device/times/0/points/1", {1, 2, 3}), "") << "measured without load and scratch";
  EXPECT_THAT(with("/device/times/0/demand", -1), HasSubstr("demand must be a number of at least 0"));
  EXPECT_THAT(with("/device/throttling/lag/value", -1), HasSubstr("throttling: lag: value must be"));
  EXPECT_THAT(with("/host_both/value", 1.5), HasSubstr("host_both is a share"));
  EXPECT_THAT(with("/host_shared_ranks", 2.5), HasSubstr("host_shared_ranks must be a whole number"));
  EXPECT_THAT(with("/rank_skew/value", -1), HasSubstr("rank_skew: value must be"));
  EXPECT_THAT(with("/device/times/0/points/1/2", 0), HasSubstr("seconds above 0"));
  EXPECT_THAT(with("/device/times/0/points/1", good["device"]["times"][0]["points"][0]), HasSubstr("of one before it"));

  const TemporaryFolder folder;
  const std::string path = folder / "mine.json";
  std::ofstream(path) << text;
  EXPECT_EQ(parse_machine(path).device.times.size(), 4U);
  EXPECT_EQ(parse_machine(path + ",products=0.5").device.times.size(), 2U) << "a share that is given is what counts";
  EXPECT_EQ(parse_machine(path + ",attention=0.5").device.times.size(), 2U);
}

TEST(MachineChoice, IsAKnownOneOrAFileWithValuesReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder / "mine.json";
  Machine mine = *find_machine("h100");
  mine.name = "mine";
  std::ofstream(path) << to_json(mine);
  EXPECT_EQ(parse_machine(path).name, "mine");
  EXPECT_EQ(parse_machine(path + ",ranks-per-node=4").ranks_per_node, 4);
  EXPECT_EQ(parse_machine("h100").ranks_per_node, 8);
  const Machine given = parse_machine("h100,network=12.5e9,capacity=120e9");
  EXPECT_EQ(given.device.memory_bytes.value, 120e9);
  EXPECT_EQ(given.device.memory_bytes.source, FigureSource::given);
  EXPECT_EQ(given.network.curves.size(), 1U);
  EXPECT_EQ(given.network.curves[0].rates.back().rate, 12.5e9);
  for (const auto& [text, says] : {std::pair{"b100", "a100 cpu h100 h200 l40s"},
                                   {"h100,warp=9", "values can be given to"},
                                   {"h100,network=fast", "above 0"},
                                   {"h100,network", "above 0"},
                                   {"h100,products=2", "shares of the peak"},
                                   {"h100,ranks-per-node=1.5", "not known"}}) {
    try {
      parse_machine(text);
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
  EXPECT_THROW(parse_machine("no/such.json"), SystemError);
}

TEST(MachineChoice, IsTheDevicesOwnOrTheNearestWhichIsSaid) {
  EXPECT_EQ(machine_for({.kind = "cuda", .name = "NVIDIA H200"}).machine.name, "h200");
  EXPECT_EQ(machine_for({.kind = "cuda", .name = "NVIDIA H100 80GB HBM3"}).machine.name, "h100");
  EXPECT_EQ(machine_for({.kind = "cuda", .name = "NVIDIA L40S"}).note, "");
  EXPECT_EQ(machine_for({.kind = "cpu", .name = "any processor"}).machine.name, "cpu");
  const MachineChoice other = machine_for({.kind = "cuda", .name = "NVIDIA Q9000", .memory_bytes = std::int64_t{80} << 30});
  EXPECT_EQ(other.machine.name, "h100");
  EXPECT_THAT(other.note, AllOf(HasSubstr("NVIDIA Q9000"), HasSubstr("planned as for 'h100'"), HasSubstr("--machine")));
}

}  // namespace
}  // namespace consist
