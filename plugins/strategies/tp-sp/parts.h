// Tensors of a program in equal slices, in the memory of the uncut ones.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "consist/program.h"

namespace consist::tensor_parallel {

/// Appends instructions of a program that is written anew: uncut, or in slices along one dimension. A tensor is joined, or seen
/// as slices, where an instruction needs the other form; nothing is copied.
class Parts {
 public:
  /// `count` slices along dimension `dim`, which they must divide; a rank must hold each slice contiguously.
  Parts(Program& program, int dim, int count) : program_(program), dim_(dim), count_(count) {}

  int count() const { return count_; }
  void emit_whole(const Instruction& old);
  /// Appends a collective over all slices at once.
  void emit_in_parts(const Instruction& old);
  /// Appends slice `k` of an instruction whose outputs are cut, and those inputs for which `is_cut` is true.
  template <typename IsCut>
  void emit_part(const Instruction& old, int k, IsCut is_cut) {
    Instruction i = old;
    for (std::size_t input = 0; input < i.inputs.size(); ++input) {
      if (i.inputs[input] == no_tensor) continue;
      i.inputs[input] =
          is_cut(input) ? parts(i.inputs[input], i.tag)[static_cast<std::size_t>(k)] : whole(i.inputs[input], i.tag);
    }
    append_part(std::move(i), k);
  }

 private:
  TensorId whole(TensorId tensor, const Tag& tag);
  const std::vector<TensorId>& parts(TensorId tensor, const Tag& tag);
  const std::vector<TensorId>& make_parts(TensorId tensor);
  TensorId add_tensor(Tensor tensor, std::int64_t offset);
  void append(std::string_view op, std::vector<TensorId> inputs, std::vector<TensorId> outputs, Tag tag);
  void append_part(Instruction i, int k);

  Program& program_;
  int dim_, count_;
  std::map<TensorId, std::vector<TensorId>> parts_of_;  // tensors of the old program whose newest value is in slices
  std::map<TensorId, TensorId> joined_;                 // the tensors that slices were joined to
};

}  // namespace consist::tensor_parallel
