#include "launch/search/tune/step_model.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/lower/memory_plan.h"
#include "core/plan/reduced_step.h"

namespace consist::launch {
namespace {

/// Figures of a step with few layers that are linear in their number, but for `layers` itself.
struct Reduced {
  double layers = 0;
  double seconds = 0, micro_batch = 0, first_forward = 0, last_backward = 0, finish = 0;
  double forward_layers = 0, backward_layers = 0, weight_gradients = 0;  // seconds of work, not of waiting
  double before = 0, forward_after = 0, backward_after = 0;
  double kept = 0, states = 0, others = 0, update = 0;  // bytes
  double message = 0;
  bool has_collectives = false;
  WorkSeconds work{}, update_work{};
};

bool computes(const Instruction& i) {
  return i.queue == Queue::compute() && i.op->touches_memory();
}

/// The work of the first micro-batch by what it belongs to.
void add_work(const Program& program, const SimulatedRank& rank, Reduced& result) {
  std::vector<bool> is_gradient(program.tensors.size(), false);
  for (const Parameter& p : program.parameters) {
    if (p.gradient != no_tensor) is_gradient[static_cast<std::size_t>(p.gradient)] = true;
  }
  bool layers_began = false, layers_ended = false;
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (i.tag.micro_batch != 0 || !computes(i)) continue;
    const double seconds = rank.times[n].seconds();
    const bool forward = i.tag.phase == Phase::forward;
    if (i.tag.layer >= 0) {
      layers_began = layers_began || forward;
      layers_ended = layers_ended || !forward;
      (forward ? result.forward_layers : result.backward_layers) += seconds;
      const bool makes_gradients = !forward && std::all_of(i.outputs.begin(), i.outputs.end(), [&](TensorId output) {
        return output == no_tensor || program[output].role == Role::gradient || is_gradient[static_cast<std::size_t>(output)];
      });
      if (makes_gradients) result.weight_gradients += seconds;
    } else if (forward) {
      (layers_began ? result.forward_after : result.before) += seconds;
    } else {
      (layers_ended ? result.before : result.backward_after) += seconds;
    }
  }
}

/// When the compute queue is at which part of each micro-batch.
struct Times {
  double forward = std::numeric_limits<double>::infinity(), backward = forward, end = 0;
};

void add_times(const Program& program, const SimulatedRank& rank, int micro_batches, Reduced& result) {
  std::vector<Times> times(static_cast<std::size_t>(micro_batches));
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (i.tag.micro_batch < 0 || i.tag.phase == Phase::optimizer || !computes(i)) continue;
    Times& t = times[static_cast<std::size_t>(i.tag.micro_batch)];
    double& begin = i.tag.phase == Phase::forward ? t.forward : t.backward;
    begin = std::min(begin, rank.times[n].begin);
    t.end = std::max(t.end, rank.times[n].end);
  }
  const Times &first = times.front(), &last = times.back();
  result.finish = result.seconds - last.end;
  result.micro_batch = last.end - last.forward;
  if (micro_batches == 1) return;
  const Times &second = times[1], &before = times[times.size() - 2];
  result.micro_batch = last.forward - before.forward;
  result.first_forward = first.backward - (second.backward - second.forward);
  result.last_backward = (last.end - last.backward) - (before.end - before.backward);
}

/// The largest tensor that forward hands on from one layer to the next. What is a partial sum is summed up before it is sent.
double message_bytes(const Program& program) {
  std::vector<std::int16_t> made_in(program.tensors.size(), -1);
  double most = 0;
  for (const Instruction& i : program.instructions) {
    if (i.tag.phase != Phase::forward || i.tag.micro_batch > 0 || i.tag.layer < 0) continue;
    for (const TensorId input : i.inputs) {
      if (input == no_tensor || made_in[static_cast<std::size_t>(input)] < 0) continue;
      const bool partial = !axes_with(program[input], Placement::partial(), program.mesh.all_axes()).empty();
      if (made_in[static_cast<std::size_t>(input)] + 1 == i.tag.layer && !partial)
        most = std::max(most, static_cast<double>(program.bytes(input)));
    }
    for (const TensorId output : i.outputs) {
      if (output != no_tensor) made_in[static_cast<std::size_t>(output)] = i.tag.layer;
    }
  }
  return most;
}

void add_memory(const PreparedProgram& step, Reduced& result) {
  const Program& program = step.program();
  const auto by_role = memory_over_step(program, step.workspace_bytes());
  const auto at = [&](Role role, std::size_t n) {
    const auto found = by_role.find(std::string(name_of(role)));
    return found == by_role.end() ? 0.0 : static_cast<double>(found->second[n]);
  };
  double most = -1;
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    double all = 0;
    for (const auto& [role, bytes] : by_role) all += static_cast<double>(bytes[n]);
    if (program.instructions[n].tag.phase == Phase::optimizer) {
      result.update = std::max(result.update, all);
    } else if (all > most) {
      most = all;
      result.kept = at(Role::activation, n);
      result.states = at(Role::parameter, n) + at(Role::gradient, n) + at(Role::optimizer_state, n);
      result.others = all - result.kept - result.states;
    }
  }
}

