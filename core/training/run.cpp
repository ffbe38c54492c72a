#include "core/training/run.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/log.h"
#include "consist/plugin.h"
#include "consist/text.h"
#include "core/archive/archive.h"
#include "core/archive/past.h"
#include "core/connect/agreement.h"
#include "core/connect/communicators.h"
#include "core/connect/device_options.h"
#include "core/connect/host_memory.h"
#include "core/connect/last_resort.h"
#include "core/lower/program_summary.h"
#include "core/plan/links.h"
#include "core/plan/machine_choice.h"
#include "core/plan/parts.h"
#include "core/plugin/option_roles.h"
#include "core/record/bound.h"
#include "core/record/bubble_fraction.h"
#include "core/record/job_memory.h"
#include "core/record/metrics.h"
#include "core/record/observers.h"
#include "core/record/processor_use.h"
#include "core/record/program_texts.h"
#include "core/record/rank_speeds.h"
#include "core/record/recorder.h"
#include "core/record/run_description.h"
#include "core/record/sensor_log.h"
#include "core/record/step_timeline.h"
#include "core/record/step_trace.h"
#include "core/record/traffic.h"
#include "core/state/saved_state.h"
#include "core/training/run_events.h"
#include "core/training/run_setup.h"
#include "core/training/run_text.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

/// At a run's end the stages' programs may be compiled again for so long, to simulate the step.
constexpr double most_compile_seconds = 1;

/// Rate of the model's largest linear on this rank, all ranks measuring at once as they train at once. None for a short run.
Bound bound_of(const Parts& parts, const RunConfig& config) {
  const double tokens = static_cast<double>(config.batch) * static_cast<double>(config.sequence) * config.accumulation *
                        static_cast<double>(config.steps);
  std::string too_short = too_short_for_bound(tokens * trained_flops_per_token(*parts.architecture, config.sequence, config.freeze));
  if (!too_short.empty()) return {0, std::move(too_short)};
  const ModelSizes sizes = parts.architecture->sizes();
  const DType operand = parts.precision->peak() == "fp8" ? DType::e4m3 : parts.precision->dtypes().parameter;
  const bool on_processor = parts.device->info().kind == "cpu";  // another device works on while the host's threads wait
  return measure_bound(
      [&] { return parts.device->measure_matmul(operand, config.batch * config.sequence, sizes.ffn, sizes.hidden); },
      [&] { return on_processor ? seconds_waited_for_processor() : -1; });
}

/// The steady state's rates, and what they are held against.
void add_rates(RunResult& result, const RunConfig& config, const Parts& parts, const RunEvents& events) {
  result.peak_flops = peak_flops(parts.device->info(), parts.precision->peak());
  const Steady steady = steady_state(events.seconds());
  if (steady.steps == 0) return;
  result.tokens_per_second = static_cast<double>(events.tokens()) / steady.median_seconds;
  result.samples_per_second = static_cast<double>(events.sequences()) / steady.median_seconds;
  result.model_flops =
      result.tokens_per_second * trained_flops_per_token(*parts.architecture, config.sequence, config.freeze) / config.ranks;
}

/// Pipelines only: on rank 0 reports how long the ranks waited and how fast they are, as text and in `profile`. Called by every
/// rank.
std::string measure_bubble(Job& job, const Mesh& mesh, const Program& program, const RunEvents& events, Json& profile) {
  const std::vector<double>& seconds = events.seconds();
  if (program.stage_axis < 0 || events.profile().steps() == 0) return {};
  const double mean = std::accumulate(seconds.begin() + 1, seconds.end(), 0.0) / static_cast<double>(seconds.size() - 1);
  const std::vector<double> shares = collect_bubble_fractions(job, bubble_fraction(program, events.profile(), mean));
  const std::vector<OpTimes> times = collect_op_times(job, op_times(program, events.profile()));
  const std::vector<StageOutline> stages = collect_outlines(job, program, events.profile());
  if (job.rank() != 0) return {};
  const BubbleReport report = report_bubble(shares, stages);
  profile["idle_share"] = {{"ranks", report.ranks},
                           {"mean", report.mean},
                           {"equal_stages", report.equal_stages},
                           {"by_ops", report.by_ops},
                           {"by_times", report.by_times}};
  const std::vector<double> speeds = rank_speeds(times);
  profile["rank_speeds"] = speeds;
  return bubble_text(report) + "speeds beside one another by the ops that all have, for --pipeline.rank-speeds: " +
         stage_speeds_text(speeds, mesh, program.stage_axis) + "\n";
}

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

