#include "core/passes/optimizer.h"

#include <algorithm>
#include <map>
#include <span>

#include "consist/begins.h"
#include "consist/builder.h"
#include "consist/cost.h"
#include "consist/edit.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/program/operands.h"

namespace consist {
namespace {

constexpr const char* who = "optimizer";

void make_metric(Program& program, TensorId id, const std::string& name) {
  const TensorId storage = program[id].storage;
  for (Tensor& t : program.tensors) {
    if (t.storage == storage) t.role = Role::metric;
  }
  program[id].name = name;
}

TensorId replicated(Builder& builder, TensorId tensor) {
  const Program& program = builder.program();
  Placements within_stage;
  if (program.stage_axis >= 0) within_stage[program.stage_axis] = program[tensor].placements[program.stage_axis];
  tensor = builder.reshard(tensor, within_stage);
  // Last: a rank of another stage takes part in this sum alone.
  return builder.reshard(tensor, program.stage_axis, Placement::replicate());
}

/// Layer of the instruction that made each parameter's gradient: parameters are updated a layer at a time.
std::vector<std::int16_t> layers_of_gradients(const Program& program) {
  const std::vector<InstructionId> writers = last_writers(program);
  std::vector<std::int16_t> layers;
  for (const Parameter& p : program.parameters) {
    const InstructionId writer = p.gradient == no_tensor ? -1 : writers[static_cast<std::size_t>(p.gradient)];
    layers.push_back(writer < 0 ? std::int16_t{-1} : program.instructions[static_cast<std::size_t>(writer)].tag.layer);
  }
  return layers;
}

/// Makes a value that only some ranks of the stage axis have, or each a summand of, one to be summed over the axis.
void sum_over_stages(Program& program, TensorId tensor) {
  if (program.stage_axis >= 0) program[tensor].placements[program.stage_axis] = Placement::partial();
}

/// The zero that a rank adds to a sum over the stages if it has no summand of it.
TensorId nothing(Builder& builder, const std::string& name) {
  if (builder.program().stage_axis < 0) throw ProgramError("the program has no " + name);
  const TensorId zero = builder.constant("no_" + name, {}, [](std::span<float> out) { out[0] = 0; });
  return builder.emit_one("cast", {zero}, {{"dtype", std::string(name_of(DType::f32))}}, name);  // a copy, to be summed in place
}

/// Estimates for each parameter if its gradient is still in flight between ranks when compute has nothing left to do before the
/// optimizer.
std::vector<bool> find_late_gradients(const Program& program) {
  const CostModel& costs = costs_of(program);
  const Begins begins(program);
  std::map<AxisSet, double> finished;  // by axes: until when its queue is busy
  std::vector<double> made;            // by instruction
  for (const Instruction& i : program.instructions) {
    const auto at = static_cast<InstructionId>(made.size());
    if (i.op->is_collective()) {
      const AxisSet axes = i.attributes.axes("axis");
      const auto bytes = static_cast<double>(i.op->bytes_sent(message_bytes(program, i), program.mesh.size_of(axes)));
      finished[axes] = std::max(finished[axes], begins.of(at)) + costs.transfer_seconds(*i.op, bytes, axes, Beside::compute);
      made.push_back(finished[axes]);
    } else {
      made.push_back(begins.of(at + 1));
    }
  }
  const std::vector<InstructionId> writers = last_writers(program);
  std::vector<bool> late;
  for (const Parameter& p : program.parameters) {
    const InstructionId writer = p.gradient == no_tensor ? -1 : writers[static_cast<std::size_t>(p.gradient)];
    late.push_back(writer >= 0 && made[static_cast<std::size_t>(writer)] > begins.end());
  }
  return late;
}

/// A gradient, and true if find_late_gradients() says so.
struct Summand {
  TensorId gradient = no_tensor;
  bool late = false;
};

/// Squares of gradients that are complete are added up while others are in flight, unless that saves a few launches only.
TensorId sum_of_squares(Builder& builder, std::span<const Summand> summands) {
  constexpr double worth_it = 50e-6;  // seconds
  double bytes = 0;
  std::vector<TensorId> all, early, late;
  for (const Summand& summand : summands) {
    all.push_back(summand.gradient);
    (summand.late ? late : early).push_back(summand.gradient);
    if (!summand.late) bytes += static_cast<double>(builder.program().bytes(summand.gradient));
  }
  const auto sum = [&](const std::vector<TensorId>& gradients) {
    return builder.emit_one("sum_of_squares", gradients, {}, "sum_of_squares");
  };
  if (late.empty() || costs_of(builder.program()).moving_seconds(bytes) < worth_it) return sum(all);
  const TensorId of_early = sum(early);
  return builder.emit_one("add", {of_early, sum(late)}, {}, "sum_of_squares");
}

/// The sum of squares of all gradients: sharded and replicated ones apart, since only the former are summed over ranks.
TensorId total_sum_of_squares(Program& program, Builder& builder) {
  const std::vector<bool> late = find_late_gradients(program);
  std::map<std::vector<bool>, std::vector<Summand>> groups;
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& p = program.parameters[i];
    if (p.gradient == no_tensor) continue;
    if (p.tied_replica >= 0 && p.tied_replica < program.rank) continue;  // the other rank counts it
    std::vector<bool> sharded;
    for (int axis = 0; axis < program.mesh.axes(); ++axis) {
      const Placement placement = program[p.gradient].placements[axis];
      sharded.push_back(placement.is_shard() || placement.is_flat());
    }
    groups[sharded].push_back({p.gradient, late[i]});
  }
  TensorId total = no_tensor;
  for (const auto& [sharded, summands] : groups) {
    const TensorId sum = replicated(builder, sum_of_squares(builder, summands));
    total = total == no_tensor ? sum : builder.emit_one("add", {total, sum}, {}, "sum_of_squares");
  }
  if (total == no_tensor) total = nothing(builder, "sum_of_squares");  // a stage of frozen parameters
  sum_over_stages(program, total);
  return total;
}

}  // namespace

