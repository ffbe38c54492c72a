// Failures that are followed by a restart, and those that are not.
#include "launch/start/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "core/job/rank_board.h"
#include "launch/cli/exit_status.h"

namespace consist::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

RankFailure killed(int rank, std::int64_t step) {
  return {.rank = rank, .status = 128 + SIGKILL, .step = step, .why = ""};
}
RankFailure failed(int rank, std::int64_t step, std::string why) {
  return {.rank = rank, .status = exit_failed, .step = step, .why = std::move(why)};
}

TEST(RestartPolicy, SaysWhoFailedAndWhere) {
  EXPECT_EQ(killed(2, 57).text(), "rank 2 was ended by signal 9 (Killed) in step 57");
  EXPECT_EQ(killed(0, 0).text(), "rank 0 was ended by signal 9 (Killed) before its first step");
  EXPECT_EQ(failed(1, 3, "the disk is full").text(), "rank 1 failed in step 3: the disk is full");
  EXPECT_EQ((RankFailure{.rank = 3, .status = 0, .step = 8, .why = "rank 3 is stuck"}).text(), "rank 3 did not go on in step 8");
}

TEST(RestartPolicy, RestartsAsOftenAsIsAllowed) {
  RestartPolicy policy(2);
  EXPECT_TRUE(policy.decide(killed(1, 5), false).again);
  EXPECT_TRUE(policy.decide(killed(1, 9), false).again);
  const auto last = policy.decide(killed(1, 12), false);
  EXPECT_FALSE(last.again);
  EXPECT_THAT(last.why_not, HasSubstr("all 2 restarts of --max-restarts are used up"));
  EXPECT_EQ(policy.used(), 2);
}

TEST(RestartPolicy, SaysNothingWhereRestartsWereNotAskedFor) {
  RestartPolicy policy(0);
  const auto decision = policy.decide(killed(1, 5), false);
  EXPECT_FALSE(decision.again);
  EXPECT_THAT(decision.why_not, IsEmpty());
}

TEST(RestartPolicy, DoesNotRepeatWhatWouldFailAgain) {
  {
    RestartPolicy policy(9);
    const auto refused = policy.decide({.rank = 0, .status = exit_usage, .step = 0, .why = "no such model"}, false);
    EXPECT_FALSE(refused.again);
    EXPECT_THAT(refused.why_not, HasSubstr("refused again"));
  }
  {
    RestartPolicy policy(9);
    EXPECT_TRUE(policy.decide(failed(0, 7, "the loss of step 7 is nan"), false).again);
    EXPECT_FALSE(policy.decide(failed(1, 7, "the loss of step 7 is nan"), false).again) << "whichever rank says it";
  }
  {
    RestartPolicy policy(9);
    EXPECT_TRUE(policy.decide(killed(1, 7), false).again);
    EXPECT_TRUE(policy.decide(killed(2, 7), false).again) << "another rank";
    EXPECT_TRUE(policy.decide(killed(2, 8), false).again) << "another step";
    const auto decision = policy.decide(killed(2, 8), false);
    EXPECT_FALSE(decision.again);
    EXPECT_THAT(decision.why_not, HasSubstr("the same happened before restart 3"));
  }
}

TEST(RestartPolicy, ASignalThatAsksForTheEndIsNoFailure) {
  RestartPolicy policy(9);
  EXPECT_FALSE(policy.decide(killed(1, 7), true).again);
  EXPECT_FALSE(policy.decide({.rank = 1, .status = exit_stopped, .step = 3, .why = ""}, false).again);
}

TEST(RankBoard, KeepsWhatRanksLeave) {
  RankBoard board = RankBoard::create(2);
  RankBoard of_rank(dup(board.fd()));
  of_rank.begin_step(1, 12);
  of_rank.end(1, 0, std::string(2000, 'x'));
  of_rank.end_step(11);
  of_rank.begin_step(7, 1);  // none of the board's
  EXPECT_EQ(board.end_of(1).step, 12);
  EXPECT_EQ(board.end_of(1).blamed, 0);
  EXPECT_EQ(board.end_of(1).why, std::string(500, 'x'));
  EXPECT_EQ(board.end_of(0).blamed, -1);
  EXPECT_TRUE(board.seconds_since_step(11).has_value());
  EXPECT_TRUE(board.seconds_since_step(0).has_value());
  EXPECT_FALSE(board.seconds_since_step(10).has_value());

  board.begin_generation({.restart = 1, .most = 3, .rank = 0, .step = 12, .what = "rank 0 failed"});
  EXPECT_EQ(of_rank.end_of(1).step, 0);
  EXPECT_EQ(of_rank.end_of(1).blamed, -1);
  const std::vector<RestartReason> reasons = of_rank.take_reasons();
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_EQ(reasons[0].what, "rank 0 failed");
  EXPECT_THAT(board.take_reasons(), IsEmpty());
}

TEST(RankBoard, TellsRanksOfAPauseAndOfNodesThatChange) {
  RankBoard board = RankBoard::create(1);
  RankBoard of_rank(dup(board.fd()));
  EXPECT_FALSE(of_rank.pause_requested());
  board.request_pause();
  EXPECT_TRUE(of_rank.pause_requested());
  board.begin_generation();
  EXPECT_FALSE(of_rank.pause_requested());
  EXPECT_FALSE(of_rank.take_change().has_value());
  board.tell_change({.ranks_before = 4, .ranks = 3, .left_out = "2", .came = ""});
  const std::optional<NodeChange> change = of_rank.take_change();
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->ranks, 3);
  EXPECT_EQ(change->left_out, "2");
  EXPECT_FALSE(board.take_change().has_value()) << "it is told once";
}

TEST(RankBoard, RefusesWhatIsNoBoard) {
  char name[] = "/tmp/consist-board-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  EXPECT_THROW(RankBoard{file}, std::exception);
}

}  // namespace
}  // namespace consist::launch
