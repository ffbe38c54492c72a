#include "core/compile/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "consist/error.h"
#include "core/cost/collective_stream.h"
#include "core/lower/memory_plan.h"
#include "core/lower/waits.h"
#include "core/program/printer.h"
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

TEST(Layout, AStrategyMayHaveSeveralAxes) {
  DataParallel s(true);
  const Layout two = lay_out({{"data", &s, 8, {2, 4}}}, 8);
  EXPECT_EQ(two.mesh, Mesh({{"data.0", 2}, {"data.1", 4}}));
  ASSERT_EQ(two.active.size(), 1U);
  EXPECT_EQ(two.active[0].axes, two.mesh.all_axes());
  EXPECT_EQ(two.strategy_of(1).name, "data");
  EXPECT_EQ(two.batch_ranks(), 8);
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(two.batch_index(rank), rank);
  EXPECT_EQ(lay_out({{"data", &s, 0, {0, 4}}}, 12).mesh, Mesh({{"data.0", 3}, {"data.1", 4}}));
  EXPECT_EQ(lay_out({{"data", &s, 4, {1, 4}}}, 4).mesh, Mesh({{"data.1", 4}})) << "an axis of one rank does not exist";
  EXPECT_THROW(two.strategy_of(2), ProgramError);
  EXPECT_THROW(lay_out({{"data", &s, 0, {0, 4}}}, 6), UsageError);
}

/// A strategy of `name` that says when it schedules and where it lies.
class Timed final : public ParallelStrategy {
 public:
  Timed(std::string name, int distance, int turn) : request_{.name = std::move(name), .distance = distance, .turn = turn} {}
  explicit Timed(AxisRequest request) : request_(std::move(request)) {}
  AxisRequest axis() const override { return request_; }
  void partition(Program& forward, AxisSet axes) const override { partitioned += forward.mesh.text(axes) + " "; }
  void schedule(Program& step, AxisSet axes) const override { scheduled += step.mesh.text(axes) + " "; }
  static inline std::string partitioned, scheduled;

 private:
  AxisRequest request_;
};

TEST(Layout, SchedulesInTurnsWhereverAxesLie) {
  const Timed far("far", 2, 0), middle("middle", 1, -1), near("near", 0, 0);
  Case c(1);
  c.request.strategies = {{"near", &near, 2}, {"middle", &middle, 2}, {"far", &far, 2}};
  c.request.ranks = 8;
  c.layout = lay_out(c.request.strategies, 8);
  EXPECT_EQ(c.layout.mesh, Mesh({{"far", 2}, {"middle", 2}, {"near", 2}}));
  Timed::scheduled.clear();
  c.step();
  EXPECT_EQ(Timed::scheduled, "middle far near ");
}

TEST(Layout, StrategiesOfOneAxisNameDivideItByTheirDistance) {
  const AxisRequest inside{.name = "data", .takes_rest = true, .splits_batch = true, .distance = 1, .most_axes = 2};
  AxisRequest outside = inside;
  outside.distance = 2;
  const Timed shards(inside), sums(outside), near("near", 0, 0);
  Case c(1);
  c.request.strategies = {{"shards", &shards, 0}, {"near", &near, 2}, {"sums", &sums, 3}};
  c.request.ranks = 24;
  c.layout = lay_out(c.request.strategies, 24);
  EXPECT_EQ(c.layout.mesh, Mesh({{"data.0", 3}, {"data.1", 4}, {"near", 2}}));
  EXPECT_EQ(c.layout.strategy_of(0).name, "sums");
  EXPECT_EQ(c.layout.strategy_of(1).name, "shards");
  EXPECT_EQ(c.layout.batch_ranks(), 12);
  Timed::partitioned = Timed::scheduled = "";
  c.step();
  EXPECT_EQ(Timed::partitioned, "data.0 data.1 near ");
  EXPECT_EQ(Timed::scheduled, "data.1 data.0 near ") << "the inner one first";
  EXPECT_EQ(lay_out({{"shards", &shards, 8, {2, 4}}, {"sums", &sums, 3}}, 24).mesh,
            Mesh({{"data.0", 3}, {"data.1", 2}, {"data.2", 4}}));
  EXPECT_EQ(lay_out({{"shards", &shards, 1}, {"sums", &sums, 0}}, 4).mesh, Mesh({{"data.0", 4}}));
}

