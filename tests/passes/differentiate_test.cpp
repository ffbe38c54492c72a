// The instructions of gradients that several readers of a tensor contribute to.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "consist/builder.h"
#include "consist/expression.h"
#include "consist/layers.h"
#include "consist/rewrite.h"

namespace consist {
namespace {

struct Trained {
  Program program;
  Builder b{program};
  TensorId x = b.input("x", DType::f32, {2, 3, 4});
  TensorId weight = b.parameter("weight", {11, 4}, 0, 1, true);
  TensorId logits = layers::linear(b, x, weight, no_tensor, "logits");
  TensorId targets = b.input("targets", DType::i32, {2, 3});

  void finish(TensorId rows) {
    program.loss = layers::total(b, "a", {rows}, "loss");
    differentiate(program, DType::f32);
  }
  std::ptrdiff_t count(std::string_view op) const {
    return std::ranges::count_if(program.instructions, [&](const Instruction& i) { return i.op->name() == op; });
  }
  /// The instructions that make gradients of the logits.
  std::vector<Instruction> of_logits() const {
    std::vector<Instruction> found;
    for (const Instruction& i : program.instructions) {
      if (i.tag.phase == Phase::backward && program[i.outputs[0]].shape == program[logits].shape) found.push_back(i);
    }
    return found;
  }
};

// In bf16 the parts of the target and of the softmax, each rounded, would cancel where the model is nearly certain.
TEST(Differentiate, TheGradientOfALogitIsMadeAtOnce) {
  Trained t;
  const TensorId likely = layers::log_probability(t.b, t.logits, t.targets, "likely");
  const TensorId z = layers::reduce_rows(t.b, layers::Reduction::logsumexp, "0.5*a", {t.logits}, "z");
  t.finish(layers::map(t.b, "-a+0.01*b*b", {likely, z}, "rows"));
  const std::vector<Instruction> made = t.of_logits();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].op->name(), "map");
  EXPECT_EQ(made[0].inputs.size(), std::set<TensorId>(made[0].inputs.begin(), made[0].inputs.end()).size());
  EXPECT_EQ(t.count("add"), 0);
}

// Sums of which an expression would read more than it may, or take more steps, are added.
TEST(Differentiate, TooLongASumIsAdded) {
  Trained t;
  std::string sum = "0";
  std::vector<TensorId> rows;
  for (int k = 0; k < 7; ++k) {
    const std::string factor = "0." + std::to_string(k + 1);
    rows.push_back(layers::reduce_rows(t.b, layers::Reduction::logsumexp, factor + "*a", {t.logits}, "z" + factor));
    sum += "+" + std::string(1, static_cast<char>('a' + k));
  }
  t.finish(layers::map(t.b, sum, rows, "rows"));
  EXPECT_GT(t.count("add"), 0);
  for (const Instruction& i : t.of_logits()) EXPECT_LE(i.inputs.size(), static_cast<std::size_t>(Expressions::max_inputs));
}

}  // namespace
}  // namespace consist
