#include "plugins/strategies/pipeline/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/rewrite.h"
#include "core/compile/compile.h"
#include "tests/program/tiny_model.h"

namespace consist::pipeline {
namespace {

using ::testing::ElementsAre;

std::vector<int> balanced_costs(const std::vector<double>& costs, int parts) {
  std::vector<Piece> pieces;
  for (double cost : costs) pieces.push_back({.cost = cost});
  return balanced(pieces, parts);
}

TEST(Balanced, CutsWhereTheLargestGroupIsSmallest) {
  EXPECT_THAT(balanced_costs({1, 1, 1, 1}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(balanced_costs({1, 1, 1, 1}, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(balanced_costs({1, 1, 1, 1, 4}, 2), ElementsAre(0, 0, 0, 0, 1));  // a heavy head takes layers from the last stage
  EXPECT_THAT(balanced_costs({5, 1, 1, 1}, 2), ElementsAre(0, 1, 1, 1));
}

TEST(Balanced, OfEqualCutsTheMostEven) {
  // The first stage must hold 4 either way; the others share what is left evenly.
  EXPECT_THAT(balanced_costs({4, 1, 1, 1, 1}, 3), ElementsAre(0, 1, 1, 2, 2));
}

TEST(Balanced, IsTheBestOfAllCuts) {
  const std::vector<double> costs{3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  for (int first = 1; first < 9; ++first) {
    for (int second = first + 1; second < 10; ++second) {
      const auto sum = [&](int a, int b) { return std::accumulate(costs.begin() + a, costs.begin() + b, 0.0); };
      const double largest = std::max({sum(0, first), sum(first, second), sum(second, 10)});
      const std::vector<int> group = balanced_costs(costs, 3);
      std::vector<double> sums(3, 0);
      for (std::size_t i = 0; i < costs.size(); ++i) sums[static_cast<std::size_t>(group[i])] += costs[i];
      EXPECT_LE(*std::max_element(sums.begin(), sums.end()), largest);
    }
  }
}

TEST(Balanced, LargeMessagesAreWorthMoreEvenStagesOnly) {
  // Cutting behind the second piece is the most even; a dear cut there is left for the next best.
  EXPECT_THAT(balanced({{2, 0.1, 0}, {1, 0.1, 0}, {3, 0, 0}}, 2), ElementsAre(0, 0, 1));
  EXPECT_THAT(balanced({{2, 0.1, 0}, {1, 2, 0}, {3, 0, 0}}, 2), ElementsAre(0, 1, 1));
}

TEST(Balanced, StagesThatBeginLaterGetLess) {
  std::vector<Piece> pieces(8, {.cost = 1});
  EXPECT_THAT(balanced(pieces, 2), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  for (Piece& piece : pieces) piece.lead = 0.5;  // five before three: 5 and 3 + 5 x 0.5
  EXPECT_THAT(balanced(pieces, 2), ElementsAre(0, 0, 0, 0, 0, 1, 1, 1));
}

TEST(Balanced, SlowRanksGetLess) {
  const std::vector<Piece> pieces(8, {.cost = 1});
  EXPECT_THAT(balanced(pieces, 2, {1, 1}), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(balanced(pieces, 2, {0.6, 1}), ElementsAre(0, 0, 0, 1, 1, 1, 1, 1));
  // Four stages of two ranks: the slow one has the first and the third.
  EXPECT_THAT(balanced(std::vector<Piece>(6, {.cost = 1}), 4, {0.5, 1}), ElementsAre(0, 1, 1, 2, 3, 3));
}

TEST(SpeedsOf, AreNumbersWithColonsBetweenThem) {
  EXPECT_THAT(speeds_of(""), ElementsAre());
  EXPECT_THAT(speeds_of("0.97:1:1.02"), ElementsAre(0.97, 1, 1.02));
  for (const char* text : {"fast", "1::2", "1:0", "-1:1", "1,2", "nan:1", "inf"})
    EXPECT_THROW(speeds_of(text), UsageError) << text;
}

Program forward_of(const test::TinyModel& model) {
  Program program;
  program.mesh = Mesh({{"pipeline", 8}});
  program.costs = std::make_shared<CostModel>(std::make_shared<Machine>(*find_machine("a100")), program.mesh);
  Builder builder(program);
  const TensorId ids = builder.input("ids", DType::i32, {2, 4}), targets = builder.input("targets", DType::i32, {2, 4});
  program.loss = model.build(builder, ids, targets, 1);
  return program;
}

TEST(AssignStages, EmbeddingIsFirstAndLossLast) {
  Program program = forward_of(test::TinyModel({.layers = 5}));
  assign_stages(program, 0, 3, Cut::layers, false);
  EXPECT_EQ(program.instructions.front().op->name(), "embedding");
  EXPECT_EQ(program.instructions.front().tag.stage, 0);
  EXPECT_EQ(program.instructions.back().op->name(), "lm_head_loss");
  EXPECT_EQ(program.instructions.back().tag.stage, 2);
  int stage = 0;
  for (const Instruction& i : program.instructions) {
    EXPECT_GE(i.tag.stage, stage) << "stages follow one another";
    stage = i.tag.stage;
  }
}

TEST(AssignStages, WithinLayersStagesAreMoreEven) {
  // One layer more than stages: whole layers leave one stage twice the work of the others.
  const auto largest = [](Cut cut) {
    Program program = forward_of(test::TinyModel({.layers = 5, .hidden = 64, .heads = 4, .head_dim = 16, .ffn = 256}));
    assign_stages(program, 0, 4, cut, false);
    std::vector<double> flops(4, 0);
    for (const Instruction& i : program.instructions)
      flops[static_cast<std::size_t>(i.tag.stage)] += i.op->cost(program, i).flops;
    return *std::max_element(flops.begin(), flops.end());
  };
  EXPECT_LT(largest(Cut::operators), largest(Cut::layers) * 0.8);
}

TEST(AssignStages, CountsWhatBackwardCosts) {
  Program program = forward_of(test::TinyModel({.layers = 6, .hidden = 64, .heads = 4, .head_dim = 16, .ffn = 256}));
  assign_stages(program, 0, 2, Cut::operators, false);
  Program step = propagate_shardings(program);
  differentiate(step, DType::f32);
  std::vector<double> seconds(2, 0);
  double longest = 0;  // of what lies between two places to cut
  for (const Instruction& i : step.instructions) {
    seconds[static_cast<std::size_t>(i.tag.stage)] += costs_of(step).seconds(step, i);
    longest = std::max(longest, costs_of(step).seconds(step, i));
  }
  EXPECT_NEAR(seconds[0], seconds[1], 6 * longest);
}

TEST(AssignStages, CostsAreOfTheDtypesThatTheProgramWillHave) {
  const auto of_dtype = [](DType dtype) {
    Program program = forward_of(test::TinyModel({.layers = 12, .hidden = 64, .heads = 4, .head_dim = 16, .ffn = 256}));
    for (const Parameter& p : program.parameters) program[p.tensor].dtype = dtype;
    return pieces_of(program, 0, Cut::layers, false);
  };
  const std::vector<Piece> narrow = of_dtype(DType::bf16), wide = of_dtype(DType::f32);
  ASSERT_EQ(narrow.size(), wide.size());
  for (std::size_t i = 0; i + 1 < narrow.size(); ++i) {
    EXPECT_LT(narrow[i].cost, wide[i].cost);
    EXPECT_LT(narrow[i].cut, wide[i].cut) << "what is sent has that dtype too";
  }
}

TEST(AssignStages, EveryStageHasParameters) {
  for (const Cut cut : {Cut::layers, Cut::operators}) {
    Program program = forward_of(test::TinyModel({.layers = 8}));
    assign_stages(program, 0, 8, cut, false);
    std::vector<int> used(8, 0);
    for (const Instruction& i : program.instructions) {
      for (const Parameter& p : program.parameters)
        used[static_cast<std::size_t>(i.tag.stage)] += static_cast<int>(std::count(i.inputs.begin(), i.inputs.end(), p.tensor));
    }
    EXPECT_THAT(used, ::testing::Each(::testing::Gt(0)));
  }
}

TEST(AssignStages, RefusesFewerLayersThanStages) {
  Program program = forward_of(test::TinyModel({.layers = 2}));
  try {
    assign_stages(program, 0, 3, Cut::layers, false);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("3 stages, but it has 2 layers"));
  }
}

}  // namespace
}  // namespace consist::pipeline
