// The rules of split and concat: types, and where the parts of tensors lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "consist/head_parts.h"
#include "consist/op.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorType of_channels(std::int64_t channels, DType dtype = DType::f32) {
  return {dtype, {2, 6, channels}};
}
Attributes in_parts(const char* parts) {
  return {{"parts", std::string(parts)}};
}
AxisSharding placed_parts(const char* op, const char* parts, const Types& types, std::vector<Placement> inputs) {
  AxisSharding axis{.inputs = std::move(inputs), .outputs = {}};
  registry().get(op).shard(axis, types, in_parts(parts));
  return axis;
}
std::string refused_parts(const char* op, const char* parts, const Types& types) {
  try {
    registry().get(op).infer(types, in_parts(parts));
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "nothing was refused";
}

constexpr Placement whole_everywhere = Placement::replicate(), summand = Placement::partial(), tokens = Placement::shard(1),
                    heads = Placement::shard(2);

TEST(Split, TypesFollowFromTheParts) {
  const Op &split = registry().get("split"), &concat = registry().get("concat");
  EXPECT_EQ(split.infer({of_channels(24)}, in_parts("5,3")), (Types{of_channels(15), of_channels(9)}));
  EXPECT_EQ(split.infer({of_channels(24)}, in_parts("5,3*")), (Types{of_channels(15), of_channels(3)}));
  EXPECT_EQ(concat.infer({of_channels(15), of_channels(3)}, in_parts("5,3*")), (Types{of_channels(24)}));
  EXPECT_EQ(concat.infer({std::nullopt, of_channels(9)}, in_parts("5,3")), (Types{of_channels(24)}));
}

TEST(Split, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(refused_parts("split", "5,3", {of_channels(20)}), HasSubstr("x has 20 channels, which are no whole heads of 8"));
  EXPECT_THAT(refused_parts("split", "5,3", {of_channels(8, DType::i32)}), HasSubstr("must be f32 or bf16"));
  EXPECT_THAT(refused_parts("concat", "5,3", {of_channels(15), of_channels(6)}),
              HasSubstr("input 1 is f32[2,6,6], it must be f32[2,6,9]"));
  EXPECT_THAT(refused_parts("concat", "5,3", {of_channels(15)}), HasSubstr("an input for each part"));
  EXPECT_THAT(refused_parts("concat", "5,3*", {std::nullopt, of_channels(3)}), HasSubstr("no part of each head's own is given"));
  for (const char* text : {"", "5,", "5;3", "x", "5*,3", "5**"})
    EXPECT_THAT(refused_parts("split", text, {of_channels(8)}), HasSubstr("it must be numbers of channels")) << text;
  EXPECT_THAT(refused_parts("split", "8*", {of_channels(8)}), HasSubstr("at least one that is not shared"));
  EXPECT_THAT(refused_parts("split", "8,0", {of_channels(8)}), HasSubstr("must have at least 1"));
  EXPECT_THAT(refused_parts("split", "1,1,1,1,1,1,1,1,1", {of_channels(9)}), HasSubstr("at most 8"));
  EXPECT_EQ(HeadParts::parse("5,3,2*").text(), "5,3,2*");
}

TEST(Split, HeadsAreShardedAndTheirPartsWithThem) {
  AxisSharding axis = placed_parts("split", "5,3*", {of_channels(24)}, {heads});
  EXPECT_THAT(axis.inputs, ElementsAre(heads));
  EXPECT_THAT(axis.outputs, ElementsAre(heads, summand)) << "each rank has the sum over its heads";
  axis = placed_parts("concat", "5,3*", {of_channels(15), of_channels(3)}, {heads, tokens});
  EXPECT_THAT(axis.inputs, ElementsAre(heads, whole_everywhere)) << "each rank reads all that its heads share";
  EXPECT_THAT(axis.outputs, ElementsAre(heads));
  axis = placed_parts("concat", "5,3*", {of_channels(15), of_channels(3)}, {tokens, heads});
  EXPECT_THAT(axis.inputs, ElementsAre(tokens, tokens)) << "shared channels are no heads";
}

TEST(Split, AHeadIsNotDivided) {
  EXPECT_THAT(placed_parts("split", "5,3", {of_channels(8)}, {heads}).inputs, ElementsAre(whole_everywhere));
  EXPECT_THAT(placed_parts("concat", "5,3", {of_channels(5), of_channels(3)}, {heads, heads}).outputs,
              ElementsAre(whole_everywhere));
  EXPECT_THAT(placed_parts("split", "5,3", {of_channels(24)}, {Placement::flat()}).inputs, ElementsAre(whole_everywhere));
}

TEST(Split, SummandsStaySummandsIfAllAre) {
  EXPECT_THAT(placed_parts("split", "5,3*", {of_channels(24)}, {summand}).outputs, ElementsAre(summand, summand));
  const Types types{of_channels(15), of_channels(3)};
  EXPECT_THAT(placed_parts("concat", "5,3*", types, {summand, summand}).outputs, ElementsAre(summand));
  const AxisSharding axis = placed_parts("concat", "5,3*", types, {summand, whole_everywhere});
  EXPECT_THAT(axis.inputs, ElementsAre(whole_everywhere, whole_everywhere)) << "the sum must be there first";
  EXPECT_THAT(axis.outputs, ElementsAre(whole_everywhere));
}

}  // namespace
}  // namespace consist
