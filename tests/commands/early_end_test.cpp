// Runs that an observer ends before their last step, by the observer early-stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class EarlyEnd : public ::testing::Test {
 protected:
  /// A run of 20 steps on two ranks with an evaluation after every second one.
  test::ChildResult train(const std::vector<std::string>& more) const {
    std::vector<std::string> words{
        "--steps",    "20",           "--evaluate-every", "2",         "--evaluate-sequences", "4", "--observe",
        "early-stop", "--checkpoint", folder_ / "saved",  "--archive", folder_ / "run.h5"};
    words.insert(words.end(), more.begin(), more.end());
    return test::train_tiny(words);
  }

  const TemporaryFolder folder_;
};

TEST_F(EarlyEnd, ComesAfterTheStepBehindAnEvaluationThatIsGoodEnough) {
  const test::ChildResult result = train({"--early-stop.goal", "100", "--export", folder_ / "exported"});
  ASSERT_EQ(result.status, 0) << result.output;
  const std::string reason = "observer 'early-stop': the evaluation's loss after step 2 is";
  EXPECT_THAT(result.output, AllOf(HasSubstr("the next step is the last: " + reason),
                                   HasSubstr("ended after step 3 of 20: " + reason), HasSubstr("evaluation after step 3")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "exported"));
  const test::ChildResult shown = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "show", folder_ / "run.h5"});
  EXPECT_THAT(shown.output, HasSubstr("finished: observer 'early-stop'"));
}

TEST_F(EarlyEnd, ComesWhenEvaluationsGetNoBetterAndTheRunCanGoOn) {
  const std::vector<std::string> words{"--learning-rate", "0", "--early-stop.patience", "2"};
  const test::ChildResult result = train(words);
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("ended after step 7 of 20: observer 'early-stop': the evaluation's loss has not fallen below"));
  std::vector<std::string> again = words;
  again.emplace_back("--resume");
  const test::ChildResult further = train(again);
  ASSERT_EQ(further.status, 0) << further.output;
  EXPECT_THAT(further.output, AllOf(HasSubstr("resumed after step 7"), HasSubstr("ended after step 13 of 20")));
}

TEST_F(EarlyEnd, DoesNotComeWhileEvaluationsGetBetter) {
  const test::ChildResult result = train({"--learning-rate", "0.01", "--early-stop.patience", "9"});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("ended after step")));
  EXPECT_THAT(result.output, HasSubstr("evaluation after step 20"));
}

TEST_F(EarlyEnd, NeedsEvaluations) {
  const test::ChildResult result = test::train_tiny({"--steps", "2", "--observe", "early-stop"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("give --evaluate-every STEPS"));
}

}  // namespace
}  // namespace consist