namespace {

/// Makes an output of each micro-batch and rank a metric: the sum over all micro-batches and ranks. Does nothing where no rank
/// has it, and for a metric.
void sum_as_metric(Program& program, Builder& builder, StepOutput& output) {
  TensorId& sum = output.tensor;
  if (sum == no_tensor || program[sum].role == Role::metric) return;
  sum_over_stages(program, sum);
  sum = replicated(builder, sum);
  make_metric(program, sum, output.name);
}

/// The metric of the first output of that kind; no_tensor without one.
TensorId sum_of_all(Program& program, Builder& builder, StepOutput::Kind kind) {
  const auto found = std::ranges::find(program.outputs, kind, &StepOutput::kind);
  if (found == program.outputs.end()) return no_tensor;
  sum_as_metric(program, builder, *found);
  return found->tensor;
}

/// The number of targets that the loss counts; no_tensor where all do.
TensorId count_of_all(Program& program, Builder& builder) {
  return sum_of_all(program, builder, StepOutput::Kind::loss_count);
}

/// x times targets/count, or its square: x was divided by all targets and is to be divided by those that count.
TensorId per_target(Builder& builder, TensorId x, TensorId count, double targets, std::int64_t power) {
  if (count == no_tensor) return x;
  return builder.emit_one("per_target", {x, count}, {{"targets", targets}, {"power", power}}, builder[x].name);
}

/// The metric "aux_loss": the sum of the auxiliary losses, of which there may be none. They are divided by the divisor of the
/// loss.
void append_auxiliary_loss(Program& program, Builder& builder, double targets) {
  TensorId sum = no_tensor;
  for (const StepOutput& output : program.outputs) {
    if (output.kind != StepOutput::Kind::auxiliary_loss) continue;
    sum_over_stages(program, output.tensor);
    const TensorId loss = replicated(builder, output.tensor);
    sum = sum == no_tensor ? loss : builder.emit_one("add", {sum, loss}, {}, "aux_loss");
  }
  if (sum == no_tensor) return;
  make_metric(program, per_target(builder, sum, count_of_all(program, builder), targets, 1), "aux_loss");
}

}  // namespace

