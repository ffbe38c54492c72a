// Gradients as the optimizer's instructions read them, put together from all ranks.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/interpreter/arena.h"
#include "core/interpreter/logical_values.h"

namespace consist::interpreter {

/// Watches one step. Memory of a gradient is used again before the step is over, and an update may write into it, so that each is
/// read when the first instruction that takes it for something else than the norm is about to run: an update, a copy to the host,
/// a collective of an optimizer's own. What a later instruction makes of it there shows in the parameters.
class Gradients {
 public:
  /// Throws ProgramError where nothing reads the gradient of a parameter.
  explicit Gradients(std::span<const Arena> ranks);

  /// Reads the gradients that `instruction`, whose inputs are complete, is the first to take.
  void see_before(const Arena& rank, InstructionId instruction);
  /// Reads the factor that clips them behind the instruction that makes it.
  void see_after(const Arena& rank, InstructionId instruction);

  /// "<parameter>.gradient" of all parameters that are trained, clipped. Throws as states_of(), and where the step has not run.
  LogicalValues finish() const;

 private:
  struct OfRank {
    const Arena* arena = nullptr;
    std::map<InstructionId, std::vector<const Parameter*>> taken;  ///< first, by that instruction
    std::pair<InstructionId, TensorId> clip{-1, no_tensor};        ///< the maker of the factor, and where it lies
    double factor = 0;
    std::map<const Parameter*, std::vector<double>> values;  ///< of the rank's part, before they are clipped
  };
  OfRank& of(const Arena& rank);

  std::vector<OfRank> ranks_;
};

}  // namespace consist::interpreter
