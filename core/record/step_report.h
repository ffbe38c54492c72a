// Reports of a step and of an evaluation that the training loop sends, and their receivers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "consist/export.h"
#include "consist/observer.h"
#include "core/job/progress.h"

namespace consist {

struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;        ///< mean over the step's tokens of all ranks
  double grad_norm = 0;   ///< before clipping
  std::optional<double>
      auxiliary_loss;  ///< what is trained on beside the loss (StepOutput::Kind::auxiliary_loss), if anything is
  /// Choices of tokens that fell on each expert, over all ranks: a row per router (Program::routers); empty without routers.
  std::vector<float> expert_choices;
  std::optional<double> targets;  ///< that the loss is the mean of, where a mask decides it
  std::vector<OwnMetricValue> metrics;  ///< own_metrics() of the step's program
  double expert_load = 0;  ///< of that the largest share of an expert over the mean of its router; 0 without routers
  double learning_rate = 0;
  double seconds = 0;       ///< from before the batch is written to the device until the last instruction has finished
  double data_seconds = 0;  ///< how long this rank waited before that for its tokens, which are read while the step before runs
  std::int64_t sequences = 0;                   ///< of all ranks
  std::int64_t tokens = 0;                      ///< of all ranks
  std::chrono::system_clock::time_point began;  ///< when this rank's device was given the step
};

struct EvaluationReport {
  std::int64_t step = 0;       ///< after it
  double loss = 0;             ///< mean over the tokens of all sequences
  std::int64_t sequences = 0;  ///< over all ranks, each read once: the same ones in every layout
  double seconds = 0;
  double targets = 0;  ///< tokens that the mean is over
  std::vector<OwnMetricValue> metrics = {};  ///< own_metrics() of the evaluation's program
};

/// Events besides training; called from the trainer's thread between steps, on every rank.
class CONSIST_API TrainerEvents {
 public:
  virtual ~TrainerEvents();
  virtual void step_finished(const StepReport& report) = 0;
  virtual void evaluated(const EvaluationReport& report) = 0;
  /// Writes a sample of text after `step` steps; changes nothing of the state.
  virtual void sample(std::int64_t /*step*/) {}
  /// Saves the state after `step` steps; may go on with that while further steps run.
  virtual void checkpoint(std::int64_t step) = 0;
  /// The same in memory, for ranks that replace these.
  virtual void snapshot(std::int64_t /*step*/) {}
  /// The same, complete on return, before the ranks end so that others go on from there.
  virtual void snapshot_before_pause(std::int64_t /*step*/) {}
  /// Returns when what was begun to be saved is complete.
  virtual void finish_saving() {}
  /// In step `step`, or in the evaluation behind it, `missing` rows of tokens had no room at their experts, and nothing was changed: gives
  /// the state programs with more room and returns true, or returns false, upon which training ends with an error. The same on all ranks.
  virtual bool make_room(std::int64_t step, double missing);
  /// Before the trainer begins a part of step `step`, or round `round` of the evaluation behind it. Must not block.
  virtual void begins(Activity /*activity*/, std::int64_t /*step*/, std::int64_t /*round*/) {}
  /// True if this rank wants to end the run (a signal); polled before each step. All ranks end together.
  virtual bool stop_requested() = 0;
  /// True if the step that begins is to be the last one, as if the run had no more; polled likewise. One rank may want it for
  /// all.
  virtual bool end_wanted() { return false; }
  /// True if this rank wants all to end so that others go on, in their place, with more ranks; polled likewise.
  virtual bool pause_requested() { return false; }
};

}  // namespace consist
