// States of an optimizer that evaluations and generation read beside the weights, by its passes. They have the values of the run
// that was trained, or are refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/child_process.h"
#include "tests/plugin/test_plugins.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::ChildResult;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PluginEvaluation : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  static ChildResult consist(const std::string& command, Words more) {
    more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", command, "--plugin", TEST_PLUGINS "/averages", "--device",
                               "cpu", "--cpu.threads", "1"});
    return test::run_child(more);
  }
  ChildResult train(const std::string& optimizer, const std::string& into, const Words& more = {}) const {
    return consist("train", with(more, {"--model",
                                        CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied",
                                        "--dataset",
                                        "synthetic",
                                        "--from-scratch",
                                        "--learning-rate",
                                        "5",
                                        "--sequence",
                                        "16",
                                        "--batch",
                                        "2",
                                        "--steps",
                                        "3",
                                        "--evaluate-every",
                                        "3",
                                        "--evaluate-sequences",
                                        "4",
                                        "--optimizer",
                                        optimizer,
                                        "--checkpoint",
                                        folder_ / into,
                                        "--export",
                                        folder_ / (into + "-exported")}));
  }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::string loss_in(const ChildResult& result) {
    EXPECT_EQ(result.status, 0) << result.output;
    std::smatch found;
    const std::regex loss("(?:evaluation after step 3: )?loss ([0-9]+\\.[0-9]{4})[0-9]*  ?(?:over|perplexity)");
    if (!std::regex_search(result.output, found, loss)) ADD_FAILURE() << "no loss in " << result.output;
    return found[1];
  }
  TemporaryFolder folder_;
};

TEST_F(PluginEvaluation, OfACheckpointReadsTheStatesThatTheRunsOwnDid) {
  const ChildResult trained = train("averages", "run");
  const ChildResult own = consist("evaluate", {"--checkpoint", folder_ / "run"});
  EXPECT_EQ(loss_in(own), loss_in(trained));
  EXPECT_NE(loss_in(consist("evaluate", {"--checkpoint", folder_ / "run", "--optimizer", "sgd"})), loss_in(trained))
      << "the state changes nothing";
}

// In bf16 the masters are read, and what is added to them is rounded once.
TEST_F(PluginEvaluation, ReadsAndExportsTheWeightsThatTheOptimizerSays) {
  EXPECT_EQ(loss_in(train("summed", "summed")), loss_in(train("averages", "averages")));
  for (const std::string precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    const std::string into = "summed-" + precision;
    const ChildResult trained = train("summed", into, {"--precision", precision, "--export-dtype", "float32"});
    EXPECT_EQ(loss_in(consist("evaluate", {"--checkpoint", folder_ / into})), loss_in(trained));
    EXPECT_EQ(loss_in(consist("evaluate", {"--model", folder_ / (into + "-exported"), "--dataset", "synthetic", "--sequence",
                                           "16", "--batch", "2", "--evaluate-sequences", "4", "--precision", precision})),
              loss_in(trained));
    EXPECT_NE(loss_in(consist("evaluate", {"--checkpoint", folder_ / into, "--optimizer", "sgd"})), loss_in(trained))
        << "the state changes nothing";
  }
  EXPECT_THAT(consist("evaluate", {"--model", folder_ / "summed-exported", "--optimizer", "summed", "--dataset", "synthetic",
                                   "--sequence", "16"})
                  .output,
              HasSubstr("the state 'model.norm.weight.momentum' is read beside the weights"));
}

TEST_F(PluginEvaluation, WithoutTheStatesIsRefusedByName) {
  ASSERT_EQ(train("averages", "run").status, 0);
  const Words exported{"--model", folder_ / "run-exported", "--optimizer", "averages"};
  EXPECT_THAT(consist("evaluate", with(exported, {"--dataset", "synthetic", "--sequence", "16"})).output,
              AllOf(HasSubstr("the state 'model.norm.weight.momentum' is read beside the weights"), HasSubstr("--checkpoint")));
  EXPECT_THAT(consist("generate", with(exported, {"--prompt-ids", "1,2,3", "--max-tokens", "2"})).output,
              HasSubstr("the state 'model.norm.weight.momentum' is read beside the weights"));
  ASSERT_EQ(train("adamw", "other").status, 0);
  EXPECT_THAT(consist("evaluate", {"--checkpoint", folder_ / "other", "--optimizer", "averages"}).output,
              AllOf(HasSubstr("has no state 'model.norm.weight.momentum'"), HasSubstr("take the optimizer")));
  const ChildResult generated =
      consist("generate", {"--checkpoint", folder_ / "run", "--prompt-ids", "1,2,3", "--max-tokens", "2"});
  EXPECT_EQ(generated.status, 0) << generated.output;
}

}  // namespace
}  // namespace consist
