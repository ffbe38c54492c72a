// Observers: plugins that are called while a run goes on, for another archive, a dashboard, a message at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

/// A number that a model, loss or strategy reports of its own (Builder::metric).
struct OwnMetric {
  std::string name, unit, description;
};

/// Its value in a step or an evaluation; NaN: a mean of nothing.
struct OwnMetricValue {
  std::string name;
  double value = 0;
};

/// A run as it begins.
struct ObservedRun {
  std::string configuration;    ///< JSON: every option with its value, as the archive's /config
  std::string description;      ///< lines of text: model, data, layout, memory
  std::int64_t first_step = 0;  ///< steps that were done before, by runs that this one resumes
  std::int64_t steps = 0;       ///< the step after which it ends
  bool overwrite = false;       ///< what an earlier run wrote may be replaced (--overwrite)
  std::int64_t evaluate_every = 0;  ///< steps between evaluations; 0: none are made
  bool mixture = false;         ///< the model has routers of experts: steps have expert_load, and aux_loss if that is trained on
  std::vector<OwnMetric> metrics;  ///< that each step and each evaluation reports, in this order
  std::string loss_unit;           ///< Loss::unit(): "nat/token"
};

/// A finished step, over all ranks. docs/metrics.md defines the figures.
struct ObservedStep {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;        ///< in ObservedRun::loss_unit
  double grad_norm = 0;
  double learning_rate = 0;
  double seconds = 0;       ///< without the wait for its data
  double data_seconds = 0;  ///< that wait, of rank 0
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  std::optional<double> aux_loss;     ///< weighted loss that is trained on beside `loss`: the balance of routers
  std::optional<double> expert_load;  ///< choices of the most chosen expert over the mean, in the least balanced layer
  std::vector<OwnMetricValue> metrics;  ///< as ObservedRun::metrics lists them
};

/// An evaluation after a step, over sequences of the evaluation part.
struct ObservedEvaluation {
  std::int64_t step = 0;
  double loss = 0;  ///< the mean
  std::int64_t sequences = 0;
  std::vector<OwnMetricValue> metrics;  ///< as ObservedRun::metrics lists them
};

/// The plugin kind "observer", chosen by --observe. One object per run, on rank 0 alone. THREADS: the trainer's, between steps;
/// the next step waits for it. It changes nothing, and may end
/// the run. ERRORS: an exception of begin() ends the run before its first step. A later
/// one is reported once with the observer's name; the observer is not called again, and the run goes on.
class CONSIST_API Observer {
 public:
  virtual ~Observer();
  /// Before the first step. The default does nothing, as those of the others.
  virtual void begin(const ObservedRun& run);
  /// After each step.
  virtual void step(const ObservedStep& step);
  /// After an evaluation.
  virtual void evaluated(const ObservedEvaluation& evaluation);
  /// After the model wrote a sample of text (--sample-every).
  virtual void sample(std::int64_t step, std::string_view text);
  /// After a checkpoint was written to `folder`.
  virtual void checkpoint(std::int64_t step, std::string_view folder);
  /// Asked before each step but the first of a run: a reason, such as "the loss does not fall", makes that step the last one. The
  /// run ends as after --steps, with an evaluation, a checkpoint and an export where it has these, and says the observer's name
  /// and the reason. Empty, as the default returns: it goes on.
  virtual std::string reason_to_end() const;
  /// After the last step of a run that did not fail: its result, JSON as the archive's /result.
  virtual void result(std::string_view json);
  /// Last: "finished", "stopped" (asked to) or "failed", with the reason.
  virtual void end(std::string_view status, std::string_view reason);
};

}  // namespace consist
