// What a search simulates next.
#include <gtest/gtest.h>

#include <vector>

#include "launch/search/tune/ranking.h"
#include "tests/advise/planned.h"

namespace consist::launch {
namespace {

/// Large models have been said not to fit where simulations that take long were spent on what is estimated to fit by little.
TEST(TuneRanking, WhileNothingFitsMemoryIsTakenToBeAsFarOffAsTheWorst) {
  RunConfig config;
  config.model = "llama-3-8b";
  config.precision = "bf16";
  config.sequence = 1024;
  config.global_batch = 4;
  const Space space(config, {}, parse_machine("h200"), test::plugin_host());
  Findings found(space, Objective::tokens);
  const std::vector<Point> points = space.around(space.first(0), 1);
  ASSERT_GE(points.size(), 3U);
  const auto estimated = [&](std::size_t n, std::int64_t bytes) {
    found.add(points[n], {.quick = Estimate{.seconds = 1, .bytes = bytes, .fits = true, .whole = false}});
    return Ranked{1, points[n]};
  };
  estimated(0, 90);
  const std::vector<Ranked> all{estimated(1, 80), estimated(2, 70)};
  std::vector<Ranked> next = all;
  keep_the_surest(next, found, 100);
  EXPECT_EQ(next.size(), 2U) << "nothing was simulated";
  found.add(points[0], {.whole = Estimate{.bytes = 120}});
  keep_the_surest(next, found, 100);
  ASSERT_EQ(next.size(), 1U) << "80 may be 107";
  EXPECT_EQ(next.front().point, points[2]);
  next = all;
  keep_the_surest(next, found, 60);
  EXPECT_EQ(next.size(), 2U) << "none is sure";
}

}  // namespace
}  // namespace consist::launch
