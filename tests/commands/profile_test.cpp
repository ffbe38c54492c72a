// --profile: every instruction of the program has a time, on the screen and in the archive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/archive/reader.h"
#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

struct Expected {
  const char* strategy;
  const char* collective;
};

class Profile : public ::testing::TestWithParam<Expected> {};

TEST_P(Profile, TimesEveryInstructionOfBothQueues) {
  const TemporaryFolder folder;
  const test::ChildResult run =
      test::train_tiny({"--steps", "4", "--strategy", GetParam().strategy, "--profile", "--archive", folder / "run.h5"});
  ASSERT_EQ(run.status, 0) << run.output;
  // Seven linears in each of four layers: q, k and v are one product, and so are gate and up.
  EXPECT_THAT(run.output, ::testing::ContainsRegex("compute +packed_linear_weight_grad +8 "));
  EXPECT_THAT(run.output, ::testing::ContainsRegex("compute +linear_weight_grad +8 "));
  EXPECT_THAT(run.output, ::testing::ContainsRegex(std::string("comm:data +") + GetParam().collective + " "));

  const ArchiveReader archive(folder / "run.h5");
  const nlohmann::json profile = nlohmann::json::parse(archive.text("/profile"));
  const nlohmann::json program = nlohmann::json::parse(archive.text("/program"));
  EXPECT_EQ(profile["steps"], 3) << "the first step is left out";
  ASSERT_EQ(profile["instructions"].size(), program["instructions"].get<std::size_t>());
  double compute = 0;
  for (const auto& instruction : profile["instructions"]) {
    EXPECT_GE(instruction["seconds"].get<double>(), 0) << instruction.dump();
    if (instruction["queue"] == "compute") compute += instruction["seconds"].get<double>();
  }
  // One queue's instructions run one after the other: together they take no longer than the longest step.
  const std::vector<double> seconds = archive.column("seconds");
  EXPECT_GT(compute, 0);
  EXPECT_LE(compute, *std::max_element(seconds.begin(), seconds.end()));
}

// zero2's program has instructions without outputs (release).
INSTANTIATE_TEST_SUITE_P(Strategies, Profile,
                         ::testing::Values(Expected{"ddp", "all_reduce"}, Expected{"zero2", "reduce_scatter"}),
                         [](const auto& info) { return std::string(info.param.strategy); });

TEST(PipelineProfile, SaysWhatRanksWaitAndHowFastTheyAreAsTheOptionTakesIt) {
  const TemporaryFolder folder;
  const auto run = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "4", "--accumulation", "4", "--strategy", "pipeline=2"});
    return test::train_tiny(more);
  };
  const test::ChildResult profiled = run({"--profile", "--archive", folder / "run.h5"});
  ASSERT_EQ(profiled.status, 0) << profiled.output;
  EXPECT_THAT(profiled.output, ::testing::ContainsRegex("idle [0-9.]+% of forward and backward, measured"));

  const nlohmann::json profile = nlohmann::json::parse(ArchiveReader(folder / "run.h5").text("/profile"));
  for (const nlohmann::json& by_rank : {profile["idle_share"]["ranks"], profile["rank_speeds"]}) {
    ASSERT_EQ(by_rank.size(), 2U);
    for (const auto& value : by_rank) EXPECT_GT(value.get<double>(), 0);
  }

  const std::string asked = "--pipeline.rank-speeds: ";
  const std::size_t at = profiled.output.find(asked);
  ASSERT_NE(at, std::string::npos) << profiled.output;
  const std::size_t begin = at + asked.size();
  const std::string speeds = profiled.output.substr(begin, profiled.output.find('\n', begin) - begin);
  const test::ChildResult again = run({"--pipeline.rank-speeds", speeds, "--archive", folder / "again.h5"});
  EXPECT_EQ(again.status, 0) << again.output;
}

}  // namespace
}  // namespace consist
