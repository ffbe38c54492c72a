// Analyses of programs: who makes and who reads a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Definitions and uses of the tensors of a program, as it was when this was made: instructions that are added, moved or changed
/// later are not known. Made in linear time. Every tensor that instructions name must exist (verify()). Const members may be
/// called from any thread.
class CONSIST_API DefUse {
 public:
  explicit DefUse(const Program& program) : DefUse(program.tensors.size(), program.instructions) {}
  /// Of instructions that were taken out of a program with so many tensors. Ids are places in `instructions`.
  DefUse(std::size_t tensors, std::span<const Instruction> instructions);

  /// The instruction that makes the tensor; -1 for inputs, states and constants, and for a tensor that is newer than this.
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

}  // namespace consist
