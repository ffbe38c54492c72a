#include "core/record/step_timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/cost/simulator.h"
#include "core/cost/step_errors.h"
#include "core/cost/step_time.h"
#include "core/lower/memory_plan.h"
#include "core/plan/machine_choice.h"
#include "core/program/operands.h"
#include "core/record/metrics.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t memory_points = 400;
constexpr std::int64_t steps_to_record = 2;  // a device runs a new executable once, and records it in the next step

/// Whole nanoseconds: more digits would say nothing, and take room.
double rounded(double seconds) {
  return std::round(seconds * 1e9) / 1e9;
}

std::string work_text(const Program& program, const Instruction& i) {
  if (i.queue.is_communication()) return "communication";
  if (i.queue.is_copy()) return "copy";
  return std::string(name_of(work_of(program, i)));
}

/// The parts of a step's time; they sum to `step_seconds`.
Json parts_json(const Program& program, const SimulatedRank& rank, double step_seconds) {
  StepTime time = step_time(program, rank, step_seconds);
  for (double& seconds : time.work) seconds = rounded(seconds);
  for (auto& [axis, seconds] : time.communication) seconds = rounded(seconds);
  time.bubble = program.stage_axis < 0 ? 0 : rounded(time.bubble);  // one rank alone waits for nobody: its step ends with gaps
  time.copies = rounded(time.copies);
  Json json = json_of(time);
  if (program.stage_axis < 0) json.erase("bubble");
  if (rank.for_copies <= 0) json.erase("copies");
  json["gaps"] = rounded(time.gaps());
  return json;
}

Json instructions_json(const Program& program, const std::vector<LaunchTime>& times, const std::vector<double>& exposed) {
  Json columns;
  for (const char* name : {"instruction", "op", "output", "dtype", "shape", "queue", "work", "phase", "layer", "micro_batch",
                           "flops", "bytes", "begin", "seconds", "exposed"})
    columns[name] = Json::array();
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (!i.op->touches_memory()) continue;
    const TensorId operand = first_operand(i), result = i.outputs.empty() ? no_tensor : i.outputs.front();
    const Cost cost = i.op->cost(program, i);
    columns["instruction"].push_back(n);
    columns["op"].push_back(i.op->name());
    columns["output"].push_back(first_output_name(program, i));
    columns["dtype"].push_back(operand == no_tensor ? "" : std::string(name_of(program[operand].dtype)));
    columns["shape"].push_back(result == no_tensor ? "" : program.local(result).text());
    columns["queue"].push_back(text_of(i.queue, program.mesh));
    columns["work"].push_back(work_text(program, i));
    columns["phase"].push_back(name_of(i.tag.phase));
    columns["layer"].push_back(i.tag.layer);
    columns["micro_batch"].push_back(i.tag.micro_batch);
    columns["flops"].push_back(static_cast<std::int64_t>(cost.flops));
    columns["bytes"].push_back(i.op->is_collective() ? message_bytes(program, i) : static_cast<std::int64_t>(cost.bytes));
    columns["begin"].push_back(rounded(times[n].begin));
    columns["seconds"].push_back(rounded(times[n].seconds()));
    columns["exposed"].push_back(rounded(exposed[n]));
  }
  return columns;
}

/// True if the rows of instructions_json() of `program` are those of `columns`.
bool has_rows(const Json& columns, const Program& program) {
  std::size_t row = 0;
  for (const Instruction& i : program.instructions) {
    if (!i.op->touches_memory()) continue;
    if (row == columns["op"].size() || columns["op"][row] != std::string(i.op->name()) ||
        columns["output"][row] != first_output_name(program, i))
      return false;
    ++row;
  }
  return row == columns["op"].size();
}

/// Adds the columns of a simulated step to those of measured instructions. A stage that was compiled for the simulation alone may
/// have another program; then there are none.
void add_simulated(Json& columns, const Program& program, SimulatedRank rank, double step_seconds) {
  if (!has_rows(columns, program)) return;
  std::vector<double> exposed;
  account(program, step_seconds, rank, &exposed);
  Json &seconds = columns["simulated_seconds"] = Json::array(), &waited = columns["simulated_exposed"] = Json::array();
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    if (!program.instructions[n].op->touches_memory()) continue;
    seconds.push_back(rounded(rank.times[n].seconds()));
    waited.push_back(rounded(exposed[n]));
  }
}

