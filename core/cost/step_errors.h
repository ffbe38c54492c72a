// Errors of simulated steps: that of a step, combined from those of the kinds that its machine's file has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/cost.h"
#include "consist/export.h"
#include "consist/program.h"

namespace consist {

class FileObject;

/// The error of simulated steps beside measured ones of one kind. No pass and no strategy asks for it, so that it is no part of
/// Machine.
struct StepError {
  std::string kind;  ///< "one device", "nvlink within a node": docs/machines.md lists them
  Figure error;      ///< relative, a fraction: 95% of such steps are within it
  int steps = 0;     ///< so many were measured
};
/// Errors in a machine's file, at most one per kind. Of a kind that is missing no step was measured.
using StepErrors = std::vector<StepError>;

/// A kind with fewer measured steps has no error: two of them say next to nothing of a third.
inline constexpr int least_measured_steps = 3;

/// The kind of every step: what all have in common is the device of a rank.
inline constexpr std::string_view one_device = "one device";
/// "nvlink within a node", "socket between nodes": the kind of steps whose ranks exchange data so. `transport` may be empty.
CONSIST_API std::string links_kind(std::string_view transport, bool crosses_nodes);
/// True if it is the links_kind() of any transport.
CONSIST_API bool is_links_kind(std::string_view kind, bool crosses_nodes);

/// The kinds of a step, each once: one_device, the links_kind() of every axis of the mesh, then "context" (ranks share
/// sequences), "experts", "fp8" and "offload" (copies to or from the host). `stages`: as for simulate(), with costs. Of
/// transports with the same links one of which `errors` tells is named.
CONSIST_API std::vector<std::string> kinds_of(std::span<const Program* const> stages, const StepErrors& errors);

/// True if a measured step of these kinds counts for `kind`, one of them: for one_device if that is its sole one, for links if it
/// has none but these two, for others always.
CONSIST_API bool counts_for(std::string_view kind, std::span<const std::string> kinds);

/// The error of one step.
struct ErrorBar {
  /// Relative: the measured step lies with a probability of 95% between the predicted one over and times 1 + `value`. Nothing:
  /// it is not known.
  std::optional<double> value;
  StepErrors kinds;  ///< of the step; StepError::steps is 0 where none was measured
};
/// The square of the error is that of one_device, and for each other kind what its square has beyond that: steps of every kind
/// have the device's error in theirs. Nothing where a kind has fewer than least_measured_steps.
CONSIST_API ErrorBar error_bar(const StepErrors& errors, std::span<const std::string> kinds);
CONSIST_API ErrorBar error_bar(const StepErrors& errors, std::span<const Program* const> stages);

/// "no step with experts was measured", for people, naming every kind without an error; empty if the error is known.
CONSIST_API std::string why_unknown(const ErrorBar& bar);
/// "±5.4%: one device ±5.1% (36 measured steps), nvlink within a node ±5.4% (33)", or "not known: " and why.
CONSIST_API std::string text_of(const ErrorBar& bar);

/// The key "step_errors" of a machine file, whose other keys machine_from_json() reads; of files before there were kinds
/// "step_error", which `calibrate` wrote by three steps on one device. Throws DataError as that.
CONSIST_API StepErrors step_errors_from_json(std::string_view text, const std::string& name);
StepErrors step_errors_from(FileObject& object);
nlohmann::ordered_json json_of(const StepErrors& errors);
/// That of one_device; 0 where it is not known.
CONSIST_API Figure error_of_device(const StepErrors& errors);

}  // namespace consist
