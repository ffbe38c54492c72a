// Plays planned programs on their queues, with the durations of a machine, of a measured profile, or none at all.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "consist/device.h"
#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Seconds of each instruction of a program, by its place in the program.
using Durations = std::vector<double>;

/// CostModel::durations() of costs_of() the program.
CONSIST_API Durations estimated_durations(const Program& program);

/// Kind of work that an instruction of the compute queue adds to a step's time.
enum class Work : std::uint8_t {
  products,      ///< linears, the LM head and their gradients
  attention,     ///< products of heads
  memory_bound,  ///< all else of forward and backward: norms, activations, casts
  optimizer,
};
/// "products", "attention", "memory_bound", "optimizer".
CONSIST_API std::string_view name_of(Work work) noexcept;
CONSIST_API Work work_of(const Program& program, const Instruction& instruction);
inline constexpr std::array all_work{Work::products, Work::attention, Work::memory_bound, Work::optimizer};
/// Seconds that the compute queue of a rank worked, by Work.
using WorkSeconds = std::array<double, all_work.size()>;

/// Activity of a rank, and the seconds that its compute queue waited, by cause.
struct SimulatedRank {
  std::vector<LaunchTime> times;            ///< by instruction, in seconds from the start of the step
  double busy = 0;                          ///< seconds in which the compute queue worked
  double for_ranks = 0;                     ///< ... waited for another stage of the pipeline, until the step's end included
  std::map<AxisSet, double> communication;  ///< ... for what was on its way over axes of the mesh
  double for_copies = 0;                    ///< ... for copies from or to the host
};

/// Seconds by kind of work of a simulated or measured step; of one micro-batch alone if that is not negative.
CONSIST_API WorkSeconds work_seconds(const Program& program, const SimulatedRank& rank, int micro_batch = -1);

/// Fills in busy, for_ranks, communication and for_copies from rank.times, simulated or measured ones, of a step that ended after
/// `end_of_step` seconds. What compute waited without an instruction that it waited for is in none of them: measured steps have
/// gaps between instructions. `exposed`, if given, gets by instruction the seconds that compute waited for it.
CONSIST_API void account(const Program& program, double end_of_step, SimulatedRank& rank, std::vector<double>* exposed = nullptr);

struct Simulation {
  std::vector<SimulatedRank> ranks;  ///< as the programs
  double seconds = 0;                ///< of the step
};

/// `programs`: planned ones (insert_waits), of the ranks along Program::stage_axis in their order, or the one of all ranks; ranks
/// that differ along other axes only are equal and stand for each other. `durations` by program. Messages and collectives of the
/// stages begin when all their ends may; collectives beside compute slow down as CostModel::transfer_seconds() says, where
/// programs have costs. Throws ProgramError naming where ranks stand that block each other.
CONSIST_API Simulation simulate(std::span<const Program* const> programs, std::span<const Durations> durations);

}  // namespace consist
