// The place of a rank in its work: as a text that is read back, and in the order of a run.
#include "core/job/progress.h"

#include <gtest/gtest.h>

#include <iterator>
#include <optional>

namespace consist {
namespace {

TEST(Progress, TextsAreReadBack) {
  for (const Progress& progress : {Progress{0, -1}, Progress{12, 0}, Progress{100'000, 345}}) {
    EXPECT_EQ(parse_progress(text_of(progress)), progress);
    EXPECT_EQ(parse_progress(text_of(progress, "all_reduce x, instruction 5")), progress);
  }
  for (const Activity activity :
       {Activity::reading, Activity::recording, Activity::evaluating, Activity::saving, Activity::exporting}) {
    const Progress progress{.step = 7, .activity = activity, .round = activity == Activity::evaluating ? 3 : 0};
    EXPECT_EQ(parse_progress(text_of(progress)), progress) << text_of(progress);
  }
  EXPECT_EQ(text_of(Progress{.step = 5, .activity = Activity::reading}), "reading data of step 5");
  EXPECT_EQ(text_of(Progress{.step = 4, .activity = Activity::saving}), "writing the checkpoint of step 4");
  EXPECT_EQ(parse_progress("loading weights"), std::nullopt);
  EXPECT_EQ(parse_progress("step x"), std::nullopt);
  EXPECT_LT((Progress{1, 500}), (Progress{2, 0}));
}

// A rank that hangs between two steps is behind those that have begun the next one, and before those that wait in the last.
TEST(Progress, WhatTheHostDoesBetweenStepsIsOrdered) {
  const Progress in_order[] = {{.step = 4, .instruction = 345},
                               {.step = 4, .activity = Activity::recording},
                               {.step = 4, .instruction = 3, .activity = Activity::evaluating, .round = 0},
                               {.step = 4, .instruction = 1, .activity = Activity::evaluating, .round = 1},
                               {.step = 4, .activity = Activity::saving},
                               {.step = 5, .activity = Activity::reading},
                               {.step = 5},
                               {.step = 5, .instruction = 0}};
  for (std::size_t i = 1; i < std::size(in_order); ++i) EXPECT_LT(in_order[i - 1], in_order[i]) << i;
}

}  // namespace
}  // namespace consist