/// Throws unless the archive can be written and, with --resume, continued.
void check_archive(const RunConfig& config, PluginHost& host) {
  if (config.archive.empty()) return;
  std::error_code ignored;
  const bool goes_on = config.resume && !config.overwrite && std::filesystem::is_regular_file(config.archive, ignored);
  check_archive_path(config.archive, config.overwrite || goes_on);
  // Where results go may differ, and where code lies: an archive cannot give these (--config run.h5).
  const auto may_differ = [&](const std::string& option) { return role_in_file(option, host) != OptionRole::setting; };
  if (goes_on) check_same_run(config.archive, config.to_json(), RunConfig{}.to_json(), may_differ);
}

/// True if rank 0 writes an archive, which the other ranks do not know. Called by every rank, once.
bool has_archive(Job& job, const RunConfig& config) {
  constexpr const char* key = "has_archive";
  if (job.rank() != 0) return job.get(key, job.timeout()) == "yes";
  job.put(key, config.archive.empty() ? "no" : "yes");
  return !config.archive.empty();
}

/// `recorder` is made once nothing but training itself can fail: a run that is refused leaves no archive, and an older one as it
/// was.
TrainerResult run_recorded(Plan& plan, JoinedJob& job, StopRequest& stop, Adviser* adviser, const SampleRequest* samples,
                           std::optional<Recorder>& recorder_of_run, std::atomic<Recorder*>& open_recorder,
                           Observers& observers) {
  StartTimes start;
  RunConfig& config = plan.config();
  Parts& parts = plan.parts();
  PluginHost& host = plan.host();
  const Layout& layout = plan.layout();
  agree_on_options(job, config);
  if (job.rank() == 0 && !config.trace.empty()) check_output(trace_output(config));
  const auto open_dataset = [&] {
    add_dataset(parts, config, host);
    if (job.rank() != 0) return;
    for (const std::string& warning : parts.dataset->warnings()) log::warn(warning);
  };
  if (config.epochs > 0) {  // what a checkpoint, the schedule and the archive say depends on the number of steps
    open_dataset();
    settle_steps(config, *parts.dataset, layout);
    start.finished("dataset");
  }
  SavedState saved(config, parts, layout, job);
  if (saved.nothing_left()) {
    job.leave(job.timeout());
    return TrainerResult::finished;
  }
  plan.set_room(saved.room());
  for (const std::string& note : open_device(parts, config, host, job)) config.notes.push_back(note);
  const MachineChoice machine = agree_on_machine(job, parts.device->info(), config.machine);
  if (!machine.note.empty()) config.notes.push_back(machine.note);
  start.finished("device");
  plan_for_device(plan, job, machine.machine);
  Program step = plan.step(job.rank());
  const int stages = step.stage_axis < 0 ? 1 : step.mesh.size_of(step.stage_axis);
  std::optional<Program> evaluation = plan.evaluation(job.rank());
  std::optional<TextPrograms> text;
  if (samples != nullptr) text = sample_programs(plan, step, *samples, job.rank());
  start.finished("program");
  const double compile_seconds = start.parts().back().second * stages;
  if (parts.dataset == nullptr) {
    open_dataset();
    start.finished("dataset");
  }
  std::vector<const Program*> programs{&step};
  if (evaluation) programs.push_back(&*evaluation);
  if (text) programs.insert(programs.end(), {&text->prompt, &text->next});
  // Before connecting: a rank whose message nobody receives would wait for a connection.
  agree_on_programs(job, "collectives", programs);
  const std::string device_kind = parts.device->info().kind;
  const Communicators communicators(layout.mesh, job, *parts.device, transport_maker(plan), programs);
  start.finished("connecting");

  TrainingState state =
      make_state(plan, std::move(step), std::move(evaluation), communicators, job.rank(), adviser, std::move(text));
  programs = {&state.step().program()};
  for (PreparedProgram* more : {state.evaluation(), state.prompt(), state.next()}) {
    if (more != nullptr) programs.push_back(&more->program());
  }
  agree_on_programs(job, "planned collectives", programs);
  check_host_memory(job, state.planned_host_bytes(), config.host_memory_limit);
  tell_bytes(job, "planned", state.planned_bytes());
  tell_bytes(job, "planned_host", state.planned_host_bytes());
  const std::int64_t to_host = bytes_to_host(state.step().program());
  if (config.offload.any()) tell_bytes(job, "to_host", to_host);
  start.finished("kernels");
  // All ranks at once, and while there is memory for its product.
  const Bound measured = bound_of(parts, config);
  start.finished("bound");
  const bool recorded = has_archive(job, config), timed_throughout = config.profile || !config.trace.empty();
  const bool timing_is_free = device_kind == "cpu";  // it reads a clock
  const auto timed_of = [&](std::int64_t steps) {
    return recorded ? timed_steps(steps, timed_throughout || timing_is_free) : TimedSteps{};
  };
  const bool timed_at_first = timed_throughout || timed_of(config.steps).any();
  state.allocate(timed_at_first);
  start.finished("memory");
  const std::int64_t first_step = saved.fill(state);
  const TimedSteps timed = timed_of(config.steps - first_step);
  if (timed_at_first && !timed_throughout && !timed.any()) state.step().set_timing(false);  // few steps are left
  start.finished("weights");
  if (!stop.begin_training()) {
    job.fail("it was asked to stop before the first step");
    return TrainerResult::stopped;
  }
  const SensorLog sensors(*parts.device);
  const ProgramSummary summary = summarize(state.step());
  PlannedMemory planned{largest_bytes(job, "planned", state.planned_bytes()),
                        largest_bytes(job, "planned_host", state.planned_host_bytes())};
  const std::string description = job.rank() == 0 ? banner(plan, planned, communicators, summary) : "";
  observers.begin({.configuration = config.to_json(),
                   .description = description,
                   .first_step = first_step,
                   .steps = config.steps,
                   .overwrite = config.overwrite,
                   .mixture = !state.step().program().routers.empty()});
  Recorder& recorder = recorder_of_run.emplace(config, first_step);
  open_recorder = &recorder;
  recorder.describe(environment_json(job, *parts.device, machine, communicators, host), topology_json(plan, communicators),
                    program_json(summary, planned), sensors.newest(), state.has_metric(state.step(), "aux_loss"),
                    state.step().program().routers);
  if (job.rank() == 0) {
    std::fprintf(stderr, "%s\n", printable(description).c_str());
    if (const std::string unkept = unkept_text(config); !unkept.empty()) std::fprintf(stderr, "note: %s\n", unkept.c_str());
    if (config.offload.any()) {
      const std::vector<int> none = ranks_without_bytes(job, "to_host", to_host);
      if (!none.empty()) log::warn(nothing_moves_text(config.offload, none, job.size()));
    }
    if (first_step > 0) std::fprintf(stderr, "resumed after step %lld\n", static_cast<long long>(first_step));
    if (const std::string change = saved.schedule_change(host); !change.empty()) {
      log::warn(change);
      recorder.event("schedule", change);
    }
  }

  start.finished("archive");
  if (job.rank() == 0 && adviser != nullptr) {
    const RunMemory memory{memory_limit(config, *parts.device), planned.device.bytes};
    for (const std::string& note : adviser->faster(plan, memory, compile_seconds)) {
      std::fprintf(stderr, "note: %s\n", printable(note).c_str());
      recorder.event("advice", note);
    }
  }
  start.finished("advice");
  RunEvents events(config, job, state, saved, first_step, stop, recorder, observers, sensors, start, timed);
  events.set_samples(samples);
  events.begin_with_room(saved.room());
  if (state.has_metric(state.step(), "overflow")) {
    events.set_room_maker([&](double room) {
      plan.set_room(room);
      saved.set_room(room);
      state.replace_programs(plan.step(job.rank()), plan.evaluation(job.rank()), communicators.by_queue(),
                             timed_throughout || (recorded && timing_is_free));
    });
  }
  const ProcessorWatch watch;
  const TrainerResult result = [&] {
    try {
      return train(state, *parts.dataset, layout, job.rank(),
                   trainer_settings(config, parts, first_step, samples == nullptr ? 0 : samples->every), events);
    } catch (const std::exception& error) {
      job.fail(error.what());  // before anything is destroyed, which may have to wait for the other ranks
      throw;
    }
  }();
  events.result.processors = watch.finish(job);
  events.close();
  events.begins(Activity::exporting, first_step + events.result.steps, 0);
  if (result == TrainerResult::finished) saved.export_model(state);
  if (events.room() > 1) {
    tell_bytes(job, "planned_with_room", state.planned_bytes());
    planned.device = largest_bytes(job, "planned_with_room", state.planned_bytes());
    recorder.program(program_json(summarize(state.step()), planned));
  }
  events.result.planned = planned;
  const std::int64_t peak = parts.device->counters().peak_bytes;
  tell_bytes(job, "measured_peak", peak);
  events.result.measured_peak = largest_bytes(job, "measured_peak", peak);
  const std::string data_text = text_of_parts(parts, config, layout, first_step + events.result.steps);
  if (!data_text.empty()) recorder.event("data", data_text);
  recorder.traffic(traffic_json(traffic(layout.mesh, summary, communicators), events.result.steps));
  if (recorded) {
    recorder.timeline(timeline_json(job, plan, state.step(), events.timeline(), compile_seconds <= most_compile_seconds));
    recorder.programs(programs_json(job, state.step().program(), config.ranks));
  }
  add_rates(events.result, config, parts, events);
  const Bound bound = checked_bound(measured, events.result.model_flops);
  events.result.bound_flops = bound.flops;
  events.result.bound_problem = bound.problem;
  std::string idle;
  if (config.profile) {
    Json profile = Json::parse(events.profile().json(state.step().program()));
    idle = measure_bubble(job, layout.mesh, state.step().program(), events, profile);
    recorder.profile(profile.dump());
  }
  if (!config.trace.empty()) write_trace(job, trace_output(config), events.last_step());
  job.leave(job.timeout());
  events.result.total_seconds = seconds_since_start();
  recorder.finish(result == TrainerResult::finished ? "finished" : "stopped",
                  result == TrainerResult::finished ? "" : "a signal asked for it", &events.result);
  observers.tell([&](Observer& observer) {
    observer.end(result == TrainerResult::finished ? "finished" : "stopped",
                 result == TrainerResult::finished ? "" : "a signal asked for it");
  });
  if (job.rank() == 0) {
    print_result(events);
    if (!data_text.empty()) std::printf("data: %s\n", printable(data_text).c_str());
    const std::string cost = cost_text(config, machine, parts.device->info().name, events.result.total_seconds);
    std::fputs(printable(cost).c_str(), stdout);
    print_written(config, host, first_step + events.result.steps, result == TrainerResult::finished);
  }
  if (job.rank() == 0 && result == TrainerResult::stopped) print_stop(config, first_step + events.result.steps);
  std::fputs(printable(idle).c_str(), stdout);
  if (job.rank() == 0 && config.profile) {
    std::fputs(printable(events.profile().text(state.step().program())).c_str(), stdout);
  }
  return result;
}

}  // namespace

