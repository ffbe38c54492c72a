// Instructions beside large gathers and reductions, in shapes for which an estimate of times says something.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/edit.h"
#include "consist/op.h"
#include "tests/program/plan_checks.h"
#include "tests/zero/zero_step.h"

namespace consist {
namespace {

using test::planned;
using test::zero_step;
using test::ZeroCase;

/// Products take a multiple of the time in which their weights travel; table and head are the largest parameters by far.
ZeroCase large(const std::string& strategy) {
  ZeroCase c{.strategy = strategy,
             .ranks = 4,
             .shape = {.layers = 4,
                       .hidden = 1024,
                       .heads = 8,
                       .kv_heads = 2,
                       .head_dim = 128,
                       .ffn = 4096,
                       .vocabulary = 65536,
                       .tied = false},
             .dtypes = test::mixed_bf16,
             .micro_batch = 4,
             .sequence = 4096};
  if (strategy != "ddp") c.options = {{"reduce-bucket-size", "1e6"}, {"communication-data-type", "bf16"}};
  if (strategy == "zero3-offload") c.options.insert({{"prefetch-bucket-size", "1e6"}});
  return c;
}

bool reads(const Instruction& i, TensorId tensor) {
  return std::find(i.inputs.begin(), i.inputs.end(), tensor) != i.inputs.end();
}

std::size_t find_last(const Program& program, std::string_view op) {
  std::size_t at = program.instructions.size();
  while (at > 0 && program.instructions[at - 1].op->name() != op) --at;
  EXPECT_GT(at, 0U) << op;
  return at - 1;
}

/// The reduction that makes a parameter's gradient.
std::size_t reduction_of(const Program& program, const Parameter& parameter) {
  std::size_t at = static_cast<std::size_t>(last_writers(program)[static_cast<std::size_t>(parameter.gradient)]);
  EXPECT_TRUE(program.instructions[at].op->is_collective());
  return at;
}

class DataParallel : public ::testing::TestWithParam<const char*> {};

TEST_P(DataParallel, WeightGradientsAreComputedWhileTheTablesIsReduced) {
  for (const int accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    ZeroCase c = large(GetParam());
    c.accumulation = accumulation;
    const Program step = zero_step(c);
    std::size_t reduction = find_last(step, "embedding_grad");
    const std::size_t begin_at = reduction + 2;
    while (reduction + 1 < step.instructions.size() && !step.instructions[reduction].op->is_collective()) ++reduction;
    EXPECT_LE(reduction, begin_at) << "behind a cast at most";
    double beside = 0;
    for (std::size_t i = reduction; i < step.instructions.size(); ++i) {
      if (!step.instructions[i].op->makes_weight_gradients()) continue;
      EXPECT_EQ(step.instructions[i].tag.micro_batch, accumulation - 1);
      beside += costs_of(step).compute_seconds(step, step.instructions[i]);
    }
    const double elements = 65536.0 * 1024;
    const auto sending = [&](double width) {
      return costs_of(step).transfer_seconds(registry().get("reduce_scatter"), 0.75 * elements * width, 0);
    };
    EXPECT_GT(beside, sending(2)) << "as long as it takes";
    EXPECT_LT(beside, 6 * sending(4)) << "and not all of them";

    MemoryPlan plan;
    const Program ready = planned(step, &plan);
    test::expect_no_two_live_tensors_overlap(ready, plan);
    EXPECT_GT(test::expect_conflicts_are_ordered(ready, plan), 10);
  }
}

TEST_P(DataParallel, NothingThatIsRecomputedIsKeptForThat) {
  ZeroCase c = large(GetParam());
  c.recompute = "full";
  const Program step = zero_step(c);
  EXPECT_LT(find_last(step, "linear_weight_grad"), find_last(step, "embedding_grad"));
}

TEST_P(DataParallel, SquaresAreAddedUpWhileTheTablesGradientIsReduced) {
  ZeroCase c = large(GetParam());
  c.shape.layers = 24;  // for fewer gradients one launch is less than the wait
  MemoryPlan plan;
  const Program step = planned(zero_step(c), &plan);
  const std::size_t table = reduction_of(step, step.parameters[0]);
  std::vector<const Instruction*> sums;
  for (const Instruction& i : step.instructions) {
    if (i.op->name() == "sum_of_squares") sums.push_back(&i);
  }
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_GT(sums[0]->inputs.size(), sums[1]->inputs.size());
  EXPECT_TRUE(std::none_of(sums[0]->waits.begin(), sums[0]->waits.end(),
                           [&](InstructionId wait) { return static_cast<std::size_t>(wait) >= table; }));
  for (const Parameter& parameter : step.parameters)
    EXPECT_EQ(reads(*sums[0], parameter.gradient) + reads(*sums[1], parameter.gradient), 1) << parameter.name;
  EXPECT_TRUE(reads(*sums[1], step.parameters[0].gradient));
}

INSTANTIATE_TEST_SUITE_P(Strategies, DataParallel, ::testing::Values("ddp", "zero2", "zero3-offload"),
                         [](const auto& info) { return std::string(info.param).substr(0, 5); });

/// Seconds of compute between the gather of the head and its use.
double lead_of_head(const Program& step) {
  const std::size_t use = find_last(step, "lm_head_loss_grad");
  double seconds = 0;
  for (std::size_t i = use; i-- > 0;) {
    const Instruction& before = step.instructions[i];
    if (before.op->name() == "all_gather" && before.outputs.size() == 1 && reads(step.instructions[use], before.outputs[0]))
      return seconds;
    seconds += costs_of(step).compute_seconds(step, before);
  }
  ADD_FAILURE() << "the head is not gathered";
  return 0;
}

/// Seconds of that gather.
double travel_of_head(const Program& step) {
  return costs_of(step).transfer_seconds(registry().get("all_gather"), 0.75 * 65536 * 1024 * 2, 0);
}

TEST(Gathers, LargeOnesBeginAsLongBeforeUseAsTheyTake) {
  ZeroCase c = large("zero3-offload");
  const double travel = travel_of_head(zero_step(c));
  EXPECT_GT(lead_of_head(zero_step(c)), travel);
  EXPECT_LT(lead_of_head(zero_step(c)), 8 * travel);
  c.options["overlap-comm"] = "false";
  EXPECT_EQ(lead_of_head(zero_step(c)), 0);
  c.options["overlap-comm"] = "true";
  c.options["max-live-parameters"] = "68e6";  // there is room for the head alone
  EXPECT_LT(lead_of_head(zero_step(c)), travel);
}

TEST(Gathers, BeginEarlierAlongAnAxisThatCrossesNodes) {
  ZeroCase c = large("zero3-offload");
  c.shape.layers = 16;  // there is enough to be computed meanwhile, within the layers whose weights may be whole then
  c.micro_batch = 16;
  const double inside = lead_of_head(zero_step(c));
  c.machine = "h200,network=12.5e9,ranks-per-node=1";
  const Program step = zero_step(c);
  EXPECT_GT(travel_of_head(step), 8e-3) << "100 MB at 12.5 GB/s";
  EXPECT_GT(lead_of_head(step), travel_of_head(step));
  EXPECT_GT(lead_of_head(step), 4 * inside);
  c.machine = "h200,network=12.5e9,ranks-per-node=4";
  EXPECT_EQ(lead_of_head(zero_step(c)), inside) << "all four are on one node";
}

}  // namespace
}  // namespace consist
