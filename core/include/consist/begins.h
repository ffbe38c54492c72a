// The clock of passes that place messages and copies beside compute.
#pragma once

#include <span>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// When the instructions of a program begin, in seconds from the start of the step, by estimate and if compute never waits: those
/// of other queues when compute gets to them. Made for the program at the time of construction: what is added, moved or changed
/// later is not seen, so that a pass which changes the program makes it anew. Construction is linear. THREADS: const members from
/// any thread.
class CONSIST_API Begins {
 public:
  /// By CostModel::compute_seconds(). Throws ProgramError if the program was made without a machine.
  explicit Begins(const Program& program);
  /// By seconds of all instructions, CostModel::durations() for example; those of other queues do not count.
  Begins(const Program& program, std::span<const double> seconds);

  /// When `instruction` begins; behind the last one: when compute ends.
  double of(InstructionId instruction) const { return begins_[static_cast<std::size_t>(instruction)]; }
  double end() const { return begins_.back(); }

  /// The first instruction that begins at `seconds` or later; behind the last one if there is none.
  InstructionId first_from(double seconds) const;
  /// The last instruction in front of `before` that begins at `seconds` or earlier; 0 if there is none.
  InstructionId last_until(double seconds, InstructionId before) const;

 private:
  std::vector<double> begins_;  // by instruction; behind them the end
};

}  // namespace consist