TEST(Layout, StrategiesMayTakeAxesThatShareParameters) {
  const Timed sharing({.name = "shared", .distance = 0, .shares_parameters = true});
  const Timed taking({.name = "data", .takes_rest = true, .takes_shared = true}), plain("far", 3, 0);
  const auto laid = [&](int ranks) { return lay_out({{"plain", &plain, 2}, {"taking", &taking, 0}, {"sharing", &sharing, 2}}, ranks); };
  const Layout eight = laid(8), four = laid(4);
  EXPECT_EQ(eight.mesh, Mesh({{"far", 2}, {"data", 2}, {"shared", 2}}));
  EXPECT_EQ(eight.active[1].axes, AxisSet(1));
  EXPECT_EQ(eight.active[1].works_on, AxisSet(1) | 2);
  EXPECT_EQ(eight.active[2].works_on, AxisSet(2));
  EXPECT_EQ(eight.partition_order, (std::vector<std::size_t>{2, 0, 1})) << "those that share first";
  ASSERT_EQ(four.active.size(), 3U) << "without ranks of its own it still has theirs";
  EXPECT_EQ(four.active[1].axes, AxisSet());
  EXPECT_EQ(four.active[1].works_on, AxisSet(1));
  EXPECT_EQ(four.strategy_of(1).name, "sharing");
  EXPECT_EQ(lay_out({{"plain", &plain, 2}, {"taking", &taking, 0}}, 2).active.size(), 1U);
}

TEST(Layout, AStrategyOfOneRankIsCalledIfItSaysSo) {
  const Timed left("left", 1, 0), called({.name = "called", .on_one_rank = OnOneRank::is_called});
  Case c(1);
  c.request.strategies = {{"left", &left, 1}, {"called", &called, 1}};
  c.layout = lay_out(c.request.strategies, 1);
  ASSERT_EQ(c.layout.active.size(), 1U);
  EXPECT_EQ(c.layout.active[0].name, "called");
  EXPECT_EQ(c.layout.mesh.axes(), 0);
  Timed::partitioned = Timed::scheduled = "";
  c.step();
  EXPECT_EQ(Timed::partitioned, c.layout.mesh.text({}) + " ");
  EXPECT_EQ(Timed::scheduled, c.layout.mesh.text({}) + " ");
}

TEST(Layout, RefusesTwoStrategiesOfOneAxisAtOneDistance) {
  const Timed one("data", 2, 0), other("data", 2, 0);
  try {
    lay_out({{"one", &one, 2}, {"other", &other, 2}}, 4);
    FAIL() << "it was laid out";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find("strategies 'one' and 'other' both want the mesh axis 'data'"), 0U) << error.what();
  }
}

TEST(Layout, RefusesANumberOfAxesThatTheStrategyDoesNotWorkOn) {
  const Timed one("one", 1, 0);
  try {
    lay_out({{"one", &one, 4, {2, 2}}}, 4);
    FAIL() << "it was laid out";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "strategy 'one' works on 1 axis, but is given 2; write --strategy one=N");
  }
}

TEST(Layout, RefusesWhatDoesNotFit) {
  DataParallel s(true);
  EXPECT_THROW(lay_out({{"data", &s, 3}}, 4), UsageError);
  EXPECT_THROW(lay_out({{"data", &s, 0}, {"data", &s, 0}}, 4), UsageError);
  EXPECT_THROW(lay_out({{"data", &s, 2}, {"data", &s, 2}}, 4), UsageError);
  EXPECT_EQ(lay_out({{"data", &s, 0}}, 1).mesh.axes(), 0);
}

/// Splits the batch, and breaks the program in one of its functions.
class Breaking final : public ParallelStrategy {
 public:
  std::string where;
  std::function<void(Program&)> what;
  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = true}; }
  void partition(Program& p, AxisSet axes) const override {
    DataParallel(false).partition(p, axes);
    in("partition", p);
  }
  void divide(Program& p, AxisSet /*axes*/) const override { in("divide", p); }
  void schedule(Program& p, AxisSet /*axes*/) const override { in("schedule", p); }
  void finish(Program& p, AxisSet /*axes*/) const override { in("finish", p); }

 private:
  void in(const std::string& function, Program& p) const {
    if (function == where) what(p);
  }
};

