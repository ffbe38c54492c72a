// Steps that a search plans with fewer micro-batches: their time and memory are those of the whole step.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "core/plan/plan.h"
#include "launch/search/tune/estimate.h"

namespace consist {
namespace {

struct Case {
  const char *name, *strategy;
  int ranks, stages;
  std::vector<std::tuple<const char*, const char*, const char*>> options = {};
  double error = 0.005;
};

class TuneEstimate : public ::testing::TestWithParam<Case> {};

TEST_P(TuneEstimate, OfAShortenedStepIsThatOfTheWhole) {
  static PluginHost host({});
  RunConfig config;
  config.model = "llama-3-8b";
  config.precision = "bf16";
  config.sequence = 2048;
  config.ranks = GetParam().ranks;
  config.strategies = parse_strategies(GetParam().strategy);
  config.batch = 1;
  config.accumulation = 24;
  config.machine = "h200,capacity=1e13";
  for (const auto& [owner, option, value] : GetParam().options) config.plugin_options[owner][option] = value;
  const Plan plan = plan_run(config, host, {nullptr, nullptr, false});
  const Power power{.limit = {}, .idle = {100}, .loads = {{"*", {400}}, {"products", {600}}}};
  const launch::Estimate whole = launch::estimate(plan, GetParam().stages, true, power),
                         shortened = launch::estimate(plan, GetParam().stages, false, power);
  EXPECT_TRUE(whole.whole);
  EXPECT_FALSE(shortened.whole);
  EXPECT_LT(launch::fewest_micro_batches(GetParam().stages), plan.config().accumulation);
  EXPECT_NEAR(shortened.seconds / whole.seconds, 1, GetParam().error);
  EXPECT_NEAR(shortened.joules / whole.joules, 1, GetParam().error);
  EXPECT_GT(whole.joules, 100 * whole.seconds * GetParam().ranks);
  EXPECT_LT(whole.joules, 600 * whole.seconds * GetParam().ranks);
  EXPECT_NEAR(static_cast<double>(shortened.bytes) / static_cast<double>(whole.bytes), 1, 0.03);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, TuneEstimate,
    ::testing::Values(Case{"one", "ddp", 1, 1}, Case{"ddp", "ddp", 4, 1}, Case{"zero2", "zero2", 4, 1},
                      Case{"stage1", "zero2", 4, 1, {{"zero2", "stage", "1"}}}, Case{"zero3", "zero3-offload", 4, 1},
                      Case{"zero3_whole",
                           "zero3-offload",
                           4,
                           1,
                           {{"zero3-offload", "max-live-parameters", "1e10"},
                            {"zero3-offload", "max-reuse-distance", "1e11"},
                            {"zero3-offload", "reduce-each-micro-batch", "false"}}},
                      Case{"offload", "zero3-offload", 4, 1, {{"zero3-offload", "offload-optimizer.device", "cpu"}}},
                      // The clock's load takes longer to build up than three of its micro-batches.
                      Case{"tensor", "tp-sp=4", 4, 1, {}, 0.025}, Case{"tensor_zero", "tp-sp=2+zero2", 4, 1},
                      Case{"stages", "pipeline=4", 4, 4},
                      Case{"interleaved", "pipeline=4", 4, 4, {{"pipeline", "schedule", "interleaved"}}},
                      Case{"zero_bubble", "pipeline=4", 4, 4, {{"pipeline", "schedule", "zero-bubble"}}},
                      Case{"zero_bubble_h2", "pipeline=4", 4, 4, {{"pipeline", "schedule", "zero-bubble-h2"}}},
                      Case{"two_stages", "pipeline=2+zero2", 4, 2}, Case{"all", "tp-sp=2+pipeline=2", 4, 2}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace consist
