// Times at which the stages of a pipeline execute their parts, by their programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "consist/program.h"
#include "core/cost/simulator.h"

namespace consist {

/// A stretch of time in which a rank works on one micro-batch without waiting.
struct TimelinePart {
  Phase phase = Phase::forward;
  std::int16_t micro_batch = 0;
  std::int16_t stage = 0;
  double begin = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimelinePart>> ranks;  ///< by coordinate on the stage axis, in order of time
  double end = 0;
  /// The part of the time until `end` in which ranks wait, over all of them; a fraction, 0..1.
  double bubble_fraction() const;
};

/// Durations for simulator.h by which stages are equal: every forward part takes 1, every backward part 2 (1 for the gradients of
/// inputs, 1 for those of weights), and a part's sends leave at its end. Nothing else takes time.
CONSIST_API Durations equal_durations(const Program& program);
/// `seconds`, by instruction, of the compute instructions of forward and backward; 0 of messages, collectives and the optimizer.
CONSIST_API Durations without_messages(const Program& program, std::span<const double> seconds);
/// Timeline of the stages' compute queues in forward and backward of a simulation.
CONSIST_API Timeline timeline_of(std::span<const Program* const> stages, const Simulation& simulation);

/// Draws a timeline of equal parts: a row per rank, a column per unit of time, "F3" for the forward part of micro-batch 3, "B3"
/// backward, "W3" weight gradients apart; a letter behind it counts the rank's further stages from b; '.' is idle for more than
/// half of the unit.
CONSIST_API std::string timeline_text(const Timeline& timeline);

}  // namespace consist