void append_metrics(Program& program, double targets) {
  Builder builder(program);
  builder.tag = {Phase::optimizer, -1, -1, who};
  if (program.loss == no_tensor) program.loss = nothing(builder, "loss");
  sum_over_stages(program, program.loss);
  program.loss = replicated(builder, program.loss);
  program.loss = per_target(builder, program.loss, count_of_all(program, builder), targets, 1);
  make_metric(program, program.loss, "loss");
  append_auxiliary_loss(program, builder, targets);
  for (StepOutput& output : program.outputs) {
    if (output.kind != StepOutput::Kind::auxiliary_loss) sum_as_metric(program, builder, output);
  }
}

namespace {

/// "stop_requests" of all ranks, summed into the metric "stop": the ranks agree within the step after which of them the run ends.
void append_stop_requests(Program& program, Builder& builder) {
  Placements one_each;
  for (int axis = 0; axis < program.mesh.axes(); ++axis) one_each[axis] = Placement::partial();
  const TensorId stop_requests = builder.input("stop_requests", DType::f32, {}, one_each);
  const TensorId sum = builder.emit_one("cast", {stop_requests}, {{"dtype", std::string(name_of(DType::f32))}}, "stop");
  make_metric(program, replicated(builder, sum), "stop");
}

}  // namespace

namespace {

/// Reduces the gradients that are still partial, and makes the masters and states.
void make_states(Program& program, Builder& builder, const DTypes& dtypes, const OptimizerUses& optimizers,
                 const NameOfStrategy& strategies) {
  for (Parameter& p : program.parameters) {
    if (p.gradient == no_tensor) continue;
    Placements summed = program[p.gradient].placements;
    for (int axis = 0; axis < program.mesh.axes(); ++axis) {
      if (summed[axis].is_partial()) summed[axis] = program[p.tensor].placements[axis];
    }
    p.gradient = builder.reshard(p.gradient, summed);
    const Tensor gradient = program[p.gradient];
    if (dtypes.master) p.master = builder.state(p.name + ".master", *dtypes.master, gradient.shape, gradient.placements);
    const OptimizerUse& use = optimizers.of(p.name);
    const std::vector<OptimizerState> states = use.optimizer->states(p, gradient.shape);
    check_states(states, use.optimizer->evaluated(p, gradient.shape), p.name);
    for (const OptimizerState& state : states) {
      const Placements placements = placements_of(state, p.name, gradient, program.mesh, {use.name, strategies});
      p.states.push_back({state.name, builder.state(p.name + "." + state.name, state.dtype.value_or(dtypes.moment),
                                                    shape_of(state, gradient.shape), placements)});
    }
  }
}

UpdatedParameter updated(const Parameter& p) {
  UpdatedParameter u{&p, p.tensor, p.gradient, p.master, {}};
  for (const ParameterState& state : p.states) u.states.push_back(state.tensor);
  return u;
}

/// Checks that the optimizer writes every parameter: others would silently keep their initial values.
void check_updates(const Program& program, InstructionId first) {
  std::vector<bool> written(program.tensors.size(), false);
  for (auto i = static_cast<std::size_t>(first); i < program.instructions.size(); ++i) {
    for (TensorId output : program.instructions[i].outputs) {
      if (output != no_tensor) written[static_cast<std::size_t>(program[output].storage)] = true;
    }
  }
  for (const Parameter& p : program.parameters) {
    if (p.gradient == no_tensor) continue;
    const auto check = [&](TensorId tensor, const std::string& what) {
      if (tensor != no_tensor && !written[static_cast<std::size_t>(program[tensor].storage)])
        throw ProgramError("the optimizer's update() writes no " + what + " of parameter '" + p.name + "'");
    };
    check(p.tensor, "value");
    check(p.master, "master");
    for (const ParameterState& state : p.states) check(state.tensor, state.name);
  }
}

/// Inputs of an update, which the trainer writes or the gradients' norm decides.
struct UpdateInputs {
  TensorId scalars = no_tensor, clip = no_tensor;
};

/// The scalars of each use, by number.
std::vector<UpdateInputs> scalars_of(Builder& builder, const OptimizerUses& optimizers) {
  std::vector<UpdateInputs> inputs;
  for (const OptimizerUse& use : optimizers) {
    const auto scalars = static_cast<std::int64_t>(use.optimizer->scalar_count());
    if (scalars == 0) throw ProgramError(use.name + ": its scalar_count() is 0; the update needs the rate at least");
    inputs.push_back({builder.input(use.scalars, DType::f32, {scalars}), no_tensor});
  }
  return inputs;
}

/// Adds the coefficient; where rows exceeded the capacity of experts, both are such that nothing changes.
void set_clip(Program& program, Builder& builder, std::vector<UpdateInputs>& inputs, TensorId clip) {
  const TensorId overflow = sum_of_all(program, builder, StepOutput::Kind::overflow);
  for (UpdateInputs& of_use : inputs) {
    of_use.clip = clip;
    if (overflow == no_tensor) continue;
    const std::vector<TensorId> held = builder.emit("hold_update", {of_use.scalars, clip, overflow}, {}, {"scalars", "clip"});
    of_use = {held[0], held[1]};
  }
}

/// Parameters that are updated side by side have these in common. Those that another rank trains too go apart: random rounding is
/// keyed by a parameter's group and its place there, and both ranks must come to the same values.
struct GroupKey {
  std::int16_t layer;
  bool decay, tied_replica;
  std::size_t use;
  auto operator<=>(const GroupKey&) const = default;
};

void update_groups(Program& program, Builder& builder, const DTypes& dtypes, const OptimizerUses& optimizers, double weight_decay,
                   const std::vector<std::int16_t>& layers, const std::vector<UpdateInputs>& inputs) {
  constexpr std::int64_t seeds_of_a_use = 65536;  // more than there are layers
  std::map<GroupKey, std::vector<const Parameter*>> groups;
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& p = program.parameters[i];
    if (p.gradient == no_tensor) continue;
    const std::int16_t layer = p.tied_replica < 0 ? layers[i] : std::int16_t{-1};
    groups[{layer, p.decay, p.tied_replica >= 0, optimizers.index_of(p.name)}].push_back(&p);
  }
  for (const auto& [key, group] : groups) {
    const OptimizerUse& use = optimizers[key.use];
    builder.tag.layer = key.layer;
    const std::int64_t seed = key.tied_replica ? -2 : key.layer;
    UpdateGroup parameters{.parameters = {},
                           .weight_decay = use.rule.weight_decay.value_or(key.decay ? weight_decay : 0.0),
                           .stochastic_rounding = dtypes.stochastic_rounding,
                           .seed = seed + seeds_of_a_use * static_cast<std::int64_t>(key.use)};
    for (const Parameter* p : group) parameters.parameters.push_back(updated(*p));
    use.optimizer->update(builder, inputs[key.use].scalars, inputs[key.use].clip, parameters);
  }
}

}  // namespace

