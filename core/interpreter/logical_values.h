// Values of logical tensors: written to the ranks that hold parts of them, put together from them, saved and resumed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "consist/mesh.h"
#include "core/interpreter/arena.h"

namespace consist::interpreter {

/// By name, row-major.
using LogicalValues = std::map<std::string, std::vector<double>>;

/// The newest tensor of that name and role; no_tensor if there is none.
TensorId find(const Program& program, const std::string& name, Role role);

/// Writes the part of a logical tensor that one rank holds.
void write_logical(Arena& arena, TensorId tensor, const std::vector<float>& logical);

/// Zeros in the optimizer's states, and in those beside the parameters.
void write_zero_states(Arena& arena);

/// The program's constants, as the trainer fills them in.
void write_constants(Arena& arena);

/// Puts the ranks' parts of logical tensors together.
class Assembly {
 public:
  /// `local`: what the rank of that program holds of `tensor`. Throws ProgramError where another rank has added something else
  /// for the same elements.
  void add(const Program& program, const std::string& name, TensorId tensor, const std::vector<double>& local);
  /// Throws ProgramError for an element that no rank holds.
  LogicalValues finish();

 private:
  LogicalValues values_;
};

/// Parameters ("<name>") and their states ("<name>.<state>") of all ranks. Throws ProgramError where ranks that hold the same
/// elements have different ones, or no rank holds an element.
LogicalValues states_of(std::span<const Arena> ranks);

/// A checkpoint in memory: the values that TrainingState::values_of() names, each element from the rank that a checkpoint takes
/// it from.
struct SavedValues {
  LogicalValues values;
  std::map<std::string, std::vector<double>> own;  ///< of StateKind::per_rank, by rank and name
  Mesh mesh;                                       ///< of the ranks that saved
  int steps = 0;                                   ///< that had been trained
};
/// Behind `steps` steps. Throws ProgramError where no rank saves an element.
SavedValues saved_values(std::span<const Arena> ranks, int steps);

/// Writes them to ranks of any layout, as a resumed run reads a checkpoint: what a checkpoint need not hold begins from zeros.
/// Throws ProgramError for a value that is not there, and UsageError for one of each rank's own that another layout has saved.
void resume(std::span<Arena> ranks, const SavedValues& saved);

}  // namespace consist::interpreter
