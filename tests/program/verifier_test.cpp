#include "core/program/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/layers.h"
#include "core/cost/collective_stream.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

/// y = add(a, b) twice, so that there is an update in place to get wrong.
struct Fixture : ::testing::Test {
  Program program;
  Builder b{program};
  TensorId x = b.input("x", DType::f32, {2, 3, 4});
  TensorId w = b.parameter("w", {5, 4}, 0, 1, true);
  TensorId y = layers::linear(b, x, w, no_tensor, "y");
  TensorId z = layers::linear(b, x, w, no_tensor, "z");
  TensorId sum = b.emit_one("add", {y, z}, {}, "sum");

  void expect_error(const char* text) const {
    try {
      verify(program);
      FAIL() << "expected an error with: " << text;
    } catch (const ProgramError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
};

TEST_F(Fixture, AcceptsALegalProgram) {
  EXPECT_NO_THROW(verify(program));
}

TEST_F(Fixture, RefusesUseBeforeDefinition) {
  std::swap(program.instructions[0], program.instructions[2]);
  expect_error("used before it is defined; instruction ");
}

TEST_F(Fixture, RefusesDoubleDefinition) {
  program.instructions.push_back(program.instructions[1]);
  expect_error("defined twice");
}

TEST_F(Fixture, RefusesReadOfAnOverwrittenValue) {
  b.emit_one("swiglu", {y, z}, {}, "late");  // y's bytes hold the sum by now
  expect_error("read after it was overwritten in place");
}

TEST_F(Fixture, RefusesWrongTypes) {
  program[y].dtype = DType::i32;
  expect_error("must be f32[2,3,5]");
}

TEST_F(Fixture, RefusesAViewOutsideOfItsStorage) {
  program[sum].offset = 4;
  expect_error("does not lie inside its storage");
}

TEST_F(Fixture, RefusesAWaitForALaterInstruction) {
  program.instructions[0].waits = {1};
  expect_error("which is not before it");
}

TEST_F(Fixture, RefusesPlacementsThatTheOpDoesNotMake) {
  program.mesh = Mesh({{"data", 2}});
  program[x].placements[0] = Placement::shard(0);
  expect_error("does not lie on axis 'data'");
}

TEST_F(Fixture, RefusesIdsThatDoNotExist) {
  for (const TensorId wrong : {-7, 1000}) {
    Program whole = program;
    program.instructions[0].inputs[0] = wrong;
    expect_error("input 0 does not exist");
    program = whole;
    program.instructions[2].outputs[0] = wrong;
    expect_error("output 0 does not exist");
    program = whole;
    program.parameters[0].gradient = wrong;
    expect_error("its gradient, %");
    program = whole;
    program.loss = wrong;
    expect_error("the loss does not exist");
    program = whole;
    program[sum].storage = wrong;
    expect_error("its storage does not exist");
    program = whole;
    EXPECT_THROW(b.emit("add", {wrong, y}), ProgramError);
    EXPECT_THROW(b.reshard({wrong}, 0, Placement::replicate()), ProgramError);
    program = whole;
  }
}

TEST_F(Fixture, RefusesInstructionsWithoutAnOpATagOrAQueue) {
  const Program whole = program;
  program.instructions[1].op = nullptr;
  expect_error("instruction 1: it has no op");
  program = whole;
  program.instructions[1].tag.inserted_by = nullptr;
  expect_error("inserted_by is null");
  program = whole;
  program.instructions[1].queue = Queue::communication(60);
  expect_error("queue");
  program = whole;
  program.instructions[1].queue = Queue::communication(0);  // a mesh without axes
  expect_error("the mesh has 0");
}

TEST_F(Fixture, RefusesTwoParametersOrStatesOfOneName) {
  const Program whole = program;
  b.parameter("w", {5, 4}, 0, 1, true);
  expect_error("two parameters are called 'w'");
  program = whole;
  b.state("sum", DType::f32, {2}, {});
  b.state("sum", DType::f32, {2}, {});
  expect_error("two states are called 'sum'");
}

TEST_F(Fixture, RefusesAStateThatIsAPartialSumUnlessItIsEachRanksOwn) {
  program.mesh = Mesh({{"data", 2}});
  Placements partial;
  partial[0] = Placement::partial();
  b.state("own", DType::f32, {2}, partial, StateKind::per_rank);
  EXPECT_NO_THROW(verify(program));
  b.state("sum", DType::f32, {2}, partial);
  expect_error("the state 'sum' is a partial sum on axis 'data'");
}

TEST_F(Fixture, RefusesShapesThatHoldNothing) {
  b.state("nothing", DType::f32, {2, 0}, {});
  expect_error("holds nothing");
}

TEST_F(Fixture, RefusesPlacesBeyondAnyMachine) {
  b.state("far", DType::f32, {2, 4}, {});
  Tensor& far = program.tensors.back();
  far.row_stride = std::int64_t{1} << 61;  // times the size of an element it is no number of 64 bits any more
  expect_error("puts its rows further apart than any machine holds");
  far.row_stride = 0;
  far.offset = std::int64_t{1} << 62;
  expect_error("lies outside of any machine");
}

TEST(Verify, RefusesHalfAHeadPerRank) {
  for (const std::int64_t kv_heads : {2, 4}) {
    Program program;
    program.mesh = Mesh({{"tensor", 4}});
    Builder b(program);
    Placements heads;
    heads[0] = Placement::shard(2);
    // 4 heads of 8 channels over 4 ranks; k and v have a head each, or half a one.
    const TensorId q = b.input("q", DType::f32, {1, 3, 32}, heads);
    const TensorId k = b.input("k", DType::f32, {1, 3, 8 * kv_heads}, heads),
                   v = b.input("v", DType::f32, {1, 3, 8 * kv_heads}, heads);
    layers::attention(b, q, k, v, 8, "a");
    if (kv_heads == 4) {
      EXPECT_NO_THROW(verify(program));
      continue;
    }
    try {
      verify(program);
      FAIL();
    } catch (const ProgramError& error) {
      EXPECT_THAT(error.what(), HasSubstr("a rank holds 4 channels of 'k', which are no whole heads of 8"));
    }
  }
}

TEST(Ops, RefuseSizesThatTheirKernelsWouldDivideBy) {
  Program program;
  Builder b(program);
  const TensorId q = b.input("q", DType::f32, {1, 3, 16}), none = b.input("k", DType::f32, {1, 3, 0});
  EXPECT_THROW(layers::attention(b, q, none, none, 8, "a"), ProgramError);
  const TensorId short_q = b.input("x", DType::f32, {1, 0, 16}), table = b.input("table", DType::f32, {0, 8});
  EXPECT_THROW(layers::rope(b, short_q, table, no_tensor, 8, 1e-6, "r"), ProgramError);
}

TEST(Ops, AttentionHasTheAttributesOfItsScoresOnlyWhereTheyAreNotTheDefault) {
  Program program;
  Builder b(program);
  const TensorId q = b.input("q", DType::f32, {1, 3, 16});
  layers::attention(b, q, q, q, 4, "plain", 0, no_tensor, {.scale = 0.5});
  EXPECT_FALSE(program.instructions.back().attributes.has("scale"));
  EXPECT_FALSE(program.instructions.back().attributes.has("cap"));
  layers::attention(b, q, q, q, 4, "capped", 0, no_tensor, {.scale = 0.25, .cap = 50});
  EXPECT_EQ(program.instructions.back().attributes.real("scale"), 0.25);
  EXPECT_EQ(program.instructions.back().attributes.real("cap"), 50);
}

TEST(Ops, AttentionHasTheValuesSizeWhereItIsAnother) {
  Program program;
  Builder b(program);
  const TensorId q = b.input("q", DType::f32, {1, 3, 24}), k = b.input("k", DType::f32, {1, 3, 12}),
                 v = b.input("v", DType::f32, {1, 3, 8}), odd = b.input("odd", DType::f32, {1, 3, 9});
  const TensorId o = layers::attention(b, q, k, v, 6, "o");
  EXPECT_EQ(program.instructions.back().attributes.integer("value_dim"), 4);
  EXPECT_EQ(program[o].shape, (Shape{1, 3, 16}));
  EXPECT_NO_THROW(verify(program));
  const Instruction& latent = program.instructions.back();
  EXPECT_DOUBLE_EQ(latent.op->cost(program, latent).flops, 72 * 3 * (1 + 4.0 / 6));  // half of the keys, on average
  layers::attention(b, q, k, k, 6, "plain");
  EXPECT_DOUBLE_EQ(program.instructions.back().op->cost(program, program.instructions.back()).flops, 72 * 3 * 2);
  EXPECT_FALSE(program.instructions.back().attributes.has("value_dim"));
  EXPECT_THROW(layers::attention(b, q, k, odd, 6, "a"), ProgramError);
}

TEST(Ops, AttentionRefusesScoresThatAreNone) {
  Program program;
  Builder b(program);
  const TensorId q = b.input("q", DType::f32, {1, 3, 16});
  EXPECT_THROW(layers::attention(b, q, q, q, 4, "a", 0, no_tensor, {.scale = -1}), UsageError);
  EXPECT_THROW(layers::attention(b, q, q, q, 4, "a", 0, no_tensor, {.cap = std::nan("")}), UsageError);
  const auto refusal = [&](std::string_view name, double value) -> std::string {
    try {
      b.emit("attention", {q, q, q}, {{"head_dim", std::int64_t{4}}, {std::string(name), value}}, {"o", "lse"});
    } catch (const ProgramError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("scale", 0.0), HasSubstr("scale must be above 0 and finite"));
  EXPECT_THAT(refusal("cap", 0.0), HasSubstr("cap must be above 0 and finite"));
  EXPECT_THAT(refusal("cap", std::numeric_limits<double>::infinity()), HasSubstr("cap must be above 0 and finite"));
}

TEST(Builder, NamesTheOpAndTheReason) {
  Program program;
  Builder b(program);
  const TensorId x = b.input("x", DType::f32, {2, 3, 4});
  const TensorId w = b.parameter("w", {5, 7}, 0, 1, true);
  EXPECT_THROW(layers::linear(b, x, w, no_tensor, "y"), ProgramError);
  EXPECT_THROW(b.emit("no_such_op", {x}), ProgramError);
}

/// Two ranks; each tensor is a partial sum over the axis.
Program two_collectives(bool swapped, std::int64_t first_extent = 8) {
  Program program;
  program.mesh = Mesh({{"data", 2}});
  Builder b(program);
  Placements partial;
  partial[0] = Placement::partial();
  const TensorId a = b.input("a", DType::f32, {first_extent}, partial);
  const TensorId c = b.input("c", DType::f32, {4}, partial);
  b.all_reduce({swapped ? c : a}, 0);
  b.all_reduce({swapped ? a : c}, 0);
  return program;
}

TEST(VerifyCollectives, AcceptsEqualOrders) {
  const Program p = two_collectives(false);
  const Program* ranks[] = {&p, &p};
  EXPECT_NO_THROW(verify_collectives(ranks));
}

// The bytes of a message are those of the inputs that are there.
TEST(VerifyCollectives, TakesACollectiveWithAnAbsentInput) {
  Program p = two_collectives(false);
  p.instructions[0].inputs.push_back(no_tensor);
  const Program* ranks[] = {&p, &p};
  EXPECT_NO_THROW(verify_collectives(ranks));
  EXPECT_THROW(verify(p), ProgramError);  // all_reduce has no optional inputs, and says so
}

TEST(VerifyCollectives, RefusesSwappedOrders) {
  const Program p = two_collectives(false), q = two_collectives(true);
  const Program* ranks[] = {&p, &q};
  EXPECT_THROW(verify_collectives(ranks), ProgramError);
}

TEST(VerifyCollectives, RefusesACollectiveThatOneRankLacks) {
  Program p = two_collectives(false), q = p;
  q.instructions.pop_back();
  const Program* ranks[] = {&p, &q};
  try {
    verify_collectives(ranks);
    FAIL();
  } catch (const ProgramError& error) {
    EXPECT_THAT(error.what(), HasSubstr("block each other"));
    EXPECT_THAT(error.what(), HasSubstr("rank 0"));
  }
}

TEST(VerifyCollectives, RefusesACycleThroughTwoQueues) {
  // Rank 0 reduces over `a` before `b`, rank 1 the other way round, each on queues of their own tied together by waits.
  Program base;
  base.mesh = Mesh({{"a", 2}, {"b", 2}});
  Builder b(base);
  Placements on_a, on_b;
  on_a[0] = Placement::partial();
  on_b[1] = Placement::partial();
  const TensorId x = b.input("x", DType::f32, {4}, on_a);
  const TensorId y = b.input("y", DType::f32, {4}, on_b);
  Program forward = base, backward = base;
  Builder(forward).all_reduce({x}, 0);
  Builder(forward).all_reduce({y}, 1);
  forward.instructions[1].waits = {0};
  Builder(backward).all_reduce({y}, 1);
  Builder(backward).all_reduce({x}, 0);
  backward.instructions[1].waits = {0};
  const Program* same[] = {&forward, &forward, &forward, &forward};
  EXPECT_NO_THROW(verify_collectives(same));
  const Program* crossed[] = {&forward, &backward, &backward, &forward};
  EXPECT_THROW(verify_collectives(crossed), ProgramError);
}

}  // namespace
}  // namespace consist
