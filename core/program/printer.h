// The text form of a program: stable, so that tests compare it and people diff it.
#pragma once

#include <string>

#include "consist/program.h"

namespace consist {

struct PrintOptions {
  bool waits = true;  ///< the instructions that each one waits for, where the pass has run
  bool bytes = true;  ///< of collectives, as one rank holds them
};

/// One line per input, state and instruction. Instructions: index, queue, outputs = op(inputs) attributes : types placements,
/// tag.
CONSIST_API std::string to_text(const Program& program, const PrintOptions& options = {});

/// One instruction, as to_text prints it.
CONSIST_API std::string to_text(const Program& program, InstructionId instruction, const PrintOptions& options = {});

}  // namespace consist
