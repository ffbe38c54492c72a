// Edits of a finished program, for strategies: instructions inserted in the middle, tensors given adjacent memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "consist/builder.h"
#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Inserts instructions at several places in one linear pass. Positions are indices of the program as it was when the Inserter
/// was made. The program must not be changed otherwise before apply().
class CONSIST_API Inserter {
 public:
  explicit Inserter(Program& program);
  /// Calls `emit` with a builder whose instructions go right after instruction `position` (-1: to the front). Groups at the same
  /// position keep the order of the calls.
  void after(InstructionId position, const std::function<void(Builder&)>& emit);
  /// Applies all insertions. REQUIRES: waits have not been computed yet.
  void apply();

 private:
  struct Group {
    InstructionId position;
    std::size_t first, last;  // range of the appended instructions
  };
  Program& program_;
  std::size_t original_;
  std::vector<Group> groups_;
};

/// Moves the storages of `tensors` into one new storage, one after the other at 256-byte boundaries; collectives over all of them
/// become one message. Returns the storage. REQUIRES: the tensors are distinct, none is a state, and each owns its storage or
/// updates one in place.
CONSIST_API TensorId pack(Program& program, std::span<const TensorId> tensors, std::string name);

/// Tensors that are to share one storage, called `name`.
struct Pack {
  std::vector<TensorId> tensors;
  std::string name;
};
/// The same for several packs, in one pass over the program; returns their storages.
CONSIST_API std::vector<TensorId> pack(Program& program, std::span<const Pack> packs);

/// Lets output `output` of `instruction` add to `sum` instead of overwriting its memory. The caller gives both one
/// storage. ERRORS: ProgramError if the op cannot add.
CONSIST_API void add_into(const Program& program, Instruction& instruction, std::size_t output, TensorId sum);

/// The last instruction that writes each tensor's storage, by tensor id; -1 if none does.
CONSIST_API std::vector<InstructionId> last_writers(const Program& program);

/// Alignment of tensors in memory, in bytes.
inline constexpr std::int64_t tensor_alignment = 256;
constexpr std::int64_t aligned(std::int64_t bytes) noexcept {
  return (bytes + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
}

}  // namespace consist
