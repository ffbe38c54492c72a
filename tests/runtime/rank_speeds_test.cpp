#include "core/record/rank_speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/training/slow_ranks.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankSpeeds, AreThoseOfTheSameWorkWhateverTheRatesOfOps) {
  // Attention takes twice what its cost says on all; the second rank is a tenth faster in everything, and the head is its own.
  const std::vector<OpTimes> ranks{{{"linear", {.measured = 1.1, .by_cost = 1}}, {"attention", {.measured = 2.2, .by_cost = 1}}},
                                   {{"linear", {.measured = 2, .by_cost = 2}},
                                    {"attention", {.measured = 2, .by_cost = 1}},
                                    {"lm_head_loss_grad", {.measured = 7, .by_cost = 1}}}};
  const std::vector<double> speeds = rank_speeds(ranks);
  ASSERT_EQ(speeds.size(), 2U);
  EXPECT_NEAR(speeds[1] / speeds[0], 1.1, 0.005);  // rates are means over what all did
  EXPECT_LT(speeds[0], 1);
  EXPECT_GT(speeds[1], 1);
}

TEST(RankSpeeds, AreOneWhereNothingIsCommon) {
  EXPECT_THAT(rank_speeds(std::vector<OpTimes>{{{"a", {1, 1}}}, {{"b", {2, 1}}}}), ElementsAre(1, 1));
  EXPECT_THAT(rank_speeds({}), ElementsAre());
}

TEST(RankSpeeds, AStageIsAsFastAsItsSlowestRank) {
  const Mesh mesh({{"pipeline", 2}, {"data", 2}});
  EXPECT_EQ(stage_speeds_text({1, 0.9, 1.05, 1.1}, mesh, 0), "0.900:1.050");
}

TEST(SlowRanks, OneThatStaysSlowIsFoundOnce) {
  SlowRanks slow(0.15);
  const std::vector<double> speeds{1.05, 1.04, 0.8, 1.06};
  for (int check = 1; check < SlowRanks::in_a_row; ++check) EXPECT_THAT(slow.add(speeds), IsEmpty()) << check;
  const std::vector<SlowRank> found = slow.add(speeds);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_NEAR(found[0].longer, 1.05 / 0.8 - 1, 1e-12);
  EXPECT_THAT(slow.add(speeds), IsEmpty()) << "it was told";
}

TEST(SlowRanks, OneThatIsSlowAtTimesIsNot) {
  SlowRanks slow(0.15);
  for (int check = 0; check < 10; ++check) {
    EXPECT_THAT(slow.add(std::vector<double>{1, 0.7, 1}), IsEmpty());
    EXPECT_THAT(slow.add(std::vector<double>{1, 0.9, 1}), IsEmpty());
    EXPECT_THAT(slow.add(std::vector<double>{1, 0.7, 0.7}), IsEmpty());
    EXPECT_THAT(slow.add(std::vector<double>{1, 1, 1}), IsEmpty());
  }
}

TEST(SlowRanks, OneThatWasFastAgainIsToldAgainAndTheSlowestIsFirst) {
  SlowRanks slow(0.15);
  for (int check = 1; check < SlowRanks::in_a_row; ++check) slow.add(std::vector<double>{0.8, 1, 1, 0.5, 1});
  const std::vector<SlowRank> found = slow.add(std::vector<double>{0.8, 1, 1, 0.5, 1});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[1].rank, 0);
  slow.add(std::vector<double>{0.8, 1, 1, 1, 1});
  for (int check = 1; check < SlowRanks::in_a_row; ++check)
    EXPECT_THAT(slow.add(std::vector<double>{0.8, 1, 1, 0.5, 1}), IsEmpty());
  ASSERT_EQ(slow.add(std::vector<double>{0.8, 1, 1, 0.5, 1}).size(), 1U) << "rank 0 was told";
}

TEST(SlowRanks, OfTwoTheOtherOneIsTheMeasure) {
  SlowRanks slow(0.15);
  for (int check = 1; check < SlowRanks::in_a_row; ++check) slow.add(std::vector<double>{1.2, 0.85});
  EXPECT_EQ(slow.add(std::vector<double>{1.2, 0.85}).at(0).rank, 1);
  EXPECT_THAT(SlowRanks(0.15).add(std::vector<double>{1}), IsEmpty());
}

}  // namespace
}  // namespace consist