void append_optimizer(Program& program, const DTypes& dtypes, const OptimizerUses& optimizers, const OptimizerSettings& settings,
                      double targets, const NameOfStrategy& strategies) {
  const std::vector<std::int16_t> layers = layers_of_gradients(program);
  Builder builder(program);
  builder.tag = {Phase::optimizer, -1, -1, who};
  make_states(program, builder, dtypes, optimizers, strategies);

  std::vector<UpdateInputs> inputs = scalars_of(builder, optimizers);
  const TensorId count = count_of_all(program, builder);
  const TensorId squares = per_target(builder, total_sum_of_squares(program, builder), count, targets, 2);
  const std::vector<TensorId> clip =
      builder.emit("clip_coefficient", {squares}, {{"max_norm", settings.max_norm}}, {"grad_norm", "clip"});
  set_clip(program, builder, inputs, per_target(builder, clip[1], count, targets, 1));

  const auto first = static_cast<InstructionId>(program.instructions.size());
  update_groups(program, builder, dtypes, optimizers, settings.weight_decay, layers, inputs);
  check_updates(program, first);
  builder.tag = {Phase::optimizer, -1, -1, who};
  make_metric(program, clip[0], "grad_norm");
  append_stop_requests(program, builder);
  append_metrics(program, targets);
}

}  // namespace consist
