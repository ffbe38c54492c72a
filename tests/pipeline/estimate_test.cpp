// estimate_stages(): the formulas of the schedules where stages are equal, and what they keep.
#include "plugins/strategies/pipeline/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"

namespace consist::pipeline {
namespace {

StageRequest equal_layers(int layers, int ranks, int micro_batches) {
  StageRequest request{.parts = {{}}, .ranks = ranks, .micro_batches = micro_batches};
  for (int layer = 0; layer < layers; ++layer)
    request.parts.push_back({.forward = 1, .backward = 2, .weight_gradients = 1, .kept_bytes = 3, .state_bytes = 5});
  request.parts.emplace_back();
  return request;
}

TEST(StageEstimate, IsTheFormulasOfEqualStages) {
  for (const auto& [schedule, chunks] :
       {std::pair{Schedule::gpipe, 1}, {Schedule::one_f_one_b, 1}, {Schedule::interleaved, 5}, {Schedule::zero_bubble, 1}}) {
    const StageRequest request = equal_layers(20, 4, 8);
    const StageEstimate estimate = estimate_stages({.schedule = schedule, .chunks = chunks, .sends_first = false}, request);
    EXPECT_NEAR(estimate.seconds, 8 * 5 * 3 / (1 - bubble_fraction(schedule, 4, chunks, 8)), 1e-9) << static_cast<int>(schedule);
  }
}

TEST(StageEstimate, TheFirstRankOf1F1BKeepsAMicroBatchForEachStage) {
  EXPECT_DOUBLE_EQ(estimate_stages({.schedule = Schedule::one_f_one_b}, equal_layers(8, 4, 8)).bytes, 2 * (4 * 3 + 5));
  EXPECT_DOUBLE_EQ(estimate_stages({.schedule = Schedule::gpipe}, equal_layers(8, 4, 8)).bytes, 2 * (8 * 3 + 5));
}

TEST(StageEstimate, MessagesAndTheStepsEndTakeTheirTime) {
  StageRequest request = equal_layers(8, 4, 8);
  const double without = estimate_stages({}, request).seconds;
  request.message_seconds = 0.25;
  EXPECT_NEAR(estimate_stages({}, request).seconds, without + 6 * 0.25, 1.01) << "through three stages and back, at least";
  request.message_seconds = 0;
  for (LayerWork& layer : request.parts) layer.finish = 1;
  EXPECT_GT(estimate_stages({}, request).seconds, without + 1.9) << "of the two layers of the rank that ends last";
}

TEST(StageEstimate, RefusesWhatPartitionRefuses) {
  EXPECT_THROW(estimate_stages({.schedule = Schedule::interleaved, .chunks = 3}, equal_layers(8, 4, 8)), UsageError);
  EXPECT_THROW(estimate_stages({.speeds = {1, 1}}, equal_layers(8, 4, 8)), UsageError);
}

}  // namespace
}  // namespace consist::pipeline
