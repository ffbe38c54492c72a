// Analyses of programs: the instruction that makes a tensor, those that read it, and the mesh axes of a placement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Definitions and uses of the tensors of a program at the time of construction: instructions that are added, moved or changed
/// later are not seen. Construction is linear. REQUIRES: every tensor that instructions name exists (verify()). THREADS: const
/// members from any thread.
class CONSIST_API DefUse {
 public:
  explicit DefUse(const Program& program) : DefUse(program.tensors.size(), program.instructions) {}
  /// For instructions of a program with `tensors` tensors, outside of it. Instruction ids are indices into `instructions`.
  DefUse(std::size_t tensors, std::span<const Instruction> instructions);

  /// The instruction that makes the tensor; -1 for inputs, states and constants, and for a tensor that was added later.
  InstructionId producer(TensorId tensor) const noexcept {
    const auto at = static_cast<std::size_t>(tensor);
    return at < producer_.size() ? producer_[at] : -1;
  }
  bool is_made(TensorId tensor) const noexcept { return producer(tensor) >= 0; }

  /// The instructions that read it, in their order, each once.
  std::span<const InstructionId> users(TensorId tensor) const noexcept {
    const auto at = static_cast<std::size_t>(tensor);
    if (at + 1 >= first_user_.size()) return {};
    return {users_.data() + first_user_[at], first_user_[at + 1] - first_user_[at]};
  }
  /// The instruction that alone reads it; -1 if there is none, or more.
  InstructionId only_user(TensorId tensor) const noexcept { return users(tensor).size() == 1 ? users(tensor).front() : -1; }

 private:
  std::vector<InstructionId> producer_;  // by tensor
  std::vector<std::size_t> first_user_;  // by tensor: where its users begin; one more than there are tensors
  std::vector<InstructionId> users_;
};

/// The axes of `among` along which the tensor has `placement`.
CONSIST_API AxisSet axes_with(const Tensor& tensor, Placement placement, AxisSet among);

/// The distinct non-empty sets that axes_with() returns for `tensors`, the largest first. One collective moves the tensors of one
/// set.
CONSIST_API std::vector<AxisSet> sets_with(const Program& program, std::span<const TensorId> tensors, Placement placement,
                                           AxisSet among);

}  // namespace consist
