#include "core/interpreter/step_run.h"

#include <cmath>
#include <optional>
#include <span>

#include "core/interpreter/gradients.h"
#include "core/interpreter/step_inputs.h"
#include "core/program/own_metrics.h"

namespace consist::interpreter {
namespace {

constexpr double rate = 0.02;

/// A replicated scalar, from all ranks.
double metric(std::span<const Arena> ranks, const std::string& name) {
  double value = 0;
  for (const Arena& arena : ranks) {
    const TensorId id = find(arena.planned().program, name, Role::metric);
    if (id == no_tensor)
      throw ProgramError("rank " + std::to_string(arena.planned().program.rank) + " has no metric '" + name + "'");
    const double here = arena.read(id).at(0);
    if (&arena == &ranks.front()) value = here;
    if (!(std::abs(here - value) <= 1e-9 * std::abs(value)))
      throw ProgramError("rank " + std::to_string(arena.planned().program.rank) + " has the metric " + name + " = " +
                         std::to_string(here) + ", rank 0 has " + std::to_string(value));
  }
  return value;
}

bool has_metric(std::span<const Arena> ranks, const std::string& name) {
  return find(ranks.front().planned().program, name, Role::metric) != no_tensor;
}

/// The elements of a metric that is no scalar.
std::vector<double> metrics(std::span<const Arena> ranks, const std::string& name) {
  std::vector<double> values;
  for (const Arena& arena : ranks) {
    const TensorId id = find(arena.planned().program, name, Role::metric);
    const std::vector<double> here = arena.read(id).data;
    if (&arena == &ranks.front()) values = here;
    if (here != values)
      throw ProgramError("rank " + std::to_string(arena.planned().program.rank) + " has other values of the metric " + name +
                         " than rank 0");
  }
  return values;
}

/// Rows that had no room in what ran last.
double overflow(std::span<const Arena> ranks, const RunOptions& options) {
  const double missing = has_metric(ranks, "overflow") ? metric(ranks, "overflow") : 0;
  if (missing != 0 && !options.without_room) throw NoRoom(std::to_string(std::llround(missing)) + " rows had no room");
  return missing;
}

void run_all(std::vector<Arena>& ranks, std::uint64_t order, const StepObserver& after = {}, const StepObserver& before = {}) {
  std::vector<Arena*> pointers;
  for (Arena& arena : ranks) pointers.push_back(&arena);
  run_step(pointers, order, after, before);
  for (Arena& arena : ranks) arena.set_instruction(-1);
}

/// The ranks of a run, with their memory.
class Training {
 public:
  Training(const RankPrograms& programs, const RunOptions& options)
      : programs_(programs), config_(programs.config), options_(options) {
    vocabulary_ = programs.parts.architecture->sizes().vocabulary;
    for (std::size_t rank = 0; rank < programs.steps.size(); ++rank) {
      ranks_.emplace_back(std::vector<const Planned*>{&programs.steps[rank], &programs.evaluations[rank]});
      if (options.rounded) ranks_.back().round_to_dtypes();
    }
  }

  Outcome from_start() {
    for (Arena& arena : ranks_) {
      write_initial_states(arena);
      write_constants(arena);
    }
    Outcome outcome;
    outcome.before = states_of(ranks_);
    for (int step = 0; step < options_.steps; ++step) {
      train(step, outcome);
      if (step > 0 || options_.rounded || options_.without_room) continue;
      outcome.after_first_step = states_of(ranks_);
      evaluate(outcome);
      if (options_.steps > 1) outcome.saved = saved_values(ranks_, 1);
    }
    finish(outcome);
    return outcome;
  }

  Outcome from_checkpoint(const SavedValues& saved) {
    resume(ranks_, saved);
    Outcome outcome;
    for (int step = saved.steps; step < options_.steps; ++step) {
      train(step, outcome);
      if (step == saved.steps) outcome.saved = saved_values(ranks_, step + 1);
    }
    finish(outcome);
    return outcome;
  }

