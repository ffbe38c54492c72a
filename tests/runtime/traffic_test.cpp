// Bytes that ranks sent: the program's figure beside the transport's count, and what replaces a count that is not there.
#include "core/record/traffic.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using nlohmann::json;

class Traffic : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Traffic, CountsOfTheTransportAreWhatTheProgramSends) {
  const TemporaryFolder folder;
  constexpr int steps = 4;
  std::vector<std::string> options{"--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied",
                                   "--sequence=16",
                                   "--transport=socket",
                                   "--steps=" + std::to_string(steps),
                                   "--batch=2",
                                   "--accumulation=2"};
  options.insert(options.end(), GetParam().begin(), GetParam().end());
  const json comm = json::parse(test::train_from_scratch(folder / "run.h5", options).text("/comm"));
  EXPECT_EQ(comm.at("steps"), steps);
  ASSERT_FALSE(comm.at("axes").empty());
  for (const json& axis : comm.at("axes")) {
    const double counted = axis.at("counted_bytes").get<double>() / steps;
    const double program = axis.at("program_bytes_per_step").get<double>();
    // Beside the steps there is the set-up, of a few kB.
    EXPECT_GE(counted, program) << axis;
    EXPECT_LE(counted, program + 8192.0 / steps) << axis;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Traffic,
                         ::testing::Values(std::vector<std::string>{"--strategy=ddp", "--ranks=2"},
                                           std::vector<std::string>{"--strategy=zero2", "--ranks=3"},
                                           std::vector<std::string>{"--strategy=zero3-offload", "--ranks=2"},
                                           std::vector<std::string>{"--strategy=tp-sp=2+ddp", "--ranks=4"},
                                           std::vector<std::string>{"--strategy=pipeline=2", "--ranks=2"}));

TEST(TrafficJson, AProgramsFigureStandsForWhatIsNotCounted) {
  const std::string counted = traffic_json({{"tensor", 100, 1200}, {"data", 50, 480}}, 10);
  EXPECT_EQ(sent_per_step(counted)->bytes, 168);
  EXPECT_TRUE(sent_per_step(counted)->counted);
  const std::string half = traffic_json({{"tensor", 100, std::nullopt}, {"data", 50, 480}}, 10);
  EXPECT_EQ(sent_per_step(half)->bytes, 148);
  EXPECT_FALSE(sent_per_step(half)->counted);
  EXPECT_EQ(sent_per_step(traffic_json({}, 3))->bytes, 0);
  EXPECT_FALSE(sent_per_step(traffic_json({{"data", 50, 480}}, 0)).has_value());
  EXPECT_FALSE(sent_per_step("").has_value());
}

}  // namespace
}  // namespace consist
