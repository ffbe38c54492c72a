// The shapes and placements of an optimizer's states, and what is refused.
#include "core/passes/optimizer_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const OptimizerState rows("row", StateShape::rows), columns("column", StateShape::columns), one("sum", StateShape::scalar);

OptimizerState blocks_of(std::int64_t elements) {
  return {"scale", StateShape::blocks, DType::f32, elements};
}

TEST(OptimizerStates, ShapesFollowFromTheParameters) {
  EXPECT_EQ(shape_of("moment1", {6, 4}), (Shape{6, 4}));
  EXPECT_EQ(shape_of(rows, {6, 4}), (Shape{6}));
  EXPECT_EQ(shape_of(columns, {6, 4}), (Shape{4}));
  EXPECT_EQ(shape_of(rows, {3, 6, 4}), (Shape{3, 6}));
  EXPECT_EQ(shape_of(columns, {3, 6, 4}), (Shape{3, 4}));
  EXPECT_EQ(shape_of(one, {6, 4}), Shape{});
  EXPECT_EQ(shape_of(blocks_of(2), {6, 4}), (Shape{6, 2})) << "blocks fill rows";
  EXPECT_EQ(shape_of(blocks_of(5), {6, 4}), (Shape{5})) << "the last block has four elements";
  EXPECT_EQ(shape_of(blocks_of(8), {7}), (Shape{1}));
  EXPECT_THAT([] { shape_of(rows, {6}); }, ThrowsMessage<ProgramError>(HasSubstr("which is no matrix")));
  EXPECT_THAT([] { shape_of(blocks_of(0), {6}); }, ThrowsMessage<ProgramError>(HasSubstr("blocks of 0 elements")));
}

class StatePlacements : public ::testing::Test {
 protected:
  const Mesh mesh_{{{"data", 2}, {"tensor", 2}}};
  const OptimizerNames names_{"optimizer 'own'", [](int axis) { return std::string(axis == 0 ? "zero2" : "tp-sp"); }};

  std::string place(const OptimizerState& state, const Shape& shape, Placement data, Placement tensor) const {
    Tensor gradient{.shape = shape};
    gradient.placements[0] = data;
    gradient.placements[1] = tensor;
    const Placements placements = placements_of(state, "w", gradient, mesh_, names_);
    local_shape(shape_of(state, shape), placements, mesh_);  // throws where it does not divide
    return placements.text(mesh_);
  }
  static constexpr Placement replicated = Placement::replicate(), flat = Placement::flat();
  static constexpr Placement shard(int dim) { return Placement::shard(dim); }
};

TEST_F(StatePlacements, FollowThoseOfTheGradient) {
  EXPECT_EQ(place("moment1", {8, 4}, flat, shard(1)), "{data:F,tensor:S1}");
  EXPECT_EQ(place(one, {8, 4}, flat, shard(1)), "");
  EXPECT_EQ(place(rows, {8, 4}, flat, shard(0)), "{tensor:S0}");
  EXPECT_EQ(place(rows, {8, 4}, flat, shard(1)), "") << "ranks sum over the columns that they have";
  EXPECT_EQ(place(columns, {8, 4}, replicated, shard(1)), "{tensor:S0}");
  EXPECT_EQ(place(columns, {8, 4}, shard(0), shard(1)), "{tensor:S0}");
  EXPECT_EQ(place(columns, {2, 8, 4}, shard(0), shard(2)), "{data:S0,tensor:S1}");
  EXPECT_EQ(place(rows, {2, 8, 4}, shard(0), shard(2)), "{data:S0}");
}

TEST_F(StatePlacements, BlocksLieAsTheirElementsOrAreRefused) {
  EXPECT_EQ(place(blocks_of(2), {8, 4}, flat, shard(1)), "{data:F,tensor:S1}");
  EXPECT_EQ(place(blocks_of(4), {8, 4}, flat, shard(0)), "{data:F,tensor:S0}");
  EXPECT_EQ(place(blocks_of(5), {4, 5}, flat, shard(0)), "{data:F,tensor:S0}") << "a row each";
  EXPECT_EQ(place(blocks_of(5), {7, 3}, replicated, replicated), "");
  EXPECT_EQ(place(blocks_of(8), {4, 12}, replicated, shard(0)), "{tensor:S0}") << "a block of two rows' parts";
  const auto refused = [&](std::int64_t block, const Shape& shape, Placement data, Placement tensor, const char* strategy) {
    EXPECT_THAT([&] { place(blocks_of(block), shape, data, tensor); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr(std::string("optimizer 'own' with --strategy ") + strategy),
                                                HasSubstr("'scale' has one value for " + std::to_string(block)),
                                                HasSubstr("'w' " + shape.text()))));
  };
  refused(4, {8, 4}, replicated, shard(1), "tp-sp");
  refused(4, {3, 4}, flat, replicated, "zero2");  // six elements each
  refused(5, {6, 4}, flat, replicated, "zero2");  // twelve each
  refused(8, {12, 4}, replicated, shard(1), "tp-sp");
}

TEST(OptimizerStates, WhatAnOptimizerSaysOfThemIsChecked) {
  const auto refused = [](const std::vector<OptimizerState>& states, const std::vector<double>& evaluated, const char* why) {
    EXPECT_THAT([&] { check_states(states, evaluated, "w"); }, ThrowsMessage<ProgramError>(HasSubstr(why)));
  };
  EXPECT_NO_THROW(check_states({"moment1", rows}, {0.5, 0}, "w"));
  refused({"moment1", "moment1"}, {}, "nor there twice");
  refused({"master"}, {}, "nor \"master\"");
  refused({{"count", StateShape::scalar, DType::i32}}, {}, "cannot be i32");
  refused({"moment1"}, {1, 1}, "2 factors");
  refused({rows}, {1}, "which must be like the parameter");
  refused({{"codes", StateShape::like_parameter, DType::e4m3}}, {1}, "in f32 or bf16");
}

}  // namespace
}  // namespace consist
