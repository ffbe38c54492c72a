// The rules of reduce, and of map where an expression reads rows alone: types, and where the parts of tensors lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "consist/op.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TensorType elements{DType::bf16, {2, 6, 8}}, of_channels_type{DType::f32, {8}}, column{DType::f32, {2, 6, 1}};
constexpr Placement unsharded = Placement::replicate(), sum_of_ranks = Placement::partial(), by_channels = Placement::shard(2),
                    by_tokens = Placement::shard(1);

Attributes reduction(const char* f, const char* by = "sum") {
  return {{"f", std::string(f)}, {"by", std::string(by)}};
}
Attributes over_columns(Attributes attributes, std::int64_t columns) {
  attributes.set("columns", columns);
  return attributes;
}
AxisSharding placed_reduction(const Attributes& attributes, const Types& types, std::vector<Placement> inputs) {
  AxisSharding axis{.inputs = std::move(inputs), .outputs = {}};
  registry().get("reduce").shard(axis, types, attributes);
  return axis;
}
std::string refused_reduction(const Attributes& attributes, const Types& types) {
  try {
    registry().get("reduce").infer(types, attributes);
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Reduce, MakesAColumn) {
  const Op& reduce = registry().get("reduce");
  EXPECT_EQ(reduce.infer({elements, of_channels_type, column}, reduction("a*b[c]+c[r]")), (Types{column}));
  Attributes narrow = over_columns(reduction("2*a[r]"), 8);
  narrow.set("dtype", std::string("bf16"));
  EXPECT_EQ(reduce.infer({column}, narrow), (Types{TensorType{DType::bf16, column.shape}}));
}

TEST(Reduce, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(refused_reduction(reduction("a", "mean"), {elements}), HasSubstr("'by' is 'mean', it must be sum or max"));
  EXPECT_THAT(refused_reduction(reduction("a;2*a"), {elements}), HasSubstr("has 2 results, it must have one"));
  EXPECT_THAT(refused_reduction(reduction("a[r]"), {column}), HasSubstr("reads no input of the output's shape"));
  EXPECT_THAT(refused_reduction(over_columns(reduction("a"), 8), {elements}), HasSubstr("reads no input of the output's shape"));
  EXPECT_THAT(refused_reduction(over_columns(reduction("a+b[r]"), 8), {elements, column}), HasSubstr("leave 'columns' out"));
  EXPECT_THAT(refused_reduction(reduction("a+b[r]"), {elements, elements}), HasSubstr("b has the shape"));
}

TEST(Reduce, ShardedChannelsGiveSummandsOfASumAndNoLargest) {
  const Types types{elements, column};
  const AxisSharding sum = placed_reduction(reduction("a+b[r]"), types, {by_channels, unsharded});
  EXPECT_THAT(sum.inputs, ElementsAre(by_channels, unsharded));
  EXPECT_THAT(sum.outputs, ElementsAre(sum_of_ranks));
  const AxisSharding most = placed_reduction(reduction("a+b[r]", "max"), types, {by_channels, unsharded});
  EXPECT_THAT(most.inputs, ElementsAre(unsharded, unsharded));
  EXPECT_THAT(most.outputs, ElementsAre(unsharded));
  const AxisSharding tokens = placed_reduction(reduction("a+b[r]", "max"), types, {by_tokens, unsharded});
  EXPECT_THAT(tokens.inputs, ElementsAre(by_tokens, by_tokens));
  EXPECT_THAT(tokens.outputs, ElementsAre(by_tokens));
  EXPECT_THAT(placed_reduction(reduction("a"), {elements}, {Placement::flat()}).inputs, ElementsAre(unsharded));
}

TEST(Reduce, SummandsStaySummandsOfASum) {
  EXPECT_THAT(placed_reduction(reduction("2*a"), {elements}, {sum_of_ranks}).outputs, ElementsAre(sum_of_ranks));
  EXPECT_THAT(placed_reduction(reduction("a*a"), {elements}, {sum_of_ranks}).inputs, ElementsAre(unsharded));
  EXPECT_THAT(placed_reduction(reduction("2*a", "max"), {elements}, {sum_of_ranks}).inputs, ElementsAre(unsharded));
}

TEST(Reduce, MapSpreadsAColumnOverChannels) {
  const Op& map = registry().get("map");
  Attributes attributes = over_columns({{"f", std::string("2*a[r]")}}, 8);
  EXPECT_EQ(map.infer({column}, attributes), (Types{TensorType{DType::f32, elements.shape}}));
  AxisSharding axis{.inputs = {by_tokens}, .outputs = {}};
  map.shard(axis, {column}, attributes);
  EXPECT_THAT(axis.inputs, ElementsAre(by_tokens));
  EXPECT_THAT(axis.outputs, ElementsAre(by_tokens));
}

}  // namespace
}  // namespace consist
