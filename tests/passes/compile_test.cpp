#include "core/passes/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "core/passes/memory_plan.h"
#include "core/passes/waits.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"
#include "tests/golden_text.h"
#include "tests/passes/tiny_case.h"
#include "tests/program/plan_checks.h"

namespace consist {
namespace {

using test::Case;
using test::DataParallel;
using test::expect_golden;
using test::planned;

TEST(Golden, OneRank) {
  expect_golden("one_rank", to_text(planned(Case(1).step())));
}
TEST(Golden, AccumulationUntied) {
  expect_golden("accumulation_untied", to_text(planned(Case(1, 2, true, {.layers = 1, .tied = false}).step())));
}
TEST(Golden, DataParallelBf16) {
  expect_golden("data_parallel_bf16", to_text(planned(Case(2, 2, true, {.layers = 1}, test::mixed_bf16).step())));
}
// Neither masters nor fp32 moments: what --bf16.states bf16 asks for.
TEST(Golden, Bf16States) {
  const DTypes states{.parameter = DType::bf16, .moment = DType::bf16, .stochastic_rounding = true};
  expect_golden("bf16_states", to_text(planned(Case(2, 1, true, {.layers = 1}, states).step())));
}
TEST(Golden, Evaluation) {
  Case c(2);
  expect_golden("evaluation", to_text(planned(compile_evaluation(c.request, c.layout))));
}

TEST(Compile, EveryGradientIsReducedOnceWithoutAStrategysHelp) {
  Case c(4, 3, false);
  const Program p = c.step();
  std::size_t reduced = 0;
  for (const Instruction& i : p.instructions) reduced += i.op->name() == "all_reduce" && p[i.inputs[0]].role == Role::gradient;
  EXPECT_EQ(reduced, p.parameters.size());
}

TEST(Compile, TiedEmbeddingHasOneGradientWithBothContributions) {
  const Program p = Case(1).step();
  for (const Instruction& i : p.instructions) {
    if (i.op->name() == "embedding_grad") {
      ASSERT_EQ(i.inputs.size(), 3U);
      EXPECT_NE(i.inputs[2], no_tensor) << "the LM head's gradient must be accumulated into";
      return;
    }
  }
  FAIL() << "there is no embedding_grad";
}

TEST(Layout, RefusesWhatDoesNotFit) {
  DataParallel s(true);
  EXPECT_THROW(lay_out({{"data", &s, 3}}, 4), UsageError);
  EXPECT_THROW(lay_out({{"data", &s, 0}, {"data", &s, 0}}, 4), UsageError);
  EXPECT_THROW(lay_out({{"data", &s, 2}, {"data", &s, 2}}, 4), UsageError);
  EXPECT_EQ(lay_out({{"data", &s, 0}}, 1).mesh.axes(), 0);
}

TEST(MemoryPlan, NoTwoLiveTensorsOverlap) {
  MemoryPlan plan;
  const Program p = planned(Case(2, 3).step(), &plan);
  test::expect_no_two_live_tensors_overlap(p, plan);
}

TEST(Waits, OrderEveryConflict) {
  MemoryPlan plan;
  const Program p = planned(Case(2, 2).step(), &plan);
  EXPECT_GT(test::expect_conflicts_are_ordered(p, plan), 0);
}

TEST(Compile, RanksOfOneLayoutDoNotBlockEachOther) {
  const Program p = planned(Case(3, 2, false).step());
  const Program* ranks[] = {&p, &p, &p};
  EXPECT_NO_THROW(verify_collectives(ranks));
}

}  // namespace
}  // namespace consist