Reduced reduced(const Plan& plan, int periods, int micro_batches) {
  std::vector<PlannedRank> ranks(1);
  ranks[0].step = std::make_unique<PreparedProgram>(reduced_step(plan, periods, micro_batches));
  ranks[0].step->plan();
  const Simulation simulation = simulate(ranks);
  const Program& program = ranks[0].step->program();
  Reduced result{.seconds = simulation.seconds};
  for (const Instruction& i : program.instructions) result.layers = std::max(result.layers, i.tag.layer + 1.0);
  add_times(program, simulation.ranks[0], micro_batches, result);
  result.has_collectives = std::ranges::any_of(program.instructions, [](const Instruction& i) {
    return i.op->is_collective() && i.tag.layer >= 0 && i.tag.micro_batch == 0 && i.tag.phase == Phase::backward;
  });
  result.message = message_bytes(program);
  add_work(program, simulation.ranks[0], result);
  add_memory(*ranks[0].step, result);
  result.work = work_seconds(program, simulation.ranks[0], 0);
  result.update_work = work_seconds(program, simulation.ranks[0]);
  for (std::size_t k = 0; k < result.work.size(); ++k) result.update_work[k] -= micro_batches * result.work[k];
  return result;
}

/// A figure by two numbers of layers.
struct Line {
  double of_layer = 0, of_rest = 0;
  double at(double layers) const { return std::max(0.0, of_rest + layers * of_layer); }
};

class Extrapolation {
 public:
  Extrapolation(const Reduced& few, const Reduced& more, int layers, int micro_batches)
      : few_(few), more_(more), layers_(layers), micro_batches_(micro_batches) {}

  StepModel model() const {
    const Line micro = line(&Reduced::micro_batch), kept = line(&Reduced::kept), states = line(&Reduced::states);
    const Line finish = line(&Reduced::finish), first = line(&Reduced::first_forward), last = line(&Reduced::last_backward);
    StepModel m{.layers = layers_, .micro_batches = micro_batches_};
    m.layer = layer_work(micro.of_layer);
    m.layer.finish = std::max(0.0, finish.of_layer);
    m.layer.first_forward = std::max(0.0, first.of_layer);
    m.layer.last_backward = std::max(0.0, last.of_layer);
    m.layer.kept_bytes = std::max(0.0, kept.of_layer);
    m.layer.state_bytes = std::max(0.0, states.of_layer);
    set_rest(m, micro.of_rest);
    for (LayerWork* end : {&m.before, &m.after}) {
      end->finish = std::max(0.0, finish.of_rest);
      end->state_bytes = std::max(0.0, states.of_rest / 2);
    }
    m.before.first_forward = std::max(0.0, first.of_rest);
    m.before.last_backward = std::max(0.0, last.of_rest);
    m.seconds = line(&Reduced::seconds).at(layers_);
    m.micro_batch_seconds = micro.at(layers_);
    m.update_bytes = line(&Reduced::update).at(layers_);
    m.other_bytes = line(&Reduced::others).at(layers_) + std::max(0.0, kept.of_rest);
    m.message_bytes = more_.message;
    m.has_collectives = more_.has_collectives;
    for (std::size_t k = 0; k < m.micro_batch_work.size(); ++k) {
      m.micro_batch_work[k] = line_of(few_.work[k], more_.work[k]).at(layers_);
      m.update_work[k] = line_of(few_.update_work[k], more_.update_work[k]).at(layers_);
    }
    return m;
  }

 private:
  Line line_of(double few, double more) const {
    const double of_layer = (more - few) / (more_.layers - few_.layers);
    return {of_layer, more - more_.layers * of_layer};
  }
  Line line(double Reduced::*figure) const { return line_of(few_.*figure, more_.*figure); }

  /// Waiting is divided between forward and backward as work is.
  LayerWork layer_work(double seconds) const {
    const double forward = line(&Reduced::forward_layers).of_layer, backward = line(&Reduced::backward_layers).of_layer;
    const double stretch = seconds / std::max(forward + backward, 1e-12);
    return {.forward = forward * stretch,
            .backward = backward * stretch,
            .weight_gradients = std::max(0.0, line(&Reduced::weight_gradients).of_layer)};
  }

  void set_rest(StepModel& m, double seconds) const {
    const double work = more_.before + more_.forward_after + more_.backward_after;
    const double stretch = std::max(0.0, seconds) / std::max(work, 1e-12);
    m.before.forward = more_.before * stretch / 2;
    m.before.backward = more_.before * stretch / 2;
    m.after.forward = more_.forward_after * stretch;
    m.after.backward = more_.backward_after * stretch;
  }

  const Reduced &few_, &more_;
  int layers_, micro_batches_;
};

}  // namespace

double StepModel::bytes() const {
  return std::max(update_bytes, other_bytes + layers * layer.kept_bytes + state_bytes());
}

double StepModel::state_bytes() const {
  return layers * layer.state_bytes + before.state_bytes + after.state_bytes;
}

StepModel model_of(const Plan& plan, int micro_batches) {
  constexpr int few = 1, more = 3;  // periods
  const int layers = static_cast<int>(plan.parts().architecture->sizes().layers);
  const Reduced one = reduced(plan, few, micro_batches), other = reduced(plan, more, micro_batches);
  if (other.layers <= one.layers)
    throw UsageError("the model has no layers that are alike, so that no estimate is made of some of them");
  return Extrapolation(one, other, layers, micro_batches).model();
}

}  // namespace consist::launch
