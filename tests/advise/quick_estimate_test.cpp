// Estimates by a few layers beside what the whole programs say.
#include "launch/search/tune/quick_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "launch/predict/choices.h"
#include "launch/search/tune/space.h"
#include "tests/advise/planned.h"

namespace consist::launch {
namespace {

class Estimates : public ::testing::Test {
 protected:
  RunConfig config_of(const std::string& strategy, const Choices& more) const {
    RunConfig config;
    config.model = "llama-3-8b";
    config.precision = "bf16";
    config.sequence = 4096;
    config.ranks = 8;
    config.batch = 1;
    config.accumulation = 8;
    apply({{"strategy", strategy}}, config);
    apply(more, config);
    return config;
  }
  Plan plan_of(RunConfig config) const {
    return plan_run(std::move(config), test::plugin_host(),
                    {nullptr, std::make_shared<const Machine>(parse_machine("h200,capacity=" + capacity_)), false});
  }

  std::string capacity_ = "1e13";
  std::mutex making_;
  QuickEstimates quick_{[this](RunConfig config) { return plan_of(std::move(config)); }, test::plugin_host(), making_, {}};
};

TEST_F(Estimates, AreNearTheWholeProgramsTimeAndMemory) {
  const std::vector<std::pair<std::string, Choices>> cases{
      {"ddp", {}},
      {"zero2", {{"recompute", "full"}}},
      {"tp-sp=4+zero2", {{"zero2.stage", "1"}}},
      {"pipeline=4+zero2", {}},
      {"pipeline=4+ddp", {{"pipeline.schedule", "interleaved"}, {"pipeline.chunks", "4"}}},
      {"pipeline=8", {{"pipeline.schedule", "zero-bubble"}}},
      {"tp-sp=2+pipeline=4", {{"recompute", "full"}, {"recompute-layers", "0-15"}}},
      {"cp=2+zero2", {}},
  };
  for (const auto& [strategy, more] : cases) {
    const RunConfig config = config_of(strategy, more);
    const auto estimate = quick_.of(config);
    ASSERT_TRUE(estimate) << strategy;
    Plan plan = plan_of(config);
    const Estimate whole = launch::estimate(plan, stages_of(plan.layout()), true);
    EXPECT_NEAR(estimate->seconds, whole.seconds, 0.25 * whole.seconds) << strategy << " " << text_of(more);
    EXPECT_NEAR(static_cast<double>(estimate->bytes), static_cast<double>(whole.bytes), 0.25 * static_cast<double>(whole.bytes))
        << strategy << " " << text_of(more);
  }
}

TEST_F(Estimates, SchedulesChunksAndAccumulationShareTwoCompilations) {
  quick_.of(config_of("pipeline=4+ddp", {}));
  EXPECT_EQ(quick_.models(), 1U);
  const double of_eight =
      quick_.of(config_of("pipeline=4+ddp", {{"pipeline.schedule", "interleaved"}, {"pipeline.chunks", "8"}}))->seconds;
  const double of_two =
      quick_.of(config_of("pipeline=4+ddp", {{"pipeline.schedule", "interleaved"}, {"pipeline.chunks", "2"}}))->seconds;
  EXPECT_LT(of_eight, of_two);
  quick_.of(config_of("pipeline=4+ddp", {{"accumulation", "32"}}));
  EXPECT_EQ(quick_.models(), 1U);
  quick_.of(config_of("pipeline=4+ddp", {{"recompute", "full"}}));
  EXPECT_EQ(quick_.models(), 2U);
}

TEST_F(Estimates, SayWhereRecomputationCannotMakeRoom) {
  capacity_ = "60e9";
  for (const auto& [strategy, batch, states_fit] :
       {std::tuple{"ddp", "1", false}, {"pipeline=2+ddp", "1", false}, {"zero3-offload", "4", true}, {"pipeline=8", "4", true}}) {
    const auto kept = quick_.of(config_of(strategy, {{"batch", batch}}));
    ASSERT_TRUE(kept) << strategy;
    EXPECT_FALSE(kept->fits) << strategy;
    EXPECT_EQ(kept->states_fit, states_fit) << strategy;
    Plan recomputed = plan_of(config_of(strategy, {{"batch", batch}, {"recompute", "full"}}));
    EXPECT_EQ(launch::estimate(recomputed, stages_of(recomputed.layout()), true).fits, states_fit) << strategy;
  }
}

TEST_F(Estimates, RefuseWhatCompilingRefuses) {
  EXPECT_THROW(quick_.of(config_of("pipeline=8", {{"pipeline.schedule", "interleaved"}, {"pipeline.chunks", "8"}})), UsageError);
  EXPECT_THROW(quick_.of(config_of("tp-sp=3+ddp", {})), UsageError);
}

}  // namespace
}  // namespace consist::launch
