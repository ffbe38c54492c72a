#include "core/record/rank_speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace consist {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace consist
