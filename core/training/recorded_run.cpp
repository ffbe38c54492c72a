#include "core/training/recorded_run.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/plugin.h"
#include "consist/text.h"
#include "core/connect/agreement.h"
#include "core/lower/program_summary.h"
#include "core/plan/parts.h"
#include "core/program/own_metrics.h"
#include "core/record/job_memory.h"
#include "core/record/observers.h"
#include "core/record/processor_use.h"
#include "core/record/program_texts.h"
#include "core/record/recorder.h"
#include "core/record/run_description.h"
#include "core/record/run_result.h"
#include "core/record/sensor_log.h"
#include "core/record/step_timeline.h"
#include "core/record/step_trace.h"
#include "core/record/traffic.h"
#include "core/state/saved_state.h"
#include "core/training/run_events.h"
#include "core/training/run_measures.h"
#include "core/training/run_settings.h"
#include "core/training/run_text.h"
#include "core/training/session.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

/// At a run's end the stages' programs may be compiled again for so long, to simulate the step.
constexpr double most_compile_seconds = 1;

Output trace_output(const RunConfig& config) {
  return {"--trace", config.trace, config.overwrite};
}

/// True if rank 0 writes an archive, which the other ranks do not know. Called by every rank, once.
bool has_archive(Job& job, const RunConfig& config) {
  return job.broadcast("has_archive", config.archive.empty() ? "no" : "yes", job.timeout()) == "yes";
}

/// True if the device is processors of the host: timing costs nothing there, where a clock is read.
bool is_processor(const Device& device) {
  return device.info().kind == "cpu";
}

// Members are destroyed in the reverse of this order: what a later one refers to outlives it.
class RecordedRun {
 public:
  RecordedRun(const RunContext& context, std::optional<Recorder>& recorder, std::atomic<Recorder*>& open_recorder,
              Observers& observers)
      : context_(context), job_(context.job), recorder_of_run_(recorder), open_recorder_(open_recorder), observers_(observers) {}

  TrainerResult run();

 private:
  bool leads() const noexcept { return job_.rank() == 0; }
  Recorder& recorder() { return *recorder_of_run_; }
  const Continuation& continuation() const noexcept { return context_.hooks.continuation; }
  const Plan& plan() const { return session_->plan(); }
  const RunConfig& config() const { return plan().config(); }
  TrainingState& state() { return session_->state(); }
  std::int64_t last_step() const { return first_step_ + events_->result.steps; }
  bool always_timed() { return timed_throughout_ || (recorded_ && is_processor(session_->device())); }
  void open_data(const Plan& plan);
  /// The step and the evaluation of this rank.
  NamedPrograms compile(const Plan& plan) const;

  /// Agrees on the options and on the steps that are left. Returns the plan for these; nothing if none is, and the job has been
  /// left.
  std::optional<Plan> agree();
  /// Opens the device, connects the ranks and prepares the programs at their planned addresses.
  void open(const Plan& plan);
  /// Allocates the states and fills them.
  void fill();
  /// Begins the archive and the observers, and says on the terminal what will run.
  void describe();
  void say_notes();
  /// Records for which failures the ranks of this run were replaced, and says where it goes on.
  void tell_restarts();
  TrainerResult train_steps();
  /// Tells the other ranks that this one ends by `error`. Throws what saving met before, where that made this rank fail.
  void fail(const std::exception& error);
  /// Adds the figures of the whole job to the result, writes them into the archive and prints them.
  void finish(TrainerResult result);
  void record_programs();
  void add_memory();
  void end_archive(TrainerResult result);
  void print(TrainerResult result);

  const RunContext& context_;
  JoinedJob& job_;
  std::optional<Recorder>& recorder_of_run_;
  std::atomic<Recorder*>& open_recorder_;
  Observers& observers_;
  StartTimes start_;
  RunData data_;
  std::optional<SavedState> saved_;
  std::optional<Session> session_;
  double compile_seconds_ = 0;
  std::int64_t to_host_ = 0;
  Bound measured_;
  bool recorded_ = false;          // rank 0 writes an archive
  bool timed_throughout_ = false;  // as --profile and --trace ask for
  std::int64_t first_step_ = 0;
  TimedSteps timed_;
  std::optional<SensorLog> sensors_;
  ProgramSummary summary_;
  PlannedMemory planned_;
  std::optional<RunEvents> events_;
  std::string data_text_, idle_text_;
};

