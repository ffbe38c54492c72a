// The rules of reduce, total and margins, and of map where an expression reads rows alone: types, and where the parts of tensors
// lie.
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
  EXPECT_THAT(refused_reduction(reduction("a", "mean"), {elements}),
              HasSubstr("'by' is 'mean', it must be sum, max or logsumexp"));
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

TEST(Reduce, RowsMayBeWithoutChannels) {
  const Op &reduce = registry().get("reduce"), &map = registry().get("map");
  const TensorType rows{DType::f32, {2, 6}}, targets{DType::i32, {2, 6}};
  Attributes squeezed = reduction("select(abs(channel-b[r]),0,a)");
  squeezed.set("squeeze", std::int64_t{1});
  EXPECT_EQ(reduce.infer({elements, targets}, squeezed), (Types{rows}));
  // The number of a channel is that of the whole row.
  const AxisSharding axis = placed_reduction(squeezed, {elements, targets}, {by_channels, unsharded});
  EXPECT_THAT(axis.inputs, ElementsAre(unsharded, unsharded));
  EXPECT_EQ(map.infer({elements, rows}, {{"f", std::string("a-b[r]")}}), (Types{elements}));
  Attributes columns = over_columns({{"f", std::string("a[r]*b[r]")}}, 8);
  columns.set("rank", std::int64_t{3});
  EXPECT_EQ(map.infer({rows, column}, columns), (Types{TensorType{DType::f32, elements.shape}}));
  AxisSharding of_rows{.inputs = {by_tokens, unsharded}, .outputs = {}};
  map.shard(of_rows, {rows, column}, columns);
  EXPECT_THAT(of_rows.inputs, ElementsAre(by_tokens, by_tokens));
  EXPECT_THAT(of_rows.outputs, ElementsAre(by_tokens));
}

TEST(Reduce, ATotalIsAScalarWhoseSummandsRanksHave) {
  const Op& total = registry().get("total");
  const TensorType rows{DType::f32, {2, 6}}, numbers{DType::f32, {3}};
  const Attributes weighed{{"f", std::string("a*b+c[2]")}};
  EXPECT_EQ(total.infer({rows, rows, numbers}, weighed), (Types{TensorType{DType::f32, {}}}));
  AxisSharding axis{.inputs = {by_tokens, unsharded, unsharded}, .outputs = {}};
  total.shard(axis, {rows, rows, numbers}, weighed);
  EXPECT_THAT(axis.inputs, ElementsAre(by_tokens, by_tokens, unsharded));
  EXPECT_THAT(axis.outputs, ElementsAre(sum_of_ranks));
  AxisSharding alone{.inputs = {unsharded}, .outputs = {}};
  total.shard(alone, {rows}, {{"f", std::string("a")}});
  EXPECT_THAT(alone.outputs, ElementsAre(unsharded));
  const auto refused = [&](const char* f, const Types& types) {
    try {
      total.infer(types, {{"f", std::string(f)}});
    } catch (const ProgramError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(refused("a+b[r]", {elements, rows}), HasSubstr("reads b by rows or channels"));
  EXPECT_THAT(refused("a*channel", {elements}), HasSubstr("over all channels"));
}

// Whatever part of a matrix a rank has: its sums are summands where others have more of the row or column.
TEST(Margins, OfPartsAreSummandsWhereOthersHaveMore) {
  const Op& margins = registry().get("margins");
  const TensorType matrix{DType::bf16, {6, 8}}, rows{DType::f32, {6}}, numbers{DType::f32, {3}};
  const Types types{matrix, rows, of_channels_type, numbers};
  const Attributes f{{"f", std::string("square(a)*b[r]*c[c]*d[2]")}};
  EXPECT_EQ(margins.infer(types, f), (Types{rows, of_channels_type}));
  EXPECT_EQ(margins.infer({elements}, {{"f", std::string("a")}}), (Types{TensorType{DType::f32, {2, 6}}, of_channels_type}));
  Attributes columns = f;
  columns.set("columns_only", std::int64_t{1});
  EXPECT_EQ(margins.infer(types, columns), (Types{std::nullopt, of_channels_type}));
  const auto placed = [&](Placement a) {
    AxisSharding axis{.inputs = {a, unsharded, unsharded, unsharded}, .outputs = {}};
    margins.shard(axis, types, f);
    return axis;
  };
  const Placement first = Placement::shard(0), second = Placement::shard(1), flat = Placement::flat();
  EXPECT_THAT(placed(first).inputs, ElementsAre(first, first, unsharded, unsharded));
  EXPECT_THAT(placed(first).outputs, ElementsAre(first, sum_of_ranks));
  EXPECT_THAT(placed(second).inputs, ElementsAre(second, unsharded, first, unsharded));
  EXPECT_THAT(placed(second).outputs, ElementsAre(sum_of_ranks, first));
  EXPECT_THAT(placed(flat).inputs, ElementsAre(flat, unsharded, unsharded, unsharded));
  EXPECT_THAT(placed(flat).outputs, ElementsAre(sum_of_ranks, sum_of_ranks));
  EXPECT_THAT(placed(unsharded).outputs, ElementsAre(unsharded, unsharded));
  EXPECT_THAT(placed(sum_of_ranks).inputs, ElementsAre(unsharded, unsharded, unsharded, unsharded)) << "squares of summands";
  for (const char* refused : {"a;a", "a*channel"})
    EXPECT_THROW(margins.infer({matrix}, {{"f", std::string(refused)}}), ProgramError);
  EXPECT_THROW(margins.infer({of_channels_type}, {{"f", std::string("a")}}), ProgramError);
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
