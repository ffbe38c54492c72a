#include "core/plan/plan.h"

#include <algorithm>
#include <utility>

#include "consist/error.h"
#include "core/base/in_parallel.h"
#include "core/compile/reduced_step.h"
#include "core/plan/machine_choice.h"
#include "core/plan/reduced_step.h"
#include "core/plan/run_defaults.h"

namespace consist {

SelectedParts select_parts(RunConfig config, PluginHost& host) {
  Parts parts = make_parts(config, host);
  return {std::move(config), std::move(parts)};
}

Plan::Plan(SelectedParts selected, PluginHost& host, Target target)
    : host_(&host), config_(std::move(selected.config)), parts_(std::move(selected.parts)) {
  check_expert_load();
  layout_ = lay_out(parts_.uses, config_.ranks);
  settle_batch(config_, layout_);
  for (const StrategyUse& use : parts_.uses) {
    const bool is_called = std::ranges::any_of(layout_.active, [&](const StrategyUse& a) { return a.name == use.name; });
    const auto options = config_.plugin_options.find(use.name);
    const bool has_options = options != config_.plugin_options.end() && !options->second.empty();
    if (is_called) continue;
    if (use.strategy->axis().on_one_rank == OnOneRank::not_called) {
      config_.notes.push_back(
          "strategy " + use.name +
          " has one rank and is not called: whatever it does to training is left out (a strategy that works on one "
          "rank says so, AxisRequest::on_one_rank)");
    } else if (has_options) {
      config_.notes.push_back("strategy " + use.name + " has one rank and changes nothing: its options have no effect");
    }
  }
  for (std::string& note : notes_on_defaults(parts_, config_, *host_)) config_.notes.push_back(std::move(note));
  set_target(std::move(target));
}

void Plan::set_target(Target target) {
  target_ = std::move(target);
  if (!target_.machine) target_.machine = machine_named(config_.machine);
  const std::string device_kind = target_.device ? target_.device->info().kind : target_.machine->device_kind;
  transports_ = plan_transports(config_, layout_, *target_.machine, *host_, device_kind, target_.automatic);
}

void Plan::check_expert_load() const {
  const ExpertLoad* const load = experts();
  if (load == nullptr) return;
  if (parts_.architecture->sizes().experts == 0)
    throw UsageError("--expert-load " + load->text() + " has no effect: " + config_.model + " has no experts");
  if (!config_.export_folder.empty())
    throw UsageError(
        "--export does not go with --expert-load " + load->text() +
        ": tokens go to experts by their ids, and the exported model would send them elsewhere; leave one of them out");
}

void check_forced_routes(const RunConfig& config) {
  if (config.expert_load == natural_experts || has_random_ids(config)) return;
  throw UsageError("--expert-load " + config.expert_load +
                   " forces a run's tokens to experts by their ids, which brings about this "
                   "load for random ids alone: give --dataset synthetic (this run: " +
                   config.dataset + "), or predict it, for any data (consist predict, compare --predict, tune)");
}

Plan Plan::for_target(Target target) const {
  Plan other = *this;
  other.set_target(std::move(target));
  return other;
}

Plan Plan::with_room(double room) const {
  Plan other = *this;
  other.room_ = room;
  return other;
}

Plan Plan::with_micro_batches(int accumulation) const {
  Plan other = *this;
  other.config_.accumulation = accumulation;
  return other;
}

Plan Plan::with_choices(JobChoices choices) const {
  Plan other = *this;
  RunConfig& config = other.config_;
  if (choices.steps) config.steps = *choices.steps;
  if (choices.options) config.chosen_options = std::move(*choices.options);
  if (choices.transport) config.chosen_transport = std::move(*choices.transport);
  for (std::string& note : choices.notes) config.notes.push_back(std::move(note));
  return other;
}

namespace {

CompileRequest request_of(const Plan& plan) {
  CompileRequest request = plan.parts().compile_request(plan.config());
  request.machine = plan.target().machine;
  request.transports = plan.transports().by_axis;
  request.verify_each_pass = plan.target().verify_each_pass;
  request.room = plan.room();
  return request;
}

/// For predictions with a load of experts: compiled again where a run comes to need more capacity.
template <typename Compile>
Program compiled(const Plan& plan, CompileRequest request, const Compile& compile) {
  Program program = compile(request);
  const ExpertLoad* const load = plan.experts();
  if (load == nullptr || plan.target().device) return program;  // a run grows when rows find no place
  const double room = load->room_for(program);
  if (room > 1) {
    request.room *= room;
    program = compile(request);
    load->rate(program, room);
  }
  return program;
}

}  // namespace

Program Plan::step(int rank, PassObserver* observer) const {
  CompileRequest request = request_of(*this);
  request.observer = observer;
  Program program = compiled(*this, std::move(request), [&](const CompileRequest& r) { return compile_step(r, layout_, rank); });
  check_transports(program, layout_, transports_);
  return program;
}

Program reduced_step(const Plan& plan, int periods, int micro_batches) {
  CompileRequest request = request_of(plan);
  request.accumulation = micro_batches;
  Program program = compiled(plan, std::move(request),
                             [&](const CompileRequest& r) { return compile_reduced_step(r, plan.layout(), periods); });
  check_transports(program, plan.layout(), plan.transports());
  return program;
}

std::optional<Program> Plan::evaluation(int rank) const {
  if (config_.evaluate_every == 0) return std::nullopt;
  return compile_evaluation(request_of(*this), layout_, rank);
}

Program Plan::stretch(std::int64_t longest, std::int64_t tokens, bool logits, int rank) const {
  CompileRequest request = request_of(*this);
  request.micro_batch = 1;
  request.accumulation = 1;
  request.sequence = longest;
  request.architecture = parts_.language_model.get();
  return compile_stretch(request, layout_, tokens, logits, rank);
}

std::vector<PlannedRank> Plan::ranks(int rank, int threads, bool summarized) const {
  Program first = step(rank);
  const std::vector<int> members = first.stage_axis < 0 ? std::vector<int>{rank} : first.mesh.group(rank, first.stage_axis);
  std::vector<PlannedRank> planned(members.size());
  const auto plan = [&](std::size_t n) {
    Program program = members[n] == rank ? std::move(first) : step(members[n]);
    auto prepared = target_.device ? std::make_unique<PreparedProgram>(std::move(program), *target_.device, CommunicatorOfQueue{})
                                   : std::make_unique<PreparedProgram>(std::move(program));
    prepared->plan();
    ProgramSummary summary = summarized ? summarize(*prepared) : ProgramSummary();
    planned[n] = {members[n], std::move(prepared), std::move(summary)};
  };
  in_parallel(members.size(), target_.device ? 1 : threads, plan);
  return planned;
}

Plan plan_run(RunConfig config, PluginHost& host, Target target) {
  return Plan(select_parts(std::move(config), host), host, std::move(target));
}

Plan plan_training(RunConfig config, PluginHost& host) {
  check_forced_routes(config);
  return plan_run(std::move(config), host);
}

std::vector<const Program*> programs_of(std::span<const PlannedRank> ranks) {
  std::vector<const Program*> programs;
  for (const PlannedRank& rank : ranks) programs.push_back(&rank.step->program());
  return programs;
}

Simulation simulate(std::span<const PlannedRank> ranks, Durations (*durations_of)(const Program&)) {
  const std::vector<const Program*> programs = programs_of(ranks);
  std::vector<Durations> durations;
  for (const Program* program : programs) durations.push_back(durations_of(*program));
  return simulate(programs, durations);
}

}  // namespace consist