void RecordedRun::open_data(const Plan& plan) {
  data_ = open_dataset(plan.parts(), plan.config(), plan.host());
  if (leads()) {
    for (const std::string& warning : data_.dataset->warnings()) log::warn(warning);
  }
  start_.finished("dataset");
}

NamedPrograms RecordedRun::compile(const Plan& plan) const {
  NamedPrograms programs;
  programs.push_back({train_program, plan.step(job_.rank())});
  if (std::optional<Program> evaluation = plan.evaluation(job_.rank()))
    programs.push_back({evaluate_program, std::move(*evaluation)});
  return programs;
}

std::optional<Plan> RecordedRun::agree() {
  Plan plan = context_.plan;
  agree_on_options(job_, plan.config());
  if (leads() && !plan.config().trace.empty()) check_output(trace_output(plan.config()));
  if (plan.config().epochs > 0) {  // what a checkpoint, the schedule and the archive say depends on the number of steps
    open_data(plan);
    EpochSteps epochs = steps_of_epochs(plan.config(), *data_.dataset, plan.layout());
    plan = plan.with_choices({.steps = epochs.steps, .notes = {std::move(epochs.note)}});
  }
  saved_.emplace(plan.config(), context_.plan.parts(), plan.layout(), job_, continuation());
  if (saved_->nothing_left()) {
    job_.leave(job_.timeout());
    return std::nullopt;
  }
  return plan.with_room(saved_->room());
}

void RecordedRun::open(const Plan& planned) {
  session_.emplace(planned, job_, &start_);
  NamedPrograms programs = compile(plan());
  const Program& step = programs.front().program;
  const int stages = step.stage_axis < 0 ? 1 : step.mesh.size_of(step.stage_axis);
  if (context_.samples != nullptr) {
    for (NamedProgram& text : sample_programs(plan(), step, *context_.samples, job_.rank())) programs.push_back(std::move(text));
  }
  start_.finished("program");
  compile_seconds_ = start_.parts().back().second * stages;
  if (data_.dataset == nullptr) open_data(plan());
  saved_->begin(config(), *data_.dataset, plan().target().device);
  try {
    session_->prepare(std::move(programs));
  } catch (const TooLarge& refusal) {
    if (!context_.hooks.refused) throw;
    throw UsageError(refusal.what() + context_.hooks.refused(plan(), {session_->memory_limit(), refusal.bytes()}));
  }
  tell_bytes(job_, "planned", state().planned_bytes());
  tell_bytes(job_, "planned_host", state().planned_host_bytes());
  to_host_ = bytes_to_host(state().step().program());
  if (config().offload.any()) tell_bytes(job_, "to_host", to_host_);
  // All ranks at once, and while there is memory for its product.
  measured_ = bound_of(plan());
  start_.finished("bound");
  fill();
}

void RecordedRun::fill() {
  const bool is_free = is_processor(session_->device());
  recorded_ = has_archive(job_, config());
  timed_throughout_ = config().profile || !config().trace.empty();
  const auto timed_of = [&](std::int64_t steps) {
    return recorded_ ? timed_steps(steps, timed_throughout_ || is_free) : TimedSteps{};
  };
  const bool timed_at_first = timed_throughout_ || timed_of(config().steps).any();
  state().allocate(timed_at_first);
  start_.finished("memory");
  first_step_ = saved_->fill(state());
  timed_ = timed_of(config().steps - first_step_);
  if (timed_at_first && !timed_throughout_ && !timed_.any()) state().step().set_timing(false);  // few steps are left
  start_.finished("weights");
}

