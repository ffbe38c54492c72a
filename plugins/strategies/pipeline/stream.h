// The residual stream where stages meet: one tensor crosses.
#pragma once

#include <vector>

#include "consist/program.h"

namespace consist::pipeline {

/// The tensors that a cut in front of an instruction of a forward program would send, for every instruction in turn.
class Crossing {
 public:
  explicit Crossing(const Program& forward);

  /// Tensors made before the instruction and read by it or later. Those that follow from parameters alone are not among them:
  /// they are made wherever they are used. A norm that adds to its input a stream that no other instruction reads counts as one
  /// tensor, the sum (see sum_before_cuts).
  std::vector<TensorId> sent() const;

  /// Moves on to the next instruction.
  void advance();

 private:
  const Program& forward_;
  std::size_t at_ = 0;
  std::vector<std::size_t> last_;  // by tensor: the last instruction that reads it
  std::vector<bool> sendable_;     // by tensor: made by an instruction, of more than parameters
  std::vector<TensorId> alive_;
};

/// Makes the sum of a norm's input and the residual stream where its summands are made, if that is in an earlier stage than the
/// norm: `forward` has stages (assign_stages). One tensor is then sent instead of two, one gradient comes back, and where the
/// input is a summand itself (tp-sp) it is reduced before it is sent.
void sum_before_cuts(Program& forward);

}  // namespace consist::pipeline
