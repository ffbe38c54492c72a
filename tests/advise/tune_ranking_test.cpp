// Order in which a search simulates configurations.
#include <gtest/gtest.h>

#include <algorithm>
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

/// A search has been said to have converged beside a schedule that it took to be as badly estimated as another one.
TEST(TuneRanking, WhatWasSimulatedOfOneScheduleSaysNothingOfAnother) {
  RunConfig config;
  config.model = "llama-3-8b";
  config.precision = "bf16";
  config.sequence = 1024;
  config.global_batch = 32;
  config.ranks = 4;
  const Space space(config, {}, parse_machine("h200"), test::plugin_host());
  Findings found(space, Objective::tokens);
  for (std::size_t layout = 0; layout < space.layouts().size(); ++layout) {
    const std::vector<Dimension>& dimensions = space.layouts()[layout].dimensions;
    const auto schedule = std::ranges::find(dimensions, "pipeline.schedule", &Dimension::option);
    if (schedule == dimensions.end() || schedule->values.size() < 2) continue;
    const Point one = space.first(layout);
    Point other = one;
    auto& value = other.values[static_cast<std::size_t>(schedule - dimensions.begin())];
    value = value == 0 ? 1 : 0;
    found.add(one, {.quick = Estimate{.seconds = 1, .bytes = 1, .fits = true, .whole = false}});
    found.add(one, {.whole = Estimate{.seconds = 1.25, .bytes = 1, .fits = true}});
    const Corrections corrections(space, found);
    EXPECT_DOUBLE_EQ(corrections.ratio(one), 1.25);
    EXPECT_DOUBLE_EQ(corrections.ratio(other), 1);
    return;
  }
  FAIL() << "no layout has schedules";
}

}  // namespace
}  // namespace consist::launch