void RecordedRun::describe() {
  const Communicators& communicators = session_->communicators();
  sensors_.emplace(session_->device());
  summary_ = summarize(state().step());
  planned_ = {largest_bytes(job_, "planned", state().planned_bytes()),
              largest_bytes(job_, "planned_host", state().planned_host_bytes())};
  const std::string description = leads() ? banner(plan(), *data_.dataset, planned_, communicators, summary_) : "";
  const bool observed = continuation().observed();
  if (continuation().board != nullptr) continuation().board->set_observed();
  const std::vector<OwnMetric> metrics = own_metrics(state().step().program());
  observers_.begin({.configuration = config().to_json(),
                    .description = description,
                    .first_step = first_step_,
                    .steps = config().steps,
                    .overwrite = config().overwrite || observed,
                    .evaluate_every = config().evaluate_every,
                    .mixture = !state().step().program().routers.empty(),
                    .metrics = metrics,
                    .loss_unit = plan().parts().loss_unit()});
  open_recorder_ = &recorder_of_run_.emplace(config(), first_step_, continuation().archived());
  recorder().describe(environment_json(job_, session_->device(), session_->machine(), communicators, plan().host()),
                      topology_json(plan(), communicators), program_json(summary_, planned_), sensors_->newest(),
                      state().has_metric(state().step(), "aux_loss"), state().step().program().routers, metrics,
                      plan().parts().loss_unit());
  if (continuation().board != nullptr) continuation().board->set_archived();
  if (leads()) {
    std::fprintf(stderr, "%s\n", printable(description).c_str());
    if (const std::string unkept = unkept_text(config()); !unkept.empty()) std::fprintf(stderr, "note: %s\n", unkept.c_str());
    if (config().offload.any()) {
      const std::vector<int> none = ranks_without_bytes(job_, "to_host", to_host_);
      if (!none.empty()) log::warn(nothing_moves_text(config().offload, none, job_.size()));
    }
    if (first_step_ > 0) std::fprintf(stderr, "resumed after step %lld\n", static_cast<long long>(first_step_));
    tell_restarts();
    if (const std::string change = saved_->schedule_change(plan().host()); !change.empty()) {
      log::warn(change);
      recorder().event("schedule", change);
    }
  }
  start_.finished("archive");
  say_notes();
}

void RecordedRun::tell_restarts() {
  if (continuation().board == nullptr) return;
  const std::string from = saved_->source();
  const std::optional<double> lost = continuation().board->seconds_since_step(first_step_);
  for (const RestartReason& reason : continuation().board->take_reasons()) {
    recorder().event("restart", restart_event(reason, first_step_, from, lost));
    std::fprintf(stderr, "%s\n", printable(restart_text(reason, first_step_, from, lost)).c_str());
  }
  if (const std::optional<NodeChange> change = continuation().board->take_change()) {
    recorder().event("nodes", nodes_event(*change, first_step_));
    std::fprintf(stderr, "%s\n", printable(nodes_text(*change, first_step_)).c_str());
  }
}

void RecordedRun::say_notes() {
  if (leads() && context_.hooks.before_training) {
    const RunMemory memory{session_->memory_limit(), planned_.device.bytes};
    for (const std::string& note : context_.hooks.before_training(plan(), memory, compile_seconds_)) {
      std::fprintf(stderr, "note: %s\n", printable(note).c_str());
      recorder().event("advice", note);
    }
  }
  start_.finished("advice");
}

TrainerResult RecordedRun::train_steps() {
  events_.emplace(config(), job_, state(), *saved_, first_step_, context_.stop, recorder(), observers_, *sensors_, start_, timed_,
                  RankWatch::Devices{.timed = always_timed(), .processors = is_processor(session_->device())});
  events_->set_samples(context_.samples);
  events_->set_board(continuation().board);
  events_->begin_with_room(saved_->room());
  if (state().has_metric(state().step(), "overflow")) {
    events_->set_room_maker([this](double room) {
      const Plan roomier = plan().with_room(room);
      saved_->set_room(room);
      session_->replace(roomier, compile(roomier), always_timed());
    });
  }
  const ProcessorWatch watch;
  const std::int64_t sample_every = context_.samples == nullptr ? 0 : context_.samples->every;
  TrainerResult result;
  try {
    result = train(state(), *data_.dataset, plan().layout(), job_.rank(),
                   trainer_settings(config(), plan().parts(), first_step_, sample_every,
                                    continuation().snapshots.empty() ? 0 : continuation().snapshot_every),
                   *events_);
    events_->finish_saving();
  } catch (const std::exception& error) {
    fail(error);  // before anything is destroyed, which may have to wait for the other ranks
    throw;
  }
  events_->result.processors = watch.finish(job_);
  events_->close();
  events_->begins(Activity::exporting, last_step(), 0);
  if (result == TrainerResult::finished) saved_->export_model(state());
  return result;
}

