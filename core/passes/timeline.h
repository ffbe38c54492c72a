// When the stages of a pipeline do what, by their programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "consist/program.h"

namespace consist {

/// A run of instructions of one micro-batch on one rank.
struct TimelinePart {
  Phase phase = Phase::forward;
  std::int16_t micro_batch = 0;
  std::int16_t stage = 0;
  double begin = 0, end = 0;
  double busy = 0;  ///< of that, the time in which an instruction ran
};

struct Timeline {
  std::vector<std::vector<TimelinePart>> ranks;  ///< by coordinate on the stage axis, in order of time
  double end = 0;
  /// The part of the time until `end` in which ranks wait, over all of them; in percent/100.
  double idle_share() const;
};

enum class TimelineCost : std::uint8_t {
  equal,   ///< every forward part takes 1, every backward part 2: 1 for the gradients of inputs, 1 for those of weights; what a
           ///< part sends leaves at its end
  by_ops,  ///< work_of() each instruction
};

/// Runs the compute instructions of forward and backward of all stages side by side: `stages` holds the program of each rank
/// along Program::stage_axis. Messages take no time. Throws ProgramError if the stages wait for each other for ever.
CONSIST_API Timeline simulate(std::span<const Program* const> stages, TimelineCost cost);

/// Draws a timeline of equal parts: a row per rank, a column per unit of time, "F3" for the forward part of micro-batch 3, "B3"
/// backward, "W3" weight gradients apart; a letter behind it counts the rank's further stages from b; '.' is idle.
CONSIST_API std::string timeline_text(const Timeline& timeline);

}  // namespace consist
