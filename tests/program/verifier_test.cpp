#include "core/program/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/layers.h"

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
  expect_error("used before it is defined");
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