 private:
  void train(int step, Outcome& outcome) {
    const std::int64_t parts = programs_.layout.batch_ranks();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::int64_t index = programs_.layout.batch_index(static_cast<int>(rank));
      for (int m = 0; m < config_.accumulation; ++m) {
        const std::int64_t first = ((step * config_.accumulation + m) * parts + index) * config_.batch;
        write_tokens(ranks_[rank], "." + std::to_string(m), first, config_.batch, config_.sequence, vocabulary_);
      }
      for (const OptimizerUse& use : programs_.parts.optimizers(config_)) {
        std::vector<float> scalars(use.optimizer->scalar_count());
        use.optimizer->write_scalars(step + 2, rate * use.rule.rate_factor, scalars);  // moments are there already
        write_input(ranks_[rank], use.scalars, {scalars.begin(), scalars.end()});
      }
      write_input(ranks_[rank], "stop_requests", {1});
    }
    run_step_of(step);
    outcome.losses.push_back(metric(ranks_, "loss"));
    outcome.grad_norms.push_back(metric(ranks_, "grad_norm"));
    if (has_metric(ranks_, "aux_loss")) outcome.auxiliary_losses.push_back(metric(ranks_, "aux_loss"));
    if (has_metric(ranks_, "expert_choices")) {
      for (const double count : metrics(ranks_, "expert_choices")) outcome.expert_choices.push_back(count);
    }
    OwnMetricSums own(ranks_.front().planned().program);
    own.add([&](std::string_view name) { return metric(ranks_, std::string(name)); });
    for (const auto& [name, value] : own.values()) outcome.metrics[name].push_back(value);
    outcome.overflow += overflow(ranks_, options_);
    if (metric(ranks_, "stop") != config_.ranks) throw ProgramError("the stop requests do not sum to the number of ranks");
  }

  /// The last step is watched for its gradients: those of rows that had no room say nothing.
  void run_step_of(int step) {
    const StepObserver observer = step == 0 ? options_.observer : StepObserver();
    if (step + 1 == options_.steps && !options_.without_room) gradients_.emplace(ranks_);
    const auto after = [&](const Arena& rank, InstructionId instruction) {
      if (observer) observer(rank, instruction);
      if (gradients_) gradients_->see_after(rank, instruction);
    };
    const auto before = [&](const Arena& rank, InstructionId instruction) {
      if (gradients_) gradients_->see_before(rank, instruction);
    };
    run_all(ranks_, options_.order + static_cast<std::uint64_t>(step), after, before);
  }

  void evaluate(Outcome& outcome) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].go_on_with(1);
      write_constants(ranks_[rank]);
      write_tokens(ranks_[rank], "", programs_.layout.batch_index(static_cast<int>(rank)) * config_.batch, config_.batch,
                   config_.sequence, vocabulary_);
    }
    run_all(ranks_, options_.order + 1000);
    outcome.evaluation = metric(ranks_, "loss");
    overflow(ranks_, options_);
    for (Arena& arena : ranks_) arena.go_on_with(0);
  }

  void finish(Outcome& outcome) {
    outcome.values = states_of(ranks_);
    if (gradients_) outcome.values.merge(gradients_->finish());
  }

  const RankPrograms& programs_;
  const RunConfig& config_;
  const RunOptions& options_;
  std::int64_t vocabulary_ = 0;
  std::vector<Arena> ranks_;
  std::optional<Gradients> gradients_;  // of the last step
};

}  // namespace

Outcome run(const RankPrograms& programs, const RunOptions& options) {
  return Training(programs, options).from_start();
}

Outcome run_on(const RankPrograms& programs, const SavedValues& saved, const RunOptions& options) {
  return Training(programs, options).from_checkpoint(saved);
}

double evaluation_of_one_rank(const RunConfig& config, const Parts& parts, std::int64_t sequences, const LogicalValues& values) {
  CompileRequest request = parts.compile_request(config);
  request.micro_batch = sequences;
  const Planned program = planned(compile_evaluation(request, lay_out(parts.uses, 1)), 0);
  std::vector<Arena> rank;
  rank.emplace_back(std::vector<const Planned*>{&program});
  write_constants(rank[0]);
  for (const Parameter& p : program.program.parameters) {
    for (const TensorId weight : {p.tensor, p.master}) {
      if (weight != no_tensor) rank[0].write(weight, {DType::f32, {}, values.at(p.name)});
    }
    for (const ParameterState& state : p.states)
      rank[0].write(state.tensor, {DType::f32, {}, values.at(p.name + "." + state.name)});
  }
  write_tokens(rank[0], "", 0, sequences, config.sequence, parts.architecture->sizes().vocabulary);
  run_all(rank, 0);
  return metric(rank, "loss");
}

}  // namespace consist::interpreter
