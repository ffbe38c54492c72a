// The rules of map, map_in_place and map_update_N: types, and where the parts of tensors lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "consist/map_update.h"
#include "consist/op.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TensorType whole{DType::f32, {2, 6, 8}}, channel{DType::f32, {8}}, row{DType::f32, {2, 6, 1}}, numbers{DType::f32, {3}};
constexpr Placement replicate = Placement::replicate(), partial = Placement::partial(), flat = Placement::flat();

Attributes expression(const char* f) {
  return {{"f", std::string(f)}};
}

AxisSharding placed(const char* op, const char* f, const Types& types, std::vector<Placement> inputs) {
  AxisSharding axis{.inputs = std::move(inputs), .outputs = {}};
  registry().get(op).shard(axis, types, expression(f));
  return axis;
}

std::string refusal(const char* op, const char* f, const Types& types) {
  try {
    registry().get(op).infer(types, expression(f));
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Map, SummandsStaySummandsWhereResultsAreProportionalToThem) {
  for (const char* f : {"2*a", "-a/4", "a*b", "select(b,a,-a)"}) {
    const bool two = std::string(f).find('b') != std::string::npos;
    const Types types(two ? 2 : 1, whole);
    std::vector<Placement> inputs{partial};
    if (two) inputs.push_back(replicate);
    EXPECT_THAT(placed("map", f, types, inputs).inputs[0], partial) << f;
    EXPECT_THAT(placed("map", f, types, inputs).outputs, ElementsAre(partial)) << f;
  }
  for (const char* f : {"a+1", "a*a", "tanh(a)", "max(a,0)", "2*a;a+1"}) {
    const AxisSharding axis = placed("map", f, {whole}, {partial});
    EXPECT_THAT(axis.inputs, ElementsAre(replicate)) << f << ": the sum must be there first";
    EXPECT_EQ(axis.outputs[0], replicate) << f;
  }
  EXPECT_THAT(placed("map", "a*b", {whole, whole}, {partial, partial}).inputs, ElementsAre(replicate, replicate));
  EXPECT_THAT(placed("map", "a*b", {whole, whole}, {partial, Placement::shard(1)}).inputs,
              ElementsAre(Placement::shard(1), Placement::shard(1)));
}

TEST(Map, InputsFollowTheDimensionThatIsSharded) {
  const Types types{whole, channel, row, numbers};
  const char* const f = "a*b[c]+c[r]*d[2]";
  const std::vector<Placement> none(4, replicate);
  const auto with = [&](Placement a) {
    std::vector<Placement> inputs = none;
    inputs[0] = a;
    return placed("map", f, types, inputs);
  };
  EXPECT_THAT(with(Placement::shard(1)).inputs, ElementsAre(Placement::shard(1), replicate, Placement::shard(1), replicate));
  EXPECT_THAT(with(Placement::shard(2)).inputs, ElementsAre(Placement::shard(2), Placement::shard(0), replicate, replicate));
  EXPECT_THAT(with(flat).inputs, ElementsAre(replicate, replicate, replicate, replicate)) << "a flat slice knows no channels";
  EXPECT_THAT(placed("map", "a*b[0]", {whole, numbers}, {flat, replicate}).outputs, ElementsAre(flat));
}

TEST(Map, RefusesOperandsByTheWayInWhichTheyAreRead) {
  EXPECT_THAT(refusal("map", "a+b", {whole}), HasSubstr("reads 2 inputs, there are 1"));
  EXPECT_THAT(refusal("map", "a+c", {whole, whole, whole}), HasSubstr("does not read b: leave the input out"));
  EXPECT_THAT(refusal("map", "a+b[c]+b", {whole, whole}), HasSubstr("reads b in two ways"));
  EXPECT_THAT(refusal("map", "a[c]", {channel}), HasSubstr("reads no input of the output's shape"));
  EXPECT_THAT(refusal("map", "a+b[c]", {whole, row}),
              HasSubstr("b has the shape [2,6,1], by the way in which it is read it must be [8]"));
  EXPECT_THAT(refusal("map", "a*b[3]", {whole, numbers}), HasSubstr("which has no element 3"));
  EXPECT_THAT(refusal("map", "a", {TensorType{DType::u8, {4}}}), HasSubstr("a is u8, it must be f32, bf16 or i32"));
  EXPECT_EQ(registry().get("map").infer({whole, channel}, expression("a*b[c];a")), (Types{whole, whole}));
}

TEST(MapInPlace, ReplacesItsFirstInputsWhereTheyLie) {
  const Types types{TensorType{DType::bf16, {6, 8}}, TensorType{DType::f32, {6, 8}}, TensorType{DType::f32, {6}}, channel,
                    numbers};
  const char* const f = "t0=b-c[r]*d[c]*e[2];t0;t0";
  const Op& op = registry().get("map_in_place");
  EXPECT_EQ(op.infer(types, expression(f)), (Types{types[0], types[1]}));
  EXPECT_EQ(op.updates_in_place(1), 1);
  const auto with = [&](Placement a) { return placed("map_in_place", f, types, {a, replicate, partial, replicate, replicate}); };
  EXPECT_THAT(with(Placement::shard(0)).inputs,
              ElementsAre(Placement::shard(0), Placement::shard(0), Placement::shard(0), replicate, replicate));
  EXPECT_THAT(with(Placement::shard(1)).inputs,
              ElementsAre(Placement::shard(1), Placement::shard(1), replicate, Placement::shard(0), replicate));
  EXPECT_THAT(with(flat).inputs, ElementsAre(flat, flat, replicate, replicate, replicate));
  EXPECT_THAT(with(flat).outputs, ElementsAre(flat, flat));
  EXPECT_THAT(with(replicate).inputs, ElementsAre(replicate, replicate, replicate, replicate, replicate));
}

TEST(MapInPlace, RefusesWhatCannotBeReplaced) {
  const TensorType matrix{DType::f32, {6, 8}}, rows{DType::f32, {6}};
  EXPECT_THAT(refusal("map_in_place", "a[c]+b", {channel, matrix}),
              HasSubstr("replaces a, which must be f32 or bf16 and be read as a"));
  EXPECT_THAT(refusal("map_in_place", "b;a", {matrix, rows}), HasSubstr("b has the shape [6]"));
  EXPECT_THAT(refusal("map_in_place", "a+channel", {matrix}), HasSubstr("map what depends on it first"));
  EXPECT_THAT(refusal("map_in_place", "a+b[b]", {matrix, rows}), HasSubstr("by blocks, which rules of map_update_N alone do"));
  EXPECT_THAT(refusal("map_in_place", "a", {TensorType{DType::i32, {4}}}), HasSubstr("must be f32 or bf16"));
  EXPECT_THROW(placed("map_in_place", "a+b[r]", {matrix, rows}, {flat, replicate}), ProgramError);
  EXPECT_THROW(placed("map_in_place", "a+b[r]", {matrix, rows}, {partial, replicate}), ProgramError);
}

TEST(MapUpdate, ScalarStatesAreKeptByEveryRank) {
  const TensorType w{DType::f32, {4, 8}}, scalar{DType::f32, {}};
  const Types types{numbers, scalar, w, w, std::nullopt, w, scalar};
  const char* const f = "a-c[0]*d[0]*b;e+b;f[0]+1";
  EXPECT_EQ(registry().get("map_update_2").infer(types, expression(f)), (Types{w, std::nullopt, w, scalar}));
  const AxisSharding axis = placed("map_update_2", f, types, {replicate, replicate, flat, flat, flat, flat, replicate});
  EXPECT_THAT(axis.inputs, ElementsAre(replicate, replicate, flat, flat, flat, flat, replicate));
  EXPECT_THAT(axis.outputs, ElementsAre(flat, flat, flat, replicate));
  EXPECT_THAT(refusal("map_update_2", "a;e", types),
              HasSubstr("has 2 results; an update of 2 states has one for the weight and one for each state"));
  EXPECT_THAT(refusal("map_update_2", "a;e;f[0]+b", types), HasSubstr("the result of a scalar state depends on elements"));
  EXPECT_THAT(refusal("map_update_2", "a;e;f", types), HasSubstr("a state must be like its parameter"));
}

TEST(MapUpdate, BlocksLieAsTheirElementsDo) {
  const TensorType w{DType::f32, {4, 8}}, codes{DType::e4m3, {4, 8}}, scales{DType::f32, {4, 2}}, scalar{DType::f32, {}};
  const Types types{numbers, scalar, w, w, w, codes, scales};
  const Op& op = registry().get("map_update_2");
  const auto rule = [](const char* f, const char* largest, std::int64_t block) {
    return Attributes{{"f", std::string(f)}, {"largest", std::string(largest)}, {"block", block}};
  };
  const char *const f = "a-c[0]*b;e/g[b];g[b]", *const largest = "abs(f[b]*e+b)";
  EXPECT_EQ(op.infer(types, rule(f, largest, 4)), (Types{w, w, codes, scales}));
  AxisSharding axis{.inputs = {replicate, replicate, replicate, replicate, replicate, flat, flat}, .outputs = {}};
  op.shard(axis, types, rule(f, largest, 4));
  EXPECT_THAT(axis.inputs, ElementsAre(replicate, replicate, flat, flat, flat, flat, flat));
  EXPECT_THAT(axis.outputs, ElementsAre(flat, flat, flat, flat));
  const auto refused = [&](const Attributes& attributes, const Types& in) {
    try {
      op.infer(in, attributes);
    } catch (const ProgramError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(refused(expression("a;e;f[b]"), types), HasSubstr("'block' must be there"));
  EXPECT_THAT(refused(rule(f, largest, 3), types), HasSubstr("rows of a rule of blocks must be multiples of 'block'"));
  EXPECT_THAT(refused(rule(f, largest, 2), types), HasSubstr("one value for each block of a row"));
  EXPECT_THAT(refused(rule("a;e/g;f[b]", largest, 4), types), HasSubstr("the largest of a block is read as g[b]"));
  EXPECT_THAT(refused(rule("a;e;f[b]*e", largest, 4), types), HasSubstr("the result of a block state depends on elements"));
  EXPECT_THAT(refused(rule(f, "f[b]*e[b]", 4), types), HasSubstr("reads e where it has no element"));
  EXPECT_THAT(refused(rule("a;e;h[b]*f[b]", largest, 4), types), HasSubstr("has the inputs a to g"));
  EXPECT_THAT(refused(rule(f, "f[b]*e*g[b]", 4), types), HasSubstr("has the inputs a to f"));
  EXPECT_THAT(refused(rule(f, largest, 4), {numbers, scalar, w, w, w, codes, TensorType{DType::e4m3, {4, 2}}}),
              HasSubstr("must be f32 or bf16"));
  EXPECT_THAT(refused(rule(f, largest, 4), {numbers, scalar, w, w, w, TensorType{DType::u8, {4, 8}}, scales}),
              HasSubstr("must be f32, bf16, e4m3 or e5m2"));
}

TEST(MapUpdate, ReadsNoElementThatIsNotThere) {
  const TensorType w{DType::f32, {4, 8}}, scalar{DType::f32, {}};
  const Types types{numbers, scalar, w, w, std::nullopt, w};
  EXPECT_EQ(registry().get("map_update_1").infer(types, expression("a-c[2]*d[0]*e;e")), (Types{w, std::nullopt, w}));
  EXPECT_THAT(refusal("map_update_1", "a-c[3]*b;e", types), HasSubstr("the scalars are c[0] to c[2]"));
  EXPECT_THAT(refusal("map_update_1", "a-c*b;e", types), HasSubstr("reads c where it has no element"));
  EXPECT_THAT(refusal("map_update_1", "a-d*b;e", types), HasSubstr("the factor that clips is d[0]"));
  EXPECT_THAT(refusal("map_update_1", "a-b[r];e", types), HasSubstr("it is read as b"));
  EXPECT_THAT(refusal("map_update_1", "a-e[0];e", types), HasSubstr("and as e[0] if it is a scalar"));
  EXPECT_THAT(refusal("map_update_1", "a-f;e", types), HasSubstr("reads f; an update of 1 states has the inputs a to e"));
}

}  // namespace
}  // namespace consist
