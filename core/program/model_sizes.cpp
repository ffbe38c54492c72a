#include "consist/model.h"
#include "consist/op.h"

namespace consist {

void count_parameters(const Architecture& architecture, ModelSizes& sizes) {
  static const Op &of_experts = registry().get("grouped_linear"), &route = registry().get("moe_route");
  Program program;
  Builder builder(program);
  const TensorId ids = builder.input("ids", DType::i32, {1, 1}), targets = builder.input("targets", DType::i32, {1, 1});
  architecture.build(builder, ids, targets, 1);
  sizes.parameters = sizes.matmul_parameters = 0;
  for (const Parameter& p : program.parameters) sizes.parameters += program[p.tensor].shape.elements();
  std::int64_t choices = 0;  // of a token, in the last mixture
  for (const Instruction& i : program.instructions) {
    if (i.op == &route) choices = i.attributes.integer("choices");
    const auto weights = [&] { return program[i.inputs[1]].shape; };
    if (i.op->linear_part() == LinearPart::product || i.op->vocabulary_use() == VocabularyUse::loss)
      sizes.matmul_parameters += weights().elements();
    if (i.op == &of_experts) sizes.matmul_parameters += weights().elements() / weights()[0] * choices;
  }
}

}  // namespace consist