/// Seconds in which the compute queue worked.
double work_of(const Program& program, const std::vector<LaunchTime>& times) {
  const WorkSeconds seconds = work_seconds(program, {.times = times});
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

/// Called by every rank: that of all on rank 0, by rank.
Json work_of_ranks(Job& job, double own) {
  Json seconds = Json::array();
  for (const std::string& text : job.gather("work", Json(rounded(own)).dump(), job.timeout()))
    seconds.push_back(Json::parse(text));
  return seconds;
}

/// Samples memory: for each interval of the step, the instruction of the compute queue at which the device holds the most.
Json memory_json(const PreparedProgram& step, const std::vector<LaunchTime>& times) {
  const Program& program = step.program();
  const std::map<std::string, std::vector<std::int64_t>> by_role = memory_over_step(program, step.workspace_bytes());
  std::vector<std::size_t> computed, shown;
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    if (program.instructions[n].queue == Queue::compute() && program.instructions[n].op->touches_memory()) computed.push_back(n);
  }
  const auto held = [&](std::size_t n) {
    std::int64_t bytes = 0;
    for (const auto& [role, values] : by_role) bytes += values[n];
    return bytes;
  };
  const std::size_t stretch = std::max<std::size_t>((computed.size() + memory_points - 1) / memory_points, 1);
  for (std::size_t at = 0; at < computed.size(); at += stretch) {
    const auto begin = computed.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = computed.begin() + static_cast<std::ptrdiff_t>(std::min(at + stretch, computed.size()));
    shown.push_back(*std::max_element(begin, end, [&](std::size_t a, std::size_t b) { return held(a) < held(b); }));
  }
  Json json{{"arena_bytes", step.memory().bytes[0]}, {"instruction", shown}, {"begin", Json::array()}, {"roles", Json::object()}};
  for (const std::size_t n : shown) json["begin"].push_back(rounded(times[n].begin));
  for (const auto& [role, values] : by_role) {
    Json& bytes = json["roles"][role] = Json::array();
    for (const std::size_t n : shown) bytes.push_back(values[n]);
  }
  return json;
}

/// The step of every class, simulated for the machine of the plan; null where that would take too long.
struct Simulated {
  std::vector<PlannedRank> compiled;  // of stages; empty: the run's own program is that of all
  Simulation simulation;
  Json problem;  // why there is none
};

Simulated simulated_step(const Plan& plan, const PreparedProgram& step, bool may_compile) {
  Simulated simulated;
  try {
    if (step.program().stage_axis < 0) {
      const Program* const own = &step.program();
      const Durations durations = estimated_durations(*own);
      simulated.simulation = simulate({&own, 1}, {&durations, 1});
    } else if (may_compile) {
      simulated.compiled = plan.for_target({nullptr, plan.target().machine, false}).ranks(0, 1, false);
      simulated.simulation = simulate(simulated.compiled);
    } else {
      simulated.problem = "the stages' programs take too long to compile for a simulation of the step";
    }
  } catch (const Error& error) {
    simulated.problem = std::string("the step could not be simulated: ") + error.what();
  }
  return simulated;
}

/// Describes the simulation: its machine, error and seconds, or why there is none.
Json simulation_json(const Plan& plan, const Simulated& simulated, const Program& own) {
  const Machine& machine = *plan.target().machine;
  std::vector<const Program*> stages = programs_of(simulated.compiled);
  if (stages.empty()) stages.push_back(&own);
  const ErrorBar bar = error_bar(step_errors_for(plan.config().machine, machine), stages);
  const std::string& named = plan.config().machine;
  const double clock =
      named.empty() && find_machine(machine.name) == nullptr ? 0 : power_named(named.empty() ? machine.name : named).clock.value;
  return {{"machine", machine.name},
          {"clock", clock > 0 ? Json(clock) : Json()},
          {"step_error", bar.value ? Json(*bar.value) : Json()},
          {"error_problem", bar.value ? Json() : Json(why_unknown(bar))},
          {"step_seconds", simulated.simulation.ranks.empty() ? Json() : Json(rounded(simulated.simulation.seconds))},
          {"problem", simulated.problem}};
}

}  // namespace

