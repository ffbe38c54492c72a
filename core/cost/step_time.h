// Summary of a step's time, simulated or measured: the one that commands, searches, archives and reports read.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"
#include "core/cost/simulator.h"
#include "core/cost/step_errors.h"

namespace consist {

/// Seconds of a step by what the compute queue of a rank did or waited for; they sum to the step.
struct CONSIST_API StepTime {
  double seconds = 0;                           ///< of the step
  ErrorBar error;                               ///< of `seconds` of a simulation; without kinds: nobody asked
  WorkSeconds work{};                           ///< by Work
  std::map<std::string, double> communication;  ///< exposed, by axis ("data", "data+context"): compute waited for it
  double bubble = 0;                            ///< compute waited for other stages of the pipeline
  double copies = 0;                            ///< ... for copies from or to the host

  double of(Work kind) const { return work[static_cast<std::size_t>(kind)]; }
  double exposed() const;  ///< of all axes
  /// The interval of `seconds` by `error`; nothing where that is not known.
  std::optional<double> low() const;
  std::optional<double> high() const;
  /// The rest: between instructions, in measured steps.
  double gaps() const;
};

/// The summary of one rank, from times that account() has seen, of a step of `seconds`.
CONSIST_API StepTime step_time(const Program& program, const SimulatedRank& rank, double seconds);
/// The mean of the stages of a simulation (simulate()).
CONSIST_API StepTime step_time(std::span<const Program* const> stages, const Simulation& simulation);

/// {"products", "attention", "memory_bound", "optimizer", "exposed_communication": {axis}, "bubble", "copies"}, in seconds.
CONSIST_API nlohmann::ordered_json json_of(const StepTime& time);
/// "products 60.1%, attention 10.0%, ..., exposed communication (data) 3.0%, bubble 2.0%, host 1.0%": shares of the step; of the
/// bubble and copies only if there are some.
CONSIST_API std::string shares_text(const StepTime& time);

/// Transfers over a set of axes in one step, on the stage that sends the most.
struct AxisTransfers {
  AxisSet axes;
  double bytes = 0;    ///< sent by a rank
  double seconds = 0;  ///< of these transfers, if nothing else uses their links
};
/// Transfers of a step by the programs' costs, whatever they overlap.
struct StepTransfers {
  std::vector<AxisTransfers> axes;
  double from_host = 0, to_host = 0;  ///< seconds of copies, of the stage that takes the longest
};
CONSIST_API StepTransfers transfers_of(std::span<const Program* const> stages);

}  // namespace consist