void RecordedRun::fail(const std::exception& error) {
  // A checkpoint that is being written is worth its time; where another rank has failed, it ends at once.
  const std::exception_ptr of_saving = saved_->saver().settle();
  job_.fail(error.what());
  if (of_saving == nullptr || dynamic_cast<const PeerError*>(&error) == nullptr) return;
  try {
    std::rethrow_exception(of_saving);
  } catch (const PeerError&) {
    // The failure of another rank, which `error` is, too.
  }
}

void RecordedRun::add_memory() {
  if (events_->room() > 1) {
    tell_bytes(job_, "planned_with_room", state().planned_bytes());
    planned_.device = largest_bytes(job_, "planned_with_room", state().planned_bytes());
    recorder().program(program_json(summarize(state().step()), planned_));
  }
  events_->result.planned = planned_;
  const std::int64_t peak = session_->device().counters().peak_bytes;
  tell_bytes(job_, "measured_peak", peak);
  events_->result.measured_peak = largest_bytes(job_, "measured_peak", peak);
}

void RecordedRun::record_programs() {
  const Mesh& mesh = plan().layout().mesh;
  recorder().traffic(traffic_json(traffic(mesh, summary_, session_->communicators()), events_->result.steps));
  if (!recorded_) return;
  recorder().timeline(timeline_json(job_, plan(), state().step(), events_->timeline(), compile_seconds_ <= most_compile_seconds));
  recorder().programs(programs_json(job_, state().step().program(), config().ranks));
}

void RecordedRun::end_archive(TrainerResult result) {
  const bool finished = result == TrainerResult::finished;
  const std::string status = finished ? "finished" : "stopped", reason = finished ? events_->reason_to_end()
                                                                         : result == TrainerResult::paused
                                                                             ? "more ranks are to go on"
                                                                             : "a signal asked for it";
  recorder().finish(status, reason, &events_->result);
  const std::string json = result_json(events_->result);
  const bool paused = result == TrainerResult::paused;
  observers_.tell([&](Observer& observer) {
    if (!paused) observer.result(json);
    observer.end(paused ? "paused" : status, reason);
  });
}

void RecordedRun::finish(TrainerResult result) {
  add_memory();
  data_text_ = text_of_parts(data_, plan(), last_step());
  if (!data_text_.empty()) recorder().event("data", data_text_);
  record_programs();
  add_rates(events_->result, plan(), *events_);
  const Bound bound = checked_bound(measured_, events_->result.model_flops);
  events_->result.bound_flops = bound.flops;
  events_->result.bound_problem = bound.problem;
  if (config().profile) {
    const Program& step = state().step().program();
    Json profile = Json::parse(events_->profile().json(step));
    idle_text_ = measure_bubble(job_, plan(), step, *events_, profile);
    recorder().profile(profile.dump());
  }
  if (!config().trace.empty()) write_trace(job_, trace_output(config()), events_->last_step());
  job_.leave(job_.timeout());
  events_->result.total_seconds = seconds_since_start();
  events_->result.ended = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  end_archive(result);
  if (result != TrainerResult::paused) print(result);
}

void RecordedRun::print(TrainerResult result) {
  if (leads()) {
    print_result(*events_);
    print_early_end(config(), last_step(), events_->reason_to_end());
    if (!data_text_.empty()) std::printf("data: %s\n", printable(data_text_).c_str());
    const std::string cost =
        cost_text(config(), session_->machine(), session_->device().info().name, events_->result.total_seconds);
    std::fputs(printable(cost).c_str(), stdout);
    print_written(config(), plan().host(), last_step(), result == TrainerResult::finished);
    if (result == TrainerResult::stopped) print_stop(config(), last_step());
  }
  std::fputs(printable(idle_text_).c_str(), stdout);
  if (leads() && config().profile) std::fputs(printable(events_->profile().text(state().step().program())).c_str(), stdout);
}

TrainerResult RecordedRun::run() {
  const std::optional<Plan> plan = agree();
  if (!plan) return TrainerResult::finished;
  open(*plan);
  if (!context_.stop.begin_training()) {
    job_.fail("it was asked to stop before the first step");
    return TrainerResult::stopped;
  }
  describe();
  const TrainerResult result = train_steps();
  finish(result);
  return result;
}

}  // namespace

TrainerResult run_recorded(const RunContext& context, std::optional<Recorder>& recorder, std::atomic<Recorder*>& open_recorder,
                           Observers& observers) {
  return RecordedRun(context, recorder, open_recorder, observers).run();
}

}  // namespace consist
