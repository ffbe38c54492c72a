#include "plugins/strategies/zero/reduce_dtype.h"

#include <unordered_map>
#include <vector>

#include "consist/op.h"

namespace consist::zero {
namespace {

/// The writers of a storage.
struct Users {
  std::vector<std::size_t> writers;  ///< instructions
  std::int16_t micro_batch = -1;     ///< of the first writer
  bool fixed = false;                ///< read by others, written by what has no dtype of its own, or in several micro-batches
};

}  // namespace

void make_as(Program& step, std::span<const PartialGradient> gradients, DType reduce_dtype) {
  std::unordered_map<TensorId, Users> users;  // by storage
  for (const PartialGradient& gradient : gradients) {
    const Parameter& parameter = step.parameters[gradient.parameter];
    Users& of = users[step[gradient.whole].storage];
    // Products of f32 make gradients of f32.
    of.fixed = step[parameter.tensor].dtype != reduce_dtype || step[gradient.whole].dtype != DType::f32;
  }
  for (const Tensor& tensor : step.tensors) {
    if (const auto of = users.find(tensor.storage); of != users.end()) of->second.fixed |= tensor.offset != 0;
  }
  for (std::size_t n = 0; n < step.instructions.size(); ++n) {
    const Instruction& i = step.instructions[n];
    for (TensorId output : i.outputs) {
      if (output == no_tensor) continue;
      const auto of = users.find(step[output].storage);
      if (of == users.end()) continue;
      Users& found = of->second;
      if (found.writers.empty()) found.micro_batch = i.tag.micro_batch;
      found.fixed |= !i.attributes.has("dtype") || i.tag.micro_batch != found.micro_batch;
      found.writers.push_back(n);
    }
    for (TensorId input : i.inputs) {
      if (input == no_tensor) continue;
      const auto of = users.find(step[input].storage);
      if (of != users.end()) of->second.fixed |= of->second.writers.empty() || of->second.writers.back() != n;
    }
  }
  for (const auto& [storage, of] : users) {
    if (of.fixed) continue;
    for (std::size_t writer : of.writers) step.instructions[writer].attributes.set("dtype", std::string(name_of(reduce_dtype)));
  }
  for (Tensor& tensor : step.tensors) {
    if (const auto of = users.find(tensor.storage); of != users.end() && !of->second.fixed) tensor.dtype = reduce_dtype;
  }
}

void cast_to(Program& step, Inserter& inserter, std::span<PartialGradient> gradients, DType reduce_dtype, const char* strategy) {
  for (PartialGradient& gradient : gradients) {
    if (step[gradient.whole].dtype == reduce_dtype) continue;
    inserter.after(gradient.ready, [&](Builder& builder) {
      builder.tag.inserted_by = strategy;
      gradient.whole =
          builder.emit_one("cast", {gradient.whole}, {{"dtype", std::string(name_of(reduce_dtype))}}, step[gradient.whole].name);
      step[gradient.whole].role = Role::gradient;
    });
  }
}

}  // namespace consist::zero
