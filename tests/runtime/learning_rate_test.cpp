// Learning-rate schedules: the rate of every step.
#include "core/runtime/learning_rate.h"

#include <gmock/gmock.h>

#include "consist/error.h"

namespace consist {
namespace {

using Decay = LearningRate::Decay;
using Warmup = LearningRate::Warmup;
using Counting = LearningRate::Counting;

void expect_rates(const LearningRate& schedule, const std::vector<double>& rates) {
  for (std::size_t step = 0; step < rates.size(); ++step) {
    EXPECT_NEAR(schedule.at(static_cast<std::int64_t>(step)), rates[step], 1e-12) << "step " << step;
  }
}

TEST(LearningRate, OwnSchedules) {
  LearningRate schedule{.peak = 1, .warmup_steps = 4, .steps = 8, .final_fraction = 0.2};
  expect_rates(schedule, {0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1, 1});
  schedule.decay = Decay::linear;
  expect_rates(schedule, {0.2, 0.4, 0.6, 0.8, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  schedule.decay = Decay::cosine;
  expect_rates(schedule, {0.2, 0.4, 0.6, 0.8, 1, 0.88284271247461902, 0.6, 0.31715728752538104, 0.2, 0.2});
  schedule.warmup_steps = 0;
  schedule.decay = Decay::linear;
  expect_rates(schedule, {1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2});
}

/// Where warm-up begins at 0, it is transformers' get_linear_schedule_with_warmup.
TEST(LearningRate, WarmupBeginsWhereItIsTold) {
  LearningRate schedule{.peak = 1, .warmup_steps = 4, .warmup_from = 0};
  expect_rates(schedule, {0, 0.25, 0.5, 0.75, 1, 1});
  schedule.warmup_from = 0.2;
  expect_rates(schedule, {0.2, 0.4, 0.6, 0.8, 1, 1});
  schedule.warmup = Warmup::log;
  expect_rates(schedule, {0.2, 0.6, 0.2 + 0.8 * 0.79248125036057813, 1, 1, 1});
  schedule.warmup_from.reset();
  expect_rates(schedule, {0, 0.5, 0.79248125036057813, 1, 1, 1});
  schedule.warmup_steps = 1;
  expect_rates(schedule, {0, 1, 1});
}

/// The numbers are what DeepSpeed 0.19.6's schedulers give an optimizer whose steps they follow, run on these parameters.
TEST(LearningRate, DeepspeedsSchedulersStepByStep) {
  LearningRate schedule{
      .peak = 1e-3, .warmup_steps = 4, .warmup = Warmup::log, .warmup_from = 1e-4, .steps = 10, .counting = Counting::deepspeed};
  const double third = 0.00081323312532452041;
  expect_rates(schedule, {1e-4, 1e-4, 5.5e-4, third, 1e-3, 1e-3, 1e-3});
  schedule.decay = Decay::linear;
  schedule.final_fraction = 0.1;
  expect_rates(schedule, {1e-4, 1e-4, 5.5e-4, third, 1e-3, 1e-3, 8.5e-4, 7e-4, 5.5e-4, 4e-4, 2.5e-4, 1e-4});
  schedule.warmup = Warmup::linear;
  schedule.warmup_from = 0;
  schedule.final_fraction = 0;
  expect_rates(schedule, {0, 0, 2.5e-4, 5e-4, 7.5e-4, 1e-3, 0.00083333333333333339, 0.00066666666666666664, 5e-4,
                          0.00033333333333333332, 0.00016666666666666666, 0});
  schedule.decay = Decay::cosine;
  schedule.final_fraction = 0.1;
  expect_rates(schedule, {0, 0, 2.5e-4, 5e-4, 7.5e-4, 0.00093971143170299744, 7.75e-4, 5.5e-4, 3.25e-4, 0.00016028856829700258,
                          1e-4, 1e-4});
  schedule.warmup = Warmup::log;
  expect_rates(schedule, {0, 0, 5e-4, 0.00079248125036057813, 1e-3, 0.00093971143170299744, 7.75e-4});
}

TEST(LearningRate, NamesAreReadAsTheyAreWritten) {
  for (const Decay decay : {Decay::constant, Decay::linear, Decay::cosine}) EXPECT_EQ(decay_of(name_of(decay)), decay);
  for (const Warmup warmup : {Warmup::linear, Warmup::log}) EXPECT_EQ(warmup_of(name_of(warmup)), warmup);
  for (const Counting counting : {Counting::own, Counting::deepspeed}) EXPECT_EQ(counting_of(name_of(counting)), counting);
  EXPECT_THROW(decay_of("Cosine"), UsageError);
  EXPECT_THROW(warmup_of(""), UsageError);
  EXPECT_THROW(counting_of("hf"), UsageError);
}

}  // namespace
}  // namespace consist
