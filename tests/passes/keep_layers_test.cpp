// keep_layers(): what is left is the model with fewer layers.
#include "core/passes/keep_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "consist/builder.h"
#include "consist/layers.h"
#include "core/program/printer.h"

namespace consist {
namespace {

/// Layers of one linear each, as wide as `widths` say; each also reads what is in front of them.
Program stack(const std::vector<std::int64_t>& widths) {
  Program program;
  Builder b(program);
  const TensorId ids = b.input("ids", DType::i32, {1, 4}), targets = b.input("targets", DType::i32, {1, 4});
  const TensorId first = layers::embedding(b, ids, b.parameter("table", {16, 8}, 0, 1, true), "table");
  TensorId x = first;
  for (std::size_t layer = 0; layer < widths.size(); ++layer) {
    b.tag.layer = static_cast<std::int16_t>(layer);
    const std::string name = "layers." + std::to_string(layer);
    const TensorId up = layers::linear(b, x, b.parameter(name + ".up", {widths[layer], 8}, 0, 1, true), no_tensor, name + ".up");
    const TensorId down =
        layers::linear(b, up, b.parameter(name + ".down", {8, widths[layer]}, 0, 1, true), no_tensor, name + ".down");
    x = b.emit_one("add", {down, first}, {}, name);
  }
  b.tag.layer = -1;
  program.loss = layers::lm_head_loss(b, x, b.parameter("head", {16, 8}, 0, 1, true), targets, 1, "loss");
  return program;
}

std::string text(const Program& program) {
  std::string all;
  for (const Instruction& i : program.instructions) all += std::string(i.op->name()) + " " + std::to_string(i.tag.layer) + ";";
  for (const Parameter& p : program.parameters) all += p.name + program[p.tensor].shape.text() + ";";
  return all + std::to_string(program.tensors.size());
}

TEST(KeepLayers, LeavesTheModelWithFewerLayers) {
  Program program = stack({6, 6, 6, 6, 6});
  const KeptLayers kept = keep_layers(program, 2);
  EXPECT_EQ(kept.all, 5);
  EXPECT_EQ(kept.kept, 3) << "the first one reads what is in front of all twice, and is of a kind of its own";
  EXPECT_EQ(text(program), text(stack({6, 6, 6})));
  EXPECT_EQ(to_text(program), to_text(stack({6, 6, 6})));
}

TEST(KeepLayers, KeepsWholePeriodsOfKinds) {
  Program program = stack({6, 4, 2, 4, 2, 4, 2, 4, 2});
  EXPECT_EQ(keep_layers(program, 1).kept, 3);
  EXPECT_EQ(to_text(program), to_text(stack({6, 4, 2})));
}

TEST(KeepLayers, LeavesLayersThatAreAllDifferent) {
  Program program = stack({2, 3, 4, 5});
  EXPECT_EQ(keep_layers(program, 1).kept, 4);
  EXPECT_EQ(to_text(program), to_text(stack({2, 3, 4, 5})));
}

TEST(KeepLayers, FrozenLayersAreAnotherKind) {
  Program program = stack({6, 6, 6, 6, 6, 6, 6});
  for (Parameter& p : program.parameters) p.trainable = !p.name.starts_with("layers.1") && !p.name.starts_with("layers.2");
  EXPECT_EQ(keep_layers(program, 1).kept, 4) << "0, 1 and 2 are frozen or first; of 3 to 6 one stays";
}

}  // namespace
}  // namespace consist
