#include "plugins/strategies/tp-sp/parts.h"

#include <string>
#include <utility>

#include "consist/op.h"

namespace consist::tensor_parallel {

/// The newest value of `tensor`, joined.
TensorId Parts::whole(TensorId tensor, const Tag& tag) {
  if (tensor == no_tensor) return tensor;
  if (auto parts = parts_of_.find(tensor); parts != parts_of_.end()) {
    const TensorId joined = add_tensor(program_[tensor], 0);
    append("join", parts->second, {joined}, tag);
    parts_of_.erase(parts);
    joined_[tensor] = joined;
  }
  const auto joined = joined_.find(tensor);
  return joined == joined_.end() ? tensor : joined->second;
}

/// The newest value of `tensor` in slices.
const std::vector<TensorId>& Parts::parts(TensorId tensor, const Tag& tag) {
  if (auto known = parts_of_.find(tensor); known != parts_of_.end()) return known->second;
  const TensorId from = whole(tensor, tag);
  append("views", {from}, make_parts(tensor), tag);
  program_.instructions.back().attributes.set("parts", std::int64_t{count_});
  return parts_of_[tensor];
}

/// Tensors for the slices of `tensor`, in its memory, which hold its value from now on.
const std::vector<TensorId>& Parts::make_parts(TensorId tensor) {
  Tensor part = program_[tensor];
  part.shape[dim_] /= count_;
  std::vector<TensorId> made;
  std::int64_t offset = 0;
  for (int k = 0; k < count_; ++k) {
    made.push_back(add_tensor(part, offset));
    offset += program_.bytes(made.back());
  }
  joined_.erase(tensor);
  return parts_of_[tensor] = std::move(made);
}

TensorId Parts::add_tensor(Tensor tensor, std::int64_t offset) {
  tensor.offset += offset;
  program_.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(program_.tensors.size()) - 1;
}

void Parts::append(std::string_view op, std::vector<TensorId> inputs, std::vector<TensorId> outputs, Tag tag) {
  tag.inserted_by = "tp-sp";
  Instruction made{.op = &registry().get(op), .inputs = std::move(inputs), .outputs = std::move(outputs), .tag = tag};
  made.attributes.set("dim", std::int64_t{dim_});
  program_.instructions.push_back(std::move(made));
}

void Parts::emit_whole(const Instruction& old) {
  Instruction i = old;
  for (TensorId& input : i.inputs) input = whole(input, old.tag);
  program_.instructions.push_back(std::move(i));
}

/// The collective over all slices at once.
void Parts::emit_in_parts(const Instruction& old) {
  Instruction i = old;
  i.inputs.clear();
  i.outputs.clear();
  for (TensorId input : old.inputs) {
    const std::vector<TensorId>& of = parts(input, old.tag);
    i.inputs.insert(i.inputs.end(), of.begin(), of.end());
  }
  for (TensorId output : old.outputs) {
    const std::vector<TensorId>& of = make_parts(output);
    i.outputs.insert(i.outputs.end(), of.begin(), of.end());
  }
  program_.instructions.push_back(std::move(i));
}

void Parts::append_part(Instruction i, int k) {
  for (TensorId& output : i.outputs) {
    if (output == no_tensor) continue;
    if (!parts_of_.contains(output)) make_parts(output);
    output = parts_of_[output][static_cast<std::size_t>(k)];
  }
  program_.instructions.push_back(std::move(i));
}

}  // namespace consist::tensor_parallel
