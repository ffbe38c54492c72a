// The residual of a run: its measured step as the predicted one plus a sum of terms, each with the likeliest cause.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/compare/outcome.h"
#include "launch/residual/conditions.h"
#include "launch/residual/step_parts.h"

namespace consist::launch {

/// A group of instructions of a term, seconds of a step.
struct ResidualGroup {
  std::string text;  ///< "linear model.layers.*.mlp.up_proj"
  double predicted = 0, measured = 0;
};

/// A part of the difference of the measured and the predicted step.
struct ResidualTerm {
  std::string part;    ///< of the step's time (docs/report.md), "host" for gaps and steps that were not timed, or "data"
  std::string cause;   ///< a key of causes(); empty: none is likelier than the error of predictions
  double seconds = 0;  ///< positive: the measured step takes longer
  std::string text;    ///< what was seen, for people
  std::vector<ResidualGroup> groups = {};  ///< the largest changes first, at most three
};

/// A kind of cause.
struct CauseKind {
  std::string name;    ///< "the device's clock"
  std::string remedy;  ///< what to look at
};
const std::map<std::string, CauseKind>& causes();

struct Residual {
  std::string problem;               ///< why there is none; empty: there is one
  std::string machine;               ///< that was predicted for
  std::optional<double> step_error;  ///< of predictions of such steps, a fraction; nothing: not known
  double predicted = 0;              ///< seconds of a step
  double measured = 0;               ///< ... and the wait for its data
  std::vector<ResidualTerm> terms;   ///< sum to measured - predicted; the largest first

  /// Causes by the seconds of their terms, the largest first; without those that no term names.
  std::vector<std::pair<std::string, double>> by_cause() const;
  bool within_error() const;  ///< the difference is no larger than step_error says
};

/// Attributes the difference. `step`: measured, with the simulated step beside.
Residual residual_of(const StepParts& step, const Conditions& conditions);

/// The same with the conditions of the row that `step` is of, from its archive. Throws DataError for one that is damaged.
Residual read_residual(const StepParts& step, const CompareOutcome& outcome);
/// The same of one run's archive; a problem where it has not finished.
Residual read_residual(const std::string& archive);
/// The same for those who have more to say than the residual: an archive that is damaged is a problem, too.
Residual residual_if_readable(const std::string& archive);

}  // namespace consist::launch
