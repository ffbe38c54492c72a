// States that a plugin keeps (Builder::state) are saved and resumed by name, as their kind says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/child_process.h"
#include "tests/plugin/test_plugins.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::ChildResult;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PluginStates : public ::testing::Test {
 protected:
  /// Trains on two ranks with the strategy that keeps a state, in checkpoint folder `into`.
  ChildResult train(const std::string& into, const std::string& steps, std::vector<std::string> more = {},
                    const std::string& ranks = "2") {
    more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist",
                               "train",
                               "--plugin",
                               TEST_PLUGINS "/stateful",
                               "--strategy",
                               "stateful",
                               "--model",
                               CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied",
                               "--dataset",
                               "synthetic",
                               "--from-scratch",
                               "--device",
                               "cpu",
                               "--cpu.threads",
                               "1",
                               "--sequence",
                               "16",
                               "--global-batch",
                               "4",
                               "--ranks",
                               ranks,
                               "--steps",
                               steps,
                               "--checkpoint",
                               folder_ / into});
    return test::run_child(more);
  }
  std::string saved(const std::string& into, const std::string& rank) const {
    return read_whole(folder_ / into + "/step-00000004/rank-0000" + rank + ".safetensors");
  }
  TemporaryFolder folder_;
};

TEST_F(PluginStates, AResumedRunHasTheStatesOfTheUninterruptedOne) {
  for (const std::string kind : {"logical", "per_rank", "discardable"}) {
    SCOPED_TRACE(kind);
    const std::vector<std::string> options{"--stateful.kind", kind};
    ASSERT_EQ(train(kind + "-whole", "4", options).status, 0);
    ASSERT_EQ(train(kind, "2", options).status, 0);
    std::vector<std::string> resume = options;
    resume.push_back("--resume");
    const ChildResult resumed = train(kind, "4", resume);
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(saved(kind, "0"), saved(kind + "-whole", "0"));
    EXPECT_THAT(saved(kind, "0"), HasSubstr(kind == "per_rank" ? "norm.gradient_sum@0" : "norm.gradient_sum"));
    if (kind == "per_rank") EXPECT_EQ(saved(kind, "1"), saved(kind + "-whole", "1"));
  }
}

TEST_F(PluginStates, WhatCannotBeResumedIsRefusedByName) {
  ASSERT_EQ(train("own", "2", {"--stateful.kind", "per_rank"}).status, 0);
  EXPECT_THAT(train("own", "4", {"--stateful.kind", "per_rank", "--resume"}, "4").output,
              AllOf(HasSubstr("'norm.gradient_sum' is each rank's own"), HasSubstr("'data=2'"), HasSubstr("'data=4'")));
  ASSERT_EQ(train("logical", "2").status, 0);
  EXPECT_THAT(train("logical", "4", {"--stateful.kind", "none", "--resume"}).output,
              HasSubstr("holds tensors that this run has no place for: 'norm.gradient_sum'"));
  EXPECT_THAT(train("logical", "4", {"--stateful.name", "another", "--resume"}).output,
              AllOf(HasSubstr("no place for: 'norm.gradient_sum'")));
  ASSERT_EQ(train("none", "2", {"--stateful.kind", "none"}).status, 0);
  EXPECT_THAT(train("none", "4", {"--resume"}).output, HasSubstr("has no state 'norm.gradient_sum'"));
  // One that may be missing begins anew, and says so.
  const ChildResult anew = train("none", "3", {"--stateful.kind", "discardable", "--resume"});
  EXPECT_EQ(anew.status, 0) << anew.output;
  EXPECT_THAT(anew.output, HasSubstr("begins anew"));
  // And one that nobody has a use for is left.
  EXPECT_EQ(train("none", "4", {"--stateful.kind", "none", "--resume"}).status, 0);
}

TEST_F(PluginStates, APartialSumIsRefusedBeforeTheRun) {
  const ChildResult result = train("partial", "2", {"--stateful.kind", "partial"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("strategy 'stateful'"), HasSubstr("'norm.gradient_sum' is a partial sum on axis 'data'")));
}

}  // namespace
}  // namespace consist
