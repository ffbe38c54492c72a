#include "core/passes/fuse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "consist/builder.h"
#include "consist/layers.h"
#include "core/program/verifier.h"

namespace consist {
namespace {

/// y = base(x) + up(low(x)), as an adapter makes it.
struct Adapted {
  Program program;
  TensorId x = no_tensor, up = no_tensor, base = no_tensor, low = no_tensor, product = no_tensor, sum = no_tensor;

  Adapted() {
    Builder b(program);
    x = b.input("x", DType::f32, {1, 4, 8});
    up = b.parameter("up", {6, 2}, 0, 0, true);
    base = layers::linear(b, x, b.parameter("base", {6, 8}, 0, 0, true), no_tensor, "y");
    low = layers::linear(b, x, b.parameter("low", {2, 8}, 0, 0, true), no_tensor, "low");
    product = layers::linear(b, low, up, no_tensor, "product");
  }
  void add() { sum = Builder(program).emit_one("add", {base, product}, {}, "sum"); }

  std::vector<std::string> ops() const {
    std::vector<std::string> names;
    for (const Instruction& i : program.instructions) names.emplace_back(i.op->name());
    return names;
  }
};

using Names = std::vector<std::string>;

TEST(FuseSums, AProductIsAddedByItsOwnInstruction) {
  Adapted a;
  a.add();
  fuse_sums(a.program);
  EXPECT_EQ(a.ops(), (Names{"linear", "linear", "linear"}));
  const Instruction& last = a.program.instructions.back();
  EXPECT_EQ(last.inputs, (std::vector{a.low, a.up, no_tensor, a.base}));
  EXPECT_EQ(last.outputs, std::vector{a.sum});
}

TEST(FuseSums, AProductThatOthersReadStays) {
  Adapted a;
  a.add();
  Builder(a.program).emit_one("scale", {a.product}, {{"factor", 2.0}}, "other");
  fuse_sums(a.program);
  EXPECT_EQ(a.ops(), (Names{"linear", "linear", "linear", "add", "scale"}));
}

TEST(FuseSums, AProductWhoseInputIsWrittenBeforeTheSumStays) {
  Adapted a;
  Builder b(a.program);
  b.emit_one("add", {a.low, b.input("more", DType::f32, {1, 4, 2})}, {}, "low, later");
  a.add();
  fuse_sums(a.program);
  EXPECT_EQ(a.ops(), (Names{"linear", "linear", "linear", "add", "add"}));
}

TEST(FuseSums, TwoProductsThatAreAddedKeepOneAsTheSum) {
  Adapted a;
  a.add();
  Builder b(a.program);
  const TensorId more = layers::linear(b, a.low, a.up, no_tensor, "more");
  b.emit_one("add", {a.sum, more}, {}, "all");
  fuse_sums(a.program);
  EXPECT_EQ(a.ops(), (Names{"linear", "linear", "linear", "linear"}));
}

TEST(FuseSums, ASumOfPairsStays) {
  Adapted a;
  Builder b(a.program);
  const TensorId other = b.input("other", DType::f32, {1, 4, 6}), more = b.input("more", DType::f32, {1, 4, 6});
  b.emit("add", {a.base, a.product, other, more}, {}, {"sum", "of others"});
  fuse_sums(a.program);
  EXPECT_EQ(a.ops(), (Names{"linear", "linear", "linear", "add"}));
}

}  // namespace
}  // namespace consist
