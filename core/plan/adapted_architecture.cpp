#include "core/plan/adapted_architecture.h"

#include <utility>

#include "consist/error.h"

namespace consist {

AdaptedArchitecture::AdaptedArchitecture(std::shared_ptr<Architecture> base, std::shared_ptr<Adapter> adapter)
    : base_(std::move(base)), adapter_(std::move(adapter)), sizes_(base_->sizes()) {
  Program program;
  Builder builder(program);
  const TensorId ids = builder.input("ids", DType::i32, {1, 1}), targets = builder.input("targets", DType::i32, {1, 1});
  program.loss = base_->build(builder, ids, targets, 1);
  for (const Parameter& p : program.parameters) of_base_.insert(p.name);
  adapter_->adapt(program);
  std::int64_t added = 0, of_products = 0;
  for (const Parameter& p : program.parameters) {
    if (of_base_.contains(p.name)) continue;
    const Shape& shape = program[p.tensor].shape;
    added += shape.elements();
    if (shape.rank() == 2) of_products += shape.elements();
  }
  if (added == 0) throw ProgramError("the adapter adds no parameter to the model: nothing of it would be trained");
  sizes_.parameters += added;
  sizes_.matmul_parameters += of_products;
}

TensorId AdaptedArchitecture::build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const {
  Program& program = builder.program();
  program.loss = base_->build(builder, ids, targets, loss_scale);
  adapter_->adapt(program);
  return program.loss;
}

bool AdaptedArchitecture::is_of_base(std::string_view parameter) const {
  return of_base_.contains(parameter);
}

}  // namespace consist
