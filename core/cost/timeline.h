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

enum class TimelineCost : std::uint8_t {
  equal,     ///< every forward part takes 1, every backward part 2: 1 for the gradients of inputs, 1 for those of weights; what a
             ///< part sends leaves at its end
  by_ops,    ///< as costs_of() the program says
  measured,  ///< as outline_of() was told
};

/// The part of a stage's program that a timeline needs: its compute instructions between messages. Small beside the program, so
/// that ranks can send it to each other.
struct StageOutline {
  /// Compute instructions of one part in a row, or a message that is sent (`sends`), behind what stands before it.
  struct Step {
    bool sends = false;
    Lane lane = Lane::to_next;  ///< of a message
    Phase phase = Phase::forward;
    std::int16_t micro_batch = 0;
    std::int16_t stage = 0;
    double equal = 0, by_ops = 0, measured = 0;  ///< how long it takes by each cost
    /// Messages from either neighbour that must have arrived.
    std::int32_t from_previous = 0, from_next = 0;
  };
  std::vector<Step> steps;
};
/// `measured`: seconds of each instruction, or none.
CONSIST_API StageOutline outline_of(const Program& program, const Durations& measured = {});
/// For other ranks: the same outline to the last bit. Throws ProgramError for a text that is none.
CONSIST_API std::string to_words(const StageOutline& outline);
CONSIST_API StageOutline outline_from(const std::string& words);

/// Runs the compute instructions of forward and backward of all stages side by side: `stages` holds the outline of each rank
/// along Program::stage_axis. Messages take no time and keep their order. Throws ProgramError if the stages wait for each other
/// for ever.
CONSIST_API Timeline simulate(std::span<const StageOutline> stages, TimelineCost cost);
CONSIST_API Timeline simulate(std::span<const Program* const> stages, TimelineCost cost);

/// TimelineCost::equal as durations, for simulator.h. Collectives and messages take no time.
CONSIST_API Durations equal_durations(const Program& program);
/// Timeline of the stages' compute queues in forward and backward of a simulation.
CONSIST_API Timeline timeline_of(std::span<const Program* const> stages, const Simulation& simulation);

/// Draws a timeline of equal parts: a row per rank, a column per unit of time, "F3" for the forward part of micro-batch 3, "B3"
/// backward, "W3" weight gradients apart; a letter behind it counts the rank's further stages from b; '.' is idle for more than
/// half of the unit.
CONSIST_API std::string timeline_text(const Timeline& timeline);

}  // namespace consist