TimedSteps timed_steps(std::int64_t steps, bool free) {
  if (steps < 2) return {};
  const std::int64_t warmup = warmup_steps(steps);
  return free ? TimedSteps{warmup + 1, steps} : TimedSteps{2, warmup - steps_to_record, true};
}

void StepTimeline::add(std::span<const LaunchTime> times, double step_seconds) {
  if (times.empty()) return;
  sums_.resize(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    sums_[i].begin += times[i].begin;
    sums_[i].end += times[i].end;
  }
  seconds_ += step_seconds;
  ++steps_;
}

std::vector<LaunchTime> StepTimeline::times() const {
  std::vector<LaunchTime> means = sums_;
  for (LaunchTime& time : means) {
    time.begin /= static_cast<double>(steps_);
    time.end /= static_cast<double>(steps_);
  }
  return means;
}

Json timeline_of(const PreparedProgram& step, std::vector<LaunchTime> times, double step_seconds) {
  const Program& program = step.program();
  SimulatedRank rank{.times = std::move(times)};
  double end = 0;
  for (const LaunchTime& time : rank.times) end = std::max(end, time.end);
  std::vector<double> exposed;
  account(program, end, rank, &exposed);
  return {{"step_seconds", rounded(step_seconds)},
          {"parts", parts_json(program, rank, step_seconds)},
          {"instructions", instructions_json(program, rank.times, exposed)},
          {"memory", memory_json(step, rank.times)}};
}

std::string timeline_json(Job& job, const Plan& plan, const PreparedProgram& step, const StepTimeline& measured,
                          bool may_compile) {
  const Program& own = step.program();
  const std::vector<int> classes = own.stage_axis < 0 ? std::vector<int>{0} : own.mesh.group(0, own.stage_axis);
  constexpr const char* topic = "timeline";
  // Every rank has been asked for the same steps, so that either all have measured or none has.
  const bool is_measured = measured.steps() > 0;
  const Json rank_work = is_measured ? work_of_ranks(job, work_of(own, measured.times())) : Json();
  if (job.rank() != 0) {
    if (is_measured && std::find(classes.begin(), classes.end(), job.rank()) != classes.end())
      job.gather(topic, timeline_of(step, measured.times(), measured.step_seconds()).dump(), job.timeout(), classes);
    return {};
  }
  std::vector<std::string> timelines;
  if (is_measured)
    timelines = job.gather(topic, timeline_of(step, measured.times(), measured.step_seconds()).dump(), job.timeout(), classes);
  const Simulated simulated = simulated_step(plan, step, may_compile);
  Json json{{"source", is_measured ? "measured" : "simulated"}, {"measured_steps", measured.steps()}, {"classes", Json::array()}};
  const Simulation& simulation = simulated.simulation;
  json["simulation"] = simulation_json(plan, simulated, own);
  if (is_measured) json["rank_work"] = rank_work;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const int rank = classes[c];
    const PreparedProgram& program = simulated.compiled.empty() ? step : *simulated.compiled[c].step;
    Json of_class;
    if (is_measured) {
      of_class = Json::parse(timelines[c]);
    } else if (!simulation.ranks.empty()) {
      of_class = timeline_of(program, simulation.ranks[c].times, simulation.seconds);
    } else {
      continue;
    }
    Json whole{{"rank", rank}, {"ranks", plan.config().ranks / static_cast<int>(classes.size())}};
    whole.update(of_class);
    if (is_measured && !simulation.ranks.empty()) {
      whole["simulated_parts"] = parts_json(program.program(), simulation.ranks[c], simulation.seconds);
      add_simulated(whole["instructions"], program.program(), simulation.ranks[c], simulation.seconds);
    }
    json["classes"].push_back(std::move(whole));
  }
  return json.dump();
}

}  // namespace consist
