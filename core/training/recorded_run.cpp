#include "core/training/recorded_run.h"

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
#include "core/connect/communicators.h"
#include "core/connect/device_options.h"
#include "core/connect/host_memory.h"
#include "core/lower/program_summary.h"
#include "core/plan/links.h"
#include "core/plan/machine_choice.h"
#include "core/plan/parts.h"
#include "core/record/job_memory.h"
#include "core/record/observers.h"
#include "core/record/processor_use.h"
#include "core/record/program_texts.h"
#include "core/record/recorder.h"
#include "core/record/run_description.h"
#include "core/record/sensor_log.h"
#include "core/record/step_timeline.h"
#include "core/record/step_trace.h"
#include "core/record/traffic.h"
#include "core/state/saved_state.h"
#include "core/training/run_events.h"
#include "core/training/run_measures.h"
#include "core/training/run_setup.h"
#include "core/training/run_text.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

/// At a run's end the stages' programs may be compiled again for so long, to simulate the step.
constexpr double most_compile_seconds = 1;

/// Lists what the steps up to `step` have read of each part of a mixture; empty without a mixture.
std::string text_of_parts(const Parts& parts, const RunConfig& config, const Layout& layout, std::int64_t step) {
  if (parts.mixture == nullptr) return "";
  return "steps 1 to " + std::to_string(step) + ": " +
         parts.mixture->text_of_first(step * config.batch * config.accumulation * layout.batch_ranks());
}

TrainerSettings trainer_settings(const RunConfig& config, const Parts& parts, std::int64_t first_step,
                                 std::int64_t sample_every) {
  // A folder without an interval: one checkpoint at the end.
  const std::int64_t checkpoint_every = config.checkpoint.empty() || config.checkpoint_each_epoch ? config.checkpoint_every
                                        : config.checkpoint_every > 0                             ? config.checkpoint_every
                                                                                                  : config.steps;
  return {.first_step = first_step,
          .steps = config.steps,
          .micro_batch = config.batch,
          .sequence = config.sequence,
          .accumulation = config.accumulation,
          .learning_rate = config.learning_rate,
          .schedule = parts.schedule.get(),
          .optimizer = parts.optimizer.get(),
          .evaluate_every = config.evaluate_every,
          .evaluate_sequences = config.evaluate_sequences,
          .checkpoint_every = checkpoint_every,
          .sample_every = sample_every,
          .checkpoint_each_epoch = config.checkpoint_each_epoch,
          .dataset = config.dataset};
}

Output trace_output(const RunConfig& config) {
  return {"--trace", config.trace, config.overwrite};
}

/// True if rank 0 writes an archive, which the other ranks do not know. Called by every rank, once.
bool has_archive(Job& job, const RunConfig& config) {
  constexpr const char* key = "has_archive";
  if (job.rank() != 0) return job.get(key, job.timeout()) == "yes";
  job.put(key, config.archive.empty() ? "no" : "yes");
  return !config.archive.empty();
}

/// True if timing costs nothing: a processor reads a clock.
bool timing_is_free(const Parts& parts) {
  return parts.device->info().kind == "cpu";
}

// Members are destroyed in the reverse of this order: what a later one refers to outlives it.
class RecordedRun {
 public:
  RecordedRun(const RunContext& context, std::optional<Recorder>& recorder, std::atomic<Recorder*>& open_recorder,
              Observers& observers)
      : context_(context),
        plan_(context.plan),
        config_(plan_.config()),
        parts_(plan_.parts()),
        job_(context.job),
        recorder_of_run_(recorder),
        open_recorder_(open_recorder),
        observers_(observers) {}

  TrainerResult run();

