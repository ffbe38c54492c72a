// DiLoCo (Douillard et al., 2023, arXiv 2311.08105): each replica makes `every` steps with an optimizer of its own and gradients
// of its own, in which nothing is sent; then the mean of what the replicas have moved is an outer gradient, by which Nesterov's
// momentum moves the weights that all began with, and all go on from there.
#include <consist/edit.h>
#include <consist/error.h>
#include <consist/plugin.h>
#include <consist/strategy.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace consist;

constexpr const char* name = "my-diloco";

class MyDiloco final : public ParallelStrategy {
 public:
  explicit MyDiloco(const Options& options)
      : every_(options.integer("every")), rate_(options.real("rate")), momentum_(options.real("momentum")) {}

  AxisRequest axis() const override {
    return {.name = "data", .takes_rest = true, .splits_batch = true, .most_axes = Mesh::max_axes};
  }

  void partition(Program& forward, AxisSet axes) const override {
    for (const Parameter& parameter : forward.parameters) {
      if (forward[parameter.tensor].dtype != DType::f32)
        throw UsageError("my-diloco averages weights in fp32: use --precision fp32");
    }
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
  }

  /// Gradients stay with the replica that made them.
  void schedule(Program& step, AxisSet axes) const override {
    const std::vector<InstructionId> writers = last_writers(step);
    std::vector<Parameter*> parameters;
    std::vector<TensorId> gradients;
    std::vector<std::string> names;
    InstructionId ready = -1;
    for (Parameter& parameter : step.parameters) {
      const TensorId gradient = parameter.gradient;
      if (gradient == no_tensor || step[gradient].placements.on(axes) != Placement::partial()) continue;
      parameters.push_back(&parameter);
      gradients.push_back(gradient);
      names.push_back(step[gradient].name);
      ready = std::max(ready, writers[static_cast<std::size_t>(gradient)]);
    }
    if (gradients.empty()) return;
    Inserter inserter(step);
    inserter.after(ready, [&](Builder& builder) {
      builder.tag = {Phase::backward, -1, -1, name};
      const std::vector<TensorId> own =
          builder.emit("my_own_gradient", gradients, {{"axis", axes}, {"ranks", std::int64_t{step.mesh.size_of(axes)}}}, names);
      for (std::size_t k = 0; k < own.size(); ++k) parameters[k]->gradient = own[k];
    });
    inserter.apply();
  }

  /// In front of the step the weights are kept where a round begins; behind its optimizer a round may end.
  void finish(Program& program, AxisSet axes) const override {
    // By place, its value at the end of the step: parameters that are read together lie in one storage by now.
    std::map<std::pair<TensorId, std::int64_t>, TensorId> newest;
    const auto place = [&](TensorId id) { return std::pair(program[id].storage, program[id].offset); };
    for (const Instruction& i : program.instructions) {
      for (TensorId output : i.outputs) {
        if (output != no_tensor) newest[place(output)] = output;
      }
    }
    std::vector<const Parameter*> parameters;  // none of an evaluation
    for (const Parameter& parameter : program.parameters) {
      if (newest.contains(place(parameter.tensor))) parameters.push_back(&parameter);
    }
    if (parameters.empty()) return;
    Builder states(program);
    const TensorId steps = states.state("my-diloco.steps", DType::f32, {}, {});
    std::vector<TensorId> anchored{steps}, moved{steps};
    for (const Parameter* parameter : parameters) {
      const Tensor weight = program[parameter->tensor];
      const auto state = [&](const char* what) {
        return states.state(parameter->name + what, DType::f32, weight.shape, weight.placements);
      };
      anchored.insert(anchored.end(), {parameter->tensor, state(".anchor")});
      // Within a round each replica has values of its own, and so has a checkpoint.
      for (const TensorId tensor : {parameter->tensor, parameter->master}) {
        if (tensor != no_tensor) program[tensor].state_kind = StateKind::per_rank;
      }
      for (const ParameterState& kept : parameter->states) program[kept.tensor].state_kind = StateKind::per_rank;
      moved.insert(moved.end(), {newest.at(place(parameter->tensor)), no_tensor, state(".outer_momentum")});
    }
    const auto last = static_cast<InstructionId>(program.instructions.size()) - 1;
    Inserter inserter(program);
    inserter.after(-1, [&](Builder& builder) {
      builder.tag = {Phase::forward, -1, -1, name};
      const std::vector<TensorId> anchors = builder.emit("my_begin_round", anchored, {{"every", every_}});
      for (std::size_t k = 0; k < anchors.size(); ++k) moved[2 + 3 * k] = anchors[k];
    });
    inserter.after(last, [&](Builder& builder) {
      builder.tag = {Phase::optimizer, -1, -1, name};
      builder.emit("my_outer_step", moved, {{"axis", axes}, {"every", every_}, {"rate", rate_}, {"momentum", momentum_}});
    });
    inserter.apply();
  }

 private:
  std::int64_t every_;
  double rate_, momentum_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, MyDiloco, "my-diloco", "1.0.0",
               "DiLoCo: replicas train apart and average their weights every so many steps");
CONSIST_PLUGIN_OPTIONS({"every", consist::OptionKind::integer, "500", "steps of a round, behind which replicas average",
                        "1..1000000"},
                       {"rate", consist::OptionKind::real, "0.7", "of the outer step", "0.."},
                       {"momentum", consist::OptionKind::real, "0.9", "of the outer step, Nesterov's", "0..<1"});
