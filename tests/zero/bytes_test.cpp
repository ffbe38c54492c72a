// Bytes that ZeRO sends, against the formulas of its paper (Rajbhandari et al., 2020, section 7): with P parameters, stages 1 and
// 2 move 2 P per step as data parallelism does, stage 3 moves 3 P; each rank sends (N-1)/N of that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/zero/zero_step.h"

namespace consist {
namespace {

using test::gather_always;
using test::zero_step;
using test::ZeroCase;

/// Bytes per rank and step.
struct Sent {
  double gathered = 0, reduced = 0;
  double across = 0;  ///< gradients, by all_reduce
};

Sent sent(const Program& program) {
  Sent sum;
  for (const Instruction& i : program.instructions) {
    for (TensorId input : i.inputs) {
      if (input == no_tensor) continue;
      if (!i.op->is_collective()) continue;
      const auto bytes = static_cast<double>(program.bytes(input));
      const int n = program.mesh.size_of(i.queue.axes());
      if (i.op->name() == "all_gather") sum.gathered += bytes * (n - 1);
      if (i.op->name() == "reduce_scatter") sum.reduced += bytes * (n - 1) / n;
      if (i.op->name() == "all_reduce" && program[input].role == Role::gradient) sum.across += 2 * bytes * (n - 1) / n;
    }
  }
  return sum;
}

double elements(const Program& program) {
  double count = 0;
  for (const Parameter& p : program.parameters) count += static_cast<double>(program[p.tensor].shape.elements());
  return count;
}

class Bytes : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  double share() const { return static_cast<double>(ranks() - 1) / ranks(); }
};

TEST_P(Bytes, Zero2MovesTwiceTheParameters) {
  const Program program = zero_step({.ranks = ranks()});
  const double p = elements(program);
  EXPECT_DOUBLE_EQ(sent(program).gathered, 4 * p * share());
  EXPECT_DOUBLE_EQ(sent(program).reduced, 4 * p * share());
}

TEST_P(Bytes, FrozenParametersAreNeitherReducedNorGatheredInStage2) {
  const FreezeRequest frozen{.frozen = {"embed.weight", "layers.0.*"}, .trained = {}};
  for (const char* stage : {"1", "2"}) {
    const Program program = zero_step({.options = {{"stage", stage}}, .ranks = ranks(), .freeze = frozen});
    double trained = 0, states = 0;
    for (const Parameter& p : program.parameters) {
      if (p.trainable) trained += static_cast<double>(program[p.tensor].shape.elements());
      for (const ParameterState& state : p.states) states += static_cast<double>(program[state.tensor].shape.elements());
    }
    EXPECT_LT(trained, elements(program) / 2);
    EXPECT_DOUBLE_EQ(sent(program).gathered, 4 * trained * share());
    EXPECT_DOUBLE_EQ(sent(program).reduced, 4 * trained * share());
    EXPECT_DOUBLE_EQ(states, 2 * trained);
  }
  ZeroCase third{.strategy = "zero3-offload", .options = gather_always, .ranks = ranks(), .freeze = frozen};
  const Program whole = zero_step({.strategy = third.strategy, .options = third.options, .ranks = ranks()}), program = zero_step(third);
  EXPECT_LT(sent(program).gathered, sent(whole).gathered) << "layer 0 is not gathered for backward";
  EXPECT_LT(sent(program).reduced, sent(whole).reduced / 2);
}

TEST_P(Bytes, Bf16ParametersAreHalfOfTheGradients) {
  const Program program = zero_step({.ranks = ranks(), .dtypes = test::mixed_bf16});
  EXPECT_DOUBLE_EQ(sent(program).gathered, 2 * elements(program) * share());
  EXPECT_DOUBLE_EQ(sent(program).reduced, 4 * elements(program) * share());
}

TEST_P(Bytes, AccumulationRepeatsReductionsInStage2AndNotInStage1) {
  const Program two = zero_step({.ranks = ranks(), .accumulation = 3});
  EXPECT_DOUBLE_EQ(sent(two).gathered, 4 * elements(two) * share());
  EXPECT_DOUBLE_EQ(sent(two).reduced, 3 * 4 * elements(two) * share());
  const Program one = zero_step({.options = {{"stage", "1"}}, .ranks = ranks(), .accumulation = 3});
  EXPECT_DOUBLE_EQ(sent(one).gathered, 4 * elements(one) * share());
  EXPECT_DOUBLE_EQ(sent(one).reduced, 4 * elements(one) * share());
}

TEST_P(Bytes, Zero3MovesThreeTimesTheParametersPerMicroBatch) {
  for (const int accumulation : {1, 3}) {
    const Program program =
        zero_step({.strategy = "zero3-offload", .options = gather_always, .ranks = ranks(), .accumulation = accumulation});
    EXPECT_DOUBLE_EQ(sent(program).gathered, accumulation * 2 * 4 * elements(program) * share());
    EXPECT_DOUBLE_EQ(sent(program).reduced, accumulation * 4 * elements(program) * share());
  }
}

TEST_P(Bytes, Stage3ReducesOncePerStepAndGathersOnceWhereItMay) {
  ZeroCase c{.strategy = "zero3-offload", .options = gather_always, .ranks = ranks(), .accumulation = 3};
  c.options["reduce-each-micro-batch"] = "false";
  const Program reduced_once = zero_step(c);
  const double p = 4 * elements(reduced_once) * share();
  EXPECT_DOUBLE_EQ(sent(reduced_once).gathered, 3 * 2 * p);
  EXPECT_DOUBLE_EQ(sent(reduced_once).reduced, p);
  c.options["max-reuse-distance"] = "1e9";
  const Program gathered_once = zero_step(c);
  EXPECT_DOUBLE_EQ(sent(gathered_once).gathered, p);
  EXPECT_DOUBLE_EQ(sent(gathered_once).reduced, p);
}

TEST_P(Bytes, GradientsTravelInTheDtypeOfTheOption) {
  for (const char* strategy : {"zero2", "zero3-offload"}) {
    for (const int accumulation : {1, 3}) {
      ZeroCase c{.strategy = strategy, .ranks = ranks(), .accumulation = accumulation, .dtypes = test::mixed_bf16};
      c.options["communication-data-type"] = "bf16";
      EXPECT_DOUBLE_EQ(sent(zero_step(c)).reduced, accumulation * 2 * elements(zero_step(c)) * share());
      c.options["communication-data-type"] = "fp32";
      EXPECT_DOUBLE_EQ(sent(zero_step(c)).reduced, accumulation * 4 * elements(zero_step(c)) * share());
    }
  }
  ZeroCase whole{.options = {{"stage", "1"}, {"communication-data-type", "bf16"}}, .ranks = ranks(), .accumulation = 3};
  for (const DTypes& dtypes : {test::mixed_bf16, DTypes{}}) {  // made in bf16, or cast
    whole.dtypes = dtypes;
    EXPECT_DOUBLE_EQ(sent(zero_step(whole)).reduced, 2 * elements(zero_step(whole)) * share());
  }
}

TEST_P(Bytes, AnUntiedTableAndHeadAreGatheredOnceEach) {
  const Program program =
      zero_step({.strategy = "zero3-offload", .options = gather_always, .ranks = ranks(), .shape = {.tied = false}});
  const test::TinyShape shape;
  const double once = 2.0 * static_cast<double>(shape.vocabulary * shape.hidden);
  EXPECT_DOUBLE_EQ(sent(program).gathered, 4 * (2 * elements(program) - once) * share());
}

TEST_P(Bytes, SmallParametersAreGatheredOncePerStep) {
  ZeroCase c{.strategy = "zero3-offload", .options = gather_always, .ranks = ranks(), .accumulation = 2};
  c.options["param-persistence-threshold"] = "17";  // the norms, of 16
  const Program program = zero_step(c);
  double small = 0;
  for (const Parameter& p : program.parameters) {
    const std::int64_t count = program[p.tensor].shape.elements();
    if (count < 17) small += static_cast<double>(count);
  }
  EXPECT_DOUBLE_EQ(sent(program).gathered, 4 * (2 * 2 * (elements(program) - small) + small) * share());
}

// Parts of N ranks in M replicas: within as ZeRO, across only parts of gradients, once per step however many micro-batches there
// are: 2 (M-1)/M of P/N.
TEST_P(Bytes, HybridSendsPartsAcrossOncePerStep) {
  for (const int replicas : {2, 3}) {
    const double m = replicas, n = ranks(), across = 2 * (m - 1) / m / n;
    for (const int accumulation : {1, 3}) {
      const Program two = zero_step({.ranks = ranks() * replicas, .accumulation = accumulation, .replicas = replicas});
      const double p = 4 * elements(two);
      EXPECT_DOUBLE_EQ(sent(two).gathered, p * share());
      EXPECT_DOUBLE_EQ(sent(two).reduced, accumulation * p * share());
      EXPECT_DOUBLE_EQ(sent(two).across, p * across);
      const Program three = zero_step({.strategy = "zero3-offload",
                                       .options = gather_always,
                                       .ranks = ranks() * replicas,
                                       .accumulation = accumulation,
                                       .replicas = replicas});
      EXPECT_DOUBLE_EQ(sent(three).gathered, accumulation * 2 * p * share());
      EXPECT_DOUBLE_EQ(sent(three).reduced, accumulation * p * share());
      EXPECT_DOUBLE_EQ(sent(three).across, p * across);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Bytes, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace consist