 private:
  bool leads() const noexcept { return job_.rank() == 0; }
  Recorder& recorder() { return *recorder_of_run_; }
  std::int64_t last_step() const { return first_step_ + events_->result.steps; }
  void open_dataset();
  /// Agrees on the options and on the steps that are left. False: none is, and the job has been left.
  bool agree();
  /// Opens the device and compiles the programs for it.
  void compile();
  /// Connects the ranks and prepares the programs at their planned addresses.
  void connect();
  /// Allocates the states and fills them.
  void fill();
  /// Begins the archive and the observers, and says on the terminal what will run.
  void describe();
  void advise();
  TrainerResult train_steps();
  /// Adds the figures of the whole job to the result and writes them into the archive.
  void record(TrainerResult result);
  void add_memory();
  void print(TrainerResult result);

  const RunContext& context_;
  Plan& plan_;
  RunConfig& config_;
  Parts& parts_;
  JoinedJob& job_;
  std::optional<Recorder>& recorder_of_run_;
  std::atomic<Recorder*>& open_recorder_;
  Observers& observers_;
  StartTimes start_;
  std::optional<SavedState> saved_;
  MachineChoice machine_;
  std::optional<Program> step_, evaluation_;
  std::optional<TextPrograms> text_;
  double compile_seconds_ = 0;
  std::optional<Communicators> communicators_;
  std::unique_ptr<TrainingState> state_;
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

void RecordedRun::open_dataset() {
  add_dataset(parts_, config_, plan_.host());
  if (leads()) {
    for (const std::string& warning : parts_.dataset->warnings()) log::warn(warning);
  }
  if (config_.epochs > 0) settle_steps(config_, *parts_.dataset, plan_.layout());
  start_.finished("dataset");
}

bool RecordedRun::agree() {
  agree_on_options(job_, config_);
  if (leads() && !config_.trace.empty()) check_output(trace_output(config_));
  if (config_.epochs > 0) open_dataset();  // what a checkpoint, the schedule and the archive say depends on the number of steps
  saved_.emplace(config_, parts_, plan_.layout(), job_);
  if (saved_->nothing_left()) {
    job_.leave(job_.timeout());
    return false;
  }
  plan_.set_room(saved_->room());
  return true;
}

void RecordedRun::compile() {
  for (const std::string& note : open_device(parts_, config_, plan_.host(), job_)) config_.notes.push_back(note);
  machine_ = agree_on_machine(job_, parts_.device->info(), config_.machine);
  if (!machine_.note.empty()) config_.notes.push_back(machine_.note);
  start_.finished("device");
  plan_for_device(plan_, job_, machine_.machine);
  step_ = plan_.step(job_.rank());
  const int stages = step_->stage_axis < 0 ? 1 : step_->mesh.size_of(step_->stage_axis);
  evaluation_ = plan_.evaluation(job_.rank());
  if (context_.samples != nullptr) text_ = sample_programs(plan_, *step_, *context_.samples, job_.rank());
  start_.finished("program");
  compile_seconds_ = start_.parts().back().second * stages;
  if (parts_.dataset == nullptr) open_dataset();
}

void RecordedRun::connect() {
  std::vector<const Program*> programs{&*step_};
  if (evaluation_) programs.push_back(&*evaluation_);
  if (text_) programs.insert(programs.end(), {&text_->prompt, &text_->next});
  // Before connecting: a rank whose message nobody receives would wait for a connection.
  agree_on_programs(job_, "collectives", programs);
  communicators_.emplace(plan_.layout().mesh, job_, *parts_.device, transport_maker(plan_), programs);
  start_.finished("connecting");
  state_.reset(new TrainingState(make_state(plan_, std::move(*step_), std::move(evaluation_), *communicators_, job_.rank(),
                                            context_.adviser, std::move(text_))));
  programs = {&state_->step().program()};
  for (PreparedProgram* more : {state_->evaluation(), state_->prompt(), state_->next()}) {
    if (more != nullptr) programs.push_back(&more->program());
  }
  agree_on_programs(job_, "planned collectives", programs);
  check_host_memory(job_, state_->planned_host_bytes(), config_.host_memory_limit);
  tell_bytes(job_, "planned", state_->planned_bytes());
  tell_bytes(job_, "planned_host", state_->planned_host_bytes());
  to_host_ = bytes_to_host(state_->step().program());
  if (config_.offload.any()) tell_bytes(job_, "to_host", to_host_);
  start_.finished("kernels");
  // All ranks at once, and while there is memory for its product.
  measured_ = bound_of(parts_, config_);
  start_.finished("bound");
}

void RecordedRun::fill() {
  recorded_ = has_archive(job_, config_);
  timed_throughout_ = config_.profile || !config_.trace.empty();
  const auto timed_of = [&](std::int64_t steps) {
    return recorded_ ? timed_steps(steps, timed_throughout_ || timing_is_free(parts_)) : TimedSteps{};
  };
  const bool timed_at_first = timed_throughout_ || timed_of(config_.steps).any();
  state_->allocate(timed_at_first);
  start_.finished("memory");
  first_step_ = saved_->fill(*state_);
  timed_ = timed_of(config_.steps - first_step_);
  if (timed_at_first && !timed_throughout_ && !timed_.any()) state_->step().set_timing(false);  // few steps are left
  start_.finished("weights");
}

void RecordedRun::describe() {
  PluginHost& host = plan_.host();
  sensors_.emplace(*parts_.device);
  summary_ = summarize(state_->step());
  planned_ = {largest_bytes(job_, "planned", state_->planned_bytes()),
              largest_bytes(job_, "planned_host", state_->planned_host_bytes())};
  const std::string description = leads() ? banner(plan_, planned_, *communicators_, summary_) : "";
  observers_.begin({.configuration = config_.to_json(),
                    .description = description,
                    .first_step = first_step_,
                    .steps = config_.steps,
                    .overwrite = config_.overwrite,
                    .mixture = !state_->step().program().routers.empty()});
  open_recorder_ = &recorder_of_run_.emplace(config_, first_step_);
  recorder().describe(environment_json(job_, *parts_.device, machine_, *communicators_, host),
                      topology_json(plan_, *communicators_), program_json(summary_, planned_), sensors_->newest(),
                      state_->has_metric(state_->step(), "aux_loss"), state_->step().program().routers);
  if (leads()) {
    std::fprintf(stderr, "%s\n", printable(description).c_str());
    if (const std::string unkept = unkept_text(config_); !unkept.empty()) std::fprintf(stderr, "note: %s\n", unkept.c_str());
    if (config_.offload.any()) {
      const std::vector<int> none = ranks_without_bytes(job_, "to_host", to_host_);
      if (!none.empty()) log::warn(nothing_moves_text(config_.offload, none, job_.size()));
    }
    if (first_step_ > 0) std::fprintf(stderr, "resumed after step %lld\n", static_cast<long long>(first_step_));
    if (const std::string change = saved_->schedule_change(host); !change.empty()) {
      log::warn(change);
      recorder().event("schedule", change);
    }
  }
  start_.finished("archive");
}

void RecordedRun::advise() {
  if (leads() && context_.adviser != nullptr) {
    const RunMemory memory{memory_limit(config_, *parts_.device), planned_.device.bytes};
    for (const std::string& note : context_.adviser->faster(plan_, memory, compile_seconds_)) {
      std::fprintf(stderr, "note: %s\n", printable(note).c_str());
      recorder().event("advice", note);
    }
  }
  start_.finished("advice");
}

TrainerResult RecordedRun::train_steps() {
  events_.emplace(config_, job_, *state_, *saved_, first_step_, context_.stop, recorder(), observers_, *sensors_, start_, timed_);
  events_->set_samples(context_.samples);
  events_->begin_with_room(saved_->room());
  if (state_->has_metric(state_->step(), "overflow")) {
    events_->set_room_maker([this](double room) {
      plan_.set_room(room);
      saved_->set_room(room);
      state_->replace_programs(plan_.step(job_.rank()), plan_.evaluation(job_.rank()), communicators_->by_queue(),
                               timed_throughout_ || (recorded_ && timing_is_free(parts_)));
    });
  }
  const ProcessorWatch watch;
  const std::int64_t sample_every = context_.samples == nullptr ? 0 : context_.samples->every;
  TrainerResult result;
  try {
    result = train(*state_, *parts_.dataset, plan_.layout(), job_.rank(),
                   trainer_settings(config_, parts_, first_step_, sample_every), *events_);
  } catch (const std::exception& error) {
    job_.fail(error.what());  // before anything is destroyed, which may have to wait for the other ranks
    throw;
  }
  events_->result.processors = watch.finish(job_);
  events_->close();
  events_->begins(Activity::exporting, last_step(), 0);
  if (result == TrainerResult::finished) saved_->export_model(*state_);
  return result;
}

void RecordedRun::add_memory() {
  if (events_->room() > 1) {
    tell_bytes(job_, "planned_with_room", state_->planned_bytes());
    planned_.device = largest_bytes(job_, "planned_with_room", state_->planned_bytes());
    recorder().program(program_json(summarize(state_->step()), planned_));
  }
  events_->result.planned = planned_;
  const std::int64_t peak = parts_.device->counters().peak_bytes;
  tell_bytes(job_, "measured_peak", peak);
  events_->result.measured_peak = largest_bytes(job_, "measured_peak", peak);
}

void RecordedRun::record(TrainerResult result) {
  const Mesh& mesh = plan_.layout().mesh;
  const Program& step = state_->step().program();
  add_memory();
  data_text_ = text_of_parts(parts_, config_, plan_.layout(), last_step());
  if (!data_text_.empty()) recorder().event("data", data_text_);
  recorder().traffic(traffic_json(traffic(mesh, summary_, *communicators_), events_->result.steps));
  if (recorded_) {
    recorder().timeline(
        timeline_json(job_, plan_, state_->step(), events_->timeline(), compile_seconds_ <= most_compile_seconds));
    recorder().programs(programs_json(job_, step, config_.ranks));
  }
  add_rates(events_->result, config_, parts_, *events_);
  const Bound bound = checked_bound(measured_, events_->result.model_flops);
  events_->result.bound_flops = bound.flops;
  events_->result.bound_problem = bound.problem;
  if (config_.profile) {
    Json profile = Json::parse(events_->profile().json(step));
    idle_text_ = measure_bubble(job_, mesh, step, *events_, profile);
    recorder().profile(profile.dump());
  }
  if (!config_.trace.empty()) write_trace(job_, trace_output(config_), events_->last_step());
  job_.leave(job_.timeout());
  events_->result.total_seconds = seconds_since_start();
  const bool finished = result == TrainerResult::finished;
  const std::string status = finished ? "finished" : "stopped", reason = finished ? "" : "a signal asked for it";
  recorder().finish(status, reason, &events_->result);
  observers_.tell([&](Observer& observer) { observer.end(status, reason); });
}

void RecordedRun::print(TrainerResult result) {
  if (leads()) {
    print_result(*events_);
    if (!data_text_.empty()) std::printf("data: %s\n", printable(data_text_).c_str());
    const std::string cost = cost_text(config_, machine_, parts_.device->info().name, events_->result.total_seconds);
    std::fputs(printable(cost).c_str(), stdout);
    print_written(config_, plan_.host(), last_step(), result == TrainerResult::finished);
    if (result == TrainerResult::stopped) print_stop(config_, last_step());
  }
  std::fputs(printable(idle_text_).c_str(), stdout);
  if (leads() && config_.profile) std::fputs(printable(events_->profile().text(state_->step().program())).c_str(), stdout);
}

TrainerResult RecordedRun::run() {
  if (!agree()) return TrainerResult::finished;
  compile();
  connect();
  fill();
  if (!context_.stop.begin_training()) {
    job_.fail("it was asked to stop before the first step");
    return TrainerResult::stopped;
  }
  describe();
  advise();
  const TrainerResult result = train_steps();
  record(result);
  print(result);
  return result;
}

}  // namespace

TrainerResult run_recorded(const RunContext& context, std::optional<Recorder>& recorder, std::atomic<Recorder*>& open_recorder,
                           Observers& observers) {
  return RecordedRun(context, recorder, open_recorder, observers).run();
}

}  // namespace consist