/// The error message of compile_step() for a strategy that does `what` in `where`.
std::string message_of_breaking(const std::string& where, const std::function<void(Program&)>& what) {
  Case c(2);
  Breaking strategy;
  strategy.where = where;
  strategy.what = what;
  c.request.strategies = {{"bad", &strategy, 0}};
  c.layout = lay_out(c.request.strategies, 2);
  try {
    c.step();
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// A metric that is nobody's.
void add_margin(Program& p) {
  Builder builder(p);
  const TensorId made = builder.emit_one("cast", {p.loss}, {{"dtype", std::string(name_of(DType::f32))}}, "margin");
  p[made].role = Role::metric;
}

// Before any pass depends on it: the passes behind would crash, or blame somebody else.
TEST(Compile, WhatAStrategyBreaksIsRefusedAtOnceWithItsName) {
  for (const std::string where : {"partition", "divide", "schedule", "finish"}) {
    SCOPED_TRACE(where);
    const auto says = [&](const std::string& why) {
      return ::testing::AllOf(::testing::HasSubstr("strategy 'bad' left an illegal program in " + where + "()"),
                              ::testing::HasSubstr(why));
    };
    EXPECT_THAT(message_of_breaking(where, [](Program& p) { p.instructions[1].inputs[0] = 100'000; }), says("does not exist"));
    EXPECT_THAT(message_of_breaking(where, [](Program& p) { p.instructions[1].op = nullptr; }), says("no op"));
    EXPECT_THAT(message_of_breaking(where, [](Program& p) { p.instructions[1].tag.inserted_by = nullptr; }), says("inserted_by"));
    EXPECT_THAT(message_of_breaking(where, [](Program& p) { p.instructions[1].queue = Queue::communication(3); }), says("queue"));
    EXPECT_THAT(message_of_breaking(where, [](Program& p) { p.parameters[1].name = p.parameters[0].name; }),
                says("two parameters"));
    EXPECT_THAT(message_of_breaking(where, [](Program& p) { Builder(p).input("mask", DType::f32, {4}); }),
                says("nobody writes the input 'mask'"));
    EXPECT_THAT(message_of_breaking(where, add_margin), says("'margin' is a metric that no run records"));
  }
}

class BreakingModel final : public Architecture {
 public:
  std::function<void(Builder&)> what;
  ModelSizes sizes() const override { return model_.sizes(); }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double scale) const override {
    const TensorId loss = model_.build(b, ids, targets, scale);
    what(b);
    return loss;
  }
  std::string config_json() const override { return {}; }

 private:
  test::TinyModel model_;
};

TEST(Compile, WhatAModelOrAPrecisionBreaksIsRefusedWithItsName) {
  Case c(1);
  BreakingModel model;
  model.what = [](Builder& b) { b.parameter(b.program().parameters[0].name, {4}, 0, 1, true); };
  c.request.architecture = &model;
  c.request.model_name = "model 'bad'";
  const auto message = [&] {
    try {
      c.step();
    } catch (const ProgramError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(message(), ::testing::AllOf(::testing::HasSubstr("model 'bad' left an illegal program in build()"),
                                          ::testing::HasSubstr("two parameters are called")));
  model.what = [](Builder& b) { b.input("positions", DType::i32, {2, 4}); };
  EXPECT_THAT(message(), ::testing::HasSubstr("nobody writes the input 'positions'"));
  model.what = [](Builder& b) {
    const TensorId made =
        b.emit_one("cast", {b.program().parameters[0].tensor}, {{"dtype", std::string(name_of(DType::f32))}}, "margin");
    b.program()[made].role = Role::metric;
  };
  EXPECT_THAT(message(), ::testing::AllOf(::testing::HasSubstr("model 'bad'"),
                                          ::testing::HasSubstr("'margin' is a metric that no run records")));

  class BreakingPrecision final : public Precision {
   public:
    DTypes dtypes() const override { return {}; }
    void rewrite(Program& forward) const override { forward.instructions[0].outputs[0] = 12'345; }
    std::string describe() const override { return {}; }
    std::string peak() const override { return "fp32"; }
  } precision;
  model.what = [](Builder& /*builder*/) {};
  c.request.precision = &precision;
  c.request.precision_name = "precision 'bad'";
  EXPECT_THAT(message(), ::testing::HasSubstr("precision 'bad' left an illegal program in rewrite()"));
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
