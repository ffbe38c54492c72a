#include "core/training/run_events.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/experts/room_for_rows.h"
#include "core/plugin/plugin_faults.h"
#include "core/record/step_trace.h"

namespace consist {

namespace {

/// As JSON, of the text as much as an event of the archive holds.
std::string sample_event(std::int64_t step, std::string text) {
  constexpr std::size_t most = 1000;  // bytes; an event has 1,024
  while (true) {
    const std::string event =
        nlohmann::ordered_json{{"step", step}, {"text", text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
    if (event.size() <= most || text.empty()) return event;
    text.resize(text.size() -
                std::max<std::size_t>(1, (event.size() - most) / 6));  // a character is six bytes at most when escaped
  }
}

}  // namespace

RunEvents::RunEvents(const RunConfig& config, Job& job, TrainingState& state, SavedState& saved, std::int64_t first_step,
                     const StopRequest& stop, Recorder& recorder, Observers& observers, const SensorLog& sensors,
                     const StartTimes& start, TimedSteps timed, RankWatch::Devices devices)
    : job_(job),
      state_(state),
      saved_(saved),
      stop_(stop),
      recorder_(recorder),
      observers_(observers),
      checkpoints_(config.checkpoint),
      sensors_(sensors),
      start_(start),
      timed_(timed),
      line_(config.steps, job.rank() != 0),
      progress_(job, state, first_step + 1),
      watch_(job, state, devices) {}

void RunEvents::begins(Activity activity, std::int64_t step, std::int64_t round) {
  progress_.begin(activity, step, round);
  if (board_ != nullptr) board_->begin_step(job_.local_rank(), step);
}

void RunEvents::step_finished(const StepReport& report) {
  if (board_ != nullptr && job_.local_rank() == 0) board_->end_step(report.step);
  if (result.steps == 0) {
    libraries_are_in_use();
    started(seconds_since_start() - report.seconds);
  }
  ++result.steps;
  result.final_loss = report.loss;
  seconds_.push_back(report.seconds);
  tokens_ = report.tokens;
  sequences_ = report.sequences;
  result.step_seconds += report.seconds;
  result.data_seconds += report.data_seconds;
  if (job_.rank() == 0) recorder_.step(report, sensors_.newest());
  times_ = state_.step().executable().launch_times();
  profile_.add(times_);
  if (timed_.contains(result.steps)) timeline_.add(times_, report.seconds);
  if (timed_.switched && timed_.any() && result.steps == timed_.last) state_.step().set_timing(false);
  began_ = report.began;
  line_.step(report);
  if (report.targets && *report.targets == 0) say_no_targets(report.step);
  const ObservedStep observed{.step = report.step,
                              .loss = report.loss,
                              .grad_norm = report.grad_norm,
                              .learning_rate = report.learning_rate,
                              .seconds = report.seconds,
                              .data_seconds = report.data_seconds,
                              .tokens = report.tokens,
                              .sequences = report.sequences,
                              .aux_loss = report.auxiliary_loss,
                              .expert_load = report.expert_choices.empty() ? std::nullopt : std::optional(report.expert_load),
                              .metrics = report.metrics};
  observers_.tell([&](Observer& observer) { observer.step(observed); });
  watch_ranks(report);
  saved_.saver().check();
  tell_saved();
  if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm)) {
    throw Error("the loss of step " + std::to_string(report.step) + " is " + std::to_string(report.loss) + " and grad_norm " +
                std::to_string(report.grad_norm) +
                ": training has diverged. A lower --learning-rate, a warm-up (an option of the schedule) or --clip usually help");
  }
}

void RunEvents::watch_ranks(const StepReport& report) {
  for (const RankWatch::Finding& found : watch_.step_finished(times_, report.seconds)) {
    recorder_.event("slow_rank",
                    nlohmann::ordered_json{
                        {"step", report.step}, {"rank", found.slow.rank}, {"host", found.host}, {"longer", found.slow.longer}}
                        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    line_.note("step " + std::to_string(report.step) + ": rank " + std::to_string(found.slow.rank) + " on host " + found.host +
               " works " + fixed_text(100 * found.slow.longer, 0) +
               "% longer than the other ranks do, waiting left out, and all go at its pace; consist doctor says what its "
               "machine lacks");
  }
}

void RunEvents::say_no_targets(std::int64_t step) {
  if (job_.rank() != 0) return;
  constexpr const char* what =
      "no token is a target (the dataset's mask leaves none), so that the loss is 0; weight decay and momentum change the "
      "weights all the same";
  recorder_.event("no_targets", R"({"step": )" + std::to_string(step) + "}");
  if (!std::exchange(said_no_targets_, true))
    line_.note("step " + std::to_string(step) + ": " + what + ". Later ones are not told");
}

void RunEvents::evaluated(const EvaluationReport& report) {
  result.evaluation_loss = report.loss;
  result.evaluation_sequences = report.sequences;
  result.evaluation_seconds += report.seconds;
  if (job_.rank() == 0) recorder_.evaluation(report);
  const ObservedEvaluation observed{
      .step = report.step, .loss = report.loss, .sequences = report.sequences, .metrics = report.metrics};
  observers_.tell([&](Observer& observer) { observer.evaluated(observed); });
  line_.note("evaluation after step " + std::to_string(report.step) + ": loss " + fixed_text(report.loss, 4) +
             metrics_text(report.metrics) + " over " + std::to_string(report.sequences) +
             (report.sequences == 1 ? " sequence" : " sequences"));
}

bool RunEvents::end_wanted() {
  if (reason_to_end_.empty() && result.steps > 0) {
    reason_to_end_ = observers_.reason_to_end();
    if (!reason_to_end_.empty()) {
      recorder_.event("early_end", reason_to_end_);
      line_.note("the next step is the last: " + reason_to_end_);
    }
  }
  return !reason_to_end_.empty();
}

void RunEvents::sample(std::int64_t step) {
  if (samples_ == nullptr) return;
  const std::string text = consist::sample(state_, *samples_);
  if (job_.rank() != 0) return;
  line_.note("sample after step " + std::to_string(step) + ": " + in_quotes(text, 4096));
  recorder_.event("sample", sample_event(step, text));
  observers_.tell([&](Observer& observer) { observer.sample(step, text); });
}

void RunEvents::save(std::int64_t step, StateSaver::Where where) {
  const auto began = std::chrono::steady_clock::now();
  const StateSaver::Outcome outcome = saved_.save(state_, step, where);
  result.checkpoint_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (outcome == StateSaver::Outcome::still_writing && ++result.snapshots_left_out == 1 && job_.rank() == 0) {
    line_.note("the snapshot after step " + std::to_string(step) +
               " is left out, since the one before is still being written; later ones are not told. A larger --snapshot-every "
               "leaves none out");
  }
  tell_saved();
}

void RunEvents::finish_saving() {
  const auto began = std::chrono::steady_clock::now();
  saved_.saver().finish();
  result.checkpoint_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  tell_saved();
}

void RunEvents::tell_saved() {
  for (const StateSaver::Saved& saved : saved_.saver().take_saved()) {
    if (job_.rank() == 0)
      recorder_.event("checkpoint",
                      R"({"step": )" + std::to_string(saved.step) + R"(, "bytes": )" + std::to_string(saved.bytes) + "}");
    observers_.tell([&](Observer& observer) { observer.checkpoint(saved.step, checkpoints_); });
  }
}

bool RunEvents::make_room(std::int64_t step, double missing) {
  if (!room_maker_) return false;
  const std::string without_room = without_room_text(state_.step().program(), missing);
  room_maker_(room_ * room_growth);
  timeline_.clear();  // it was of other programs
  room_ *= room_growth;
  const auto rows = static_cast<std::int64_t>(missing);
  line_.note("step " + std::to_string(step) + ": " + without_room + "; it runs again with " + fixed_text(room_, 2) +
             " times the capacity that its strategies ask for");
  if (job_.rank() == 0) {
    recorder_.event("more_room", R"({"step": )" + std::to_string(step) + R"(, "rows": )" + std::to_string(rows) +
                                     R"(, "room": )" + fixed_text(room_, 4) + "}");
  }
  return true;
}

std::string RunEvents::last_step() const {
  return trace_events(state_.step().program(), times_, job_.rank(), job_.host(), began_);
}

void RunEvents::started(double seconds) {
  result.start_seconds = seconds;
  if (job_.rank() == 0) recorder_.start(start_.json(seconds));
  if (const std::string text = start_.text(seconds); !text.empty()) line_.note(text);
}

}  // namespace consist
