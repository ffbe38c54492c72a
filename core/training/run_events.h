// Actions of a run between steps: archive, progress, checkpoints.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/job.h"
#include "core/config/run_config.h"
#include "core/job/rank_board.h"
#include "core/record/observers.h"
#include "core/record/profile.h"
#include "core/record/progress_line.h"
#include "core/record/recorder.h"
#include "core/record/run_progress.h"
#include "core/record/sensor_log.h"
#include "core/record/start_times.h"
#include "core/record/step_timeline.h"
#include "core/state/saved_state.h"
#include "core/state/training_state.h"
#include "core/training/rank_watch.h"
#include "core/training/samples.h"
#include "core/training/stop_request.h"
#include "core/training/trainer.h"

namespace consist {

/// As long as it lives, the job can ask where this rank is (RunProgress). All that it is made from must outlive it.
class RunEvents final : public TrainerEvents {
 public:
  RunEvents(const RunConfig& config, Job& job, TrainingState& state, SavedState& saved, std::int64_t first_step,
            const StopRequest& stop, Recorder& recorder, Observers& observers, const SensorLog& sensors, const StartTimes& start,
            TimedSteps timed, RankWatch::Devices devices);

  /// Throws Error where the loss or the gradient norm is not finite.
  void step_finished(const StepReport& report) override;
  void evaluated(const EvaluationReport& report) override;
  void sample(std::int64_t step) override;
  void checkpoint(std::int64_t step) override { save(step, StateSaver::Where::on_disk); }
  void snapshot(std::int64_t step) override { save(step, StateSaver::Where::in_memory); }
  void snapshot_before_pause(std::int64_t step) override {
    save(step, StateSaver::Where::in_memory_for_certain);
    finish_saving();
  }
  void finish_saving() override;
  bool make_room(std::int64_t step, double missing) override;
  void begins(Activity activity, std::int64_t step, std::int64_t round) override;
  bool stop_requested() override { return stop_.requested(); }
  bool end_wanted() override;
  bool pause_requested() override { return board_ != nullptr && board_->pause_requested(); }

  /// CompileRequest::room of the programs: 1, or what a checkpoint had, until more is made.
  double room() const noexcept { return room_; }
  void begin_with_room(double room) noexcept { room_ = room; }
  /// Sets the function that gives the state programs with `room` times the requested capacity. Without it, capacity never grows.
  void set_room_maker(std::function<void(double room)> maker) { room_maker_ = std::move(maker); }

  /// Sets the text that sample() writes; `samples` outlives this. Without one it writes nothing.
  void set_samples(const SampleRequest* samples) { samples_ = samples; }
  /// Sets where the launcher that replaces ranks looks for the step that this one is in; null: nowhere. It outlives this.
  void set_board(RankBoard* board) { board_ = board; }

  /// After the last step: ends the line of progress.
  void close() { line_.finish(); }
  const std::vector<double>& seconds() const { return seconds_; }  ///< of every step
  std::int64_t tokens() const { return tokens_; }                  ///< of a step, of all ranks
  std::int64_t sequences() const { return sequences_; }            ///< of a step, of all ranks
  const Profile& profile() const { return profile_; }
  /// Says why an observer has ended the run before its last step; empty where none has. Of rank 0.
  const std::string& reason_to_end() const { return reason_to_end_; }
  /// Timeline of the timed steps; empty again after the programs were replaced.
  const StepTimeline& timeline() const { return timeline_; }
  /// The last step's, for write_trace().
  std::string last_step() const;

  /// Result of the run as far as steps and evaluations determine it; the run fills in the rest.
  RunResult result;

 private:
  void started(double seconds);
  void save(std::int64_t step, StateSaver::Where where);
  void tell_saved();
  void say_no_targets(std::int64_t step);
  void watch_ranks(const StepReport& report);

  Job& job_;
  TrainingState& state_;
  SavedState& saved_;
  const StopRequest& stop_;
  Recorder& recorder_;
  Observers& observers_;
  const std::string checkpoints_;  // folder
  const SensorLog& sensors_;
  const StartTimes& start_;
  Profile profile_;
  const TimedSteps timed_;
  StepTimeline timeline_;
  std::vector<LaunchTime> times_;                // of the last step
  std::chrono::system_clock::time_point began_;  // the last step
  ProgressLine line_;
  RunProgress progress_;
  RankWatch watch_;
  std::function<void(double)> room_maker_;
  const SampleRequest* samples_ = nullptr;
  RankBoard* board_ = nullptr;
  double room_ = 1;  // as a multiple of what strategies ask for
  bool said_no_targets_ = false;
  std::string reason_to_end_;
  std::vector<double> seconds_;
  std::int64_t tokens_ = 0, sequences_ = 0;
};

}  // namespace consist