TrainerResult run_training(Plan plan, JoinedJob& job, StopRequest& stop, Adviser* adviser, const SampleRequest* samples) {
  RunConfig& config = plan.config();
  if (config.ranks != job.size()) {
    throw UsageError("--ranks is " + std::to_string(config.ranks) + ", but the job has " + std::to_string(job.size()) + " ranks");
  }
  if (job.rank() != 0) config.archive.clear();
  Observers observers;
  std::optional<Recorder> recorder;
  std::atomic<Recorder*> open_recorder{nullptr};
  const auto end_archive = [&](const std::string& reason) {
    if (Recorder* const open = open_recorder.load()) open->finish_failed(reason);
  };
  const LastResort last_resort(job, end_archive);
  try {
    check_archive(config, plan.host());
    if (job.rank() == 0) observers = Observers(config, plan.host());
    return run_recorded(plan, job, stop, adviser, samples, recorder, open_recorder, observers);
  } catch (const std::exception& error) {
    job.fail(error.what());
    observers.tell([&](Observer& observer) { observer.end("failed", error.what()); });
    try {
      if (recorder) recorder->event("failure", error.what());
      if (recorder) recorder->finish("failed", error.what(), nullptr);
    } catch (const std::exception&) {
      // The archive itself failed: what it held stays readable, and the first error is the one to report.
    }
    throw;
  }
}

}  // namespace consist
