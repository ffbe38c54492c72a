#include <algorithm>
#include <unordered_map>

#include "consist/analysis.h"
#include "consist/builder.h"
#include "consist/error.h"
#include "consist/rewrite.h"
#include "core/base/index.h"

namespace consist {
namespace {

class Reverse final : public Differentiator {
 public:
  Reverse(Program& program, DType gradient_dtype)
      : program_(program),
        builder_(program),
        gradient_dtype_(gradient_dtype),
        gradients_(program.tensors.size(), no_tensor),
        requires_grad_(program.tensors.size(), false),
        is_parameter_(program.tensors.size(), false),
        def_use_(program) {
    for (const Parameter& p : program.parameters) {
      requires_grad_[index(p.tensor)] = p.trainable;
      is_parameter_[index(p.tensor)] = true;
    }
    for (const Instruction& i : program.instructions) {
      bool depends = false, of_parameters = i.op->passes_parameters_on();
      for (TensorId input : i.inputs) {
        depends |= input != no_tensor && requires_grad_[index(input)];
        of_parameters = of_parameters && (input == no_tensor || is_parameter_[index(input)]);
      }
      for (TensorId output : i.outputs) {
        if (output == no_tensor) continue;
        requires_grad_[index(output)] = depends;
        is_parameter_[index(output)] = of_parameters;
      }
    }
  }

  void run() {
    const std::size_t forward = program_.instructions.size();
    for (std::size_t i = forward; i-- > 0;) {
      // A copy: emitting moves the vector of instructions.
      const Instruction instruction = program_.instructions[i];
      if (!flows_back(instruction)) continue;
      builder_.tag = instruction.tag;
      builder_.tag.phase = Phase::backward;
      instruction.op->differentiate(*this, instruction);
      for (TensorId output : instruction.outputs) {
        if (output == no_tensor || gradients_[index(output)] == no_tensor) continue;
        --holders_[gradients_[index(output)]];  // this tensor's gradient is not asked for any more
      }
    }
    for (Parameter& p : program_.parameters) {
      if (!p.trainable) continue;
      p.gradient = gradients_[index(p.tensor)];
      if (p.gradient == no_tensor) throw ProgramError("the loss does not depend on parameter '" + p.name + "'");
    }
    for (const auto& [old, by] : replaced_) replace(old, by, forward);
  }

  Builder& build() override { return builder_; }
  const Program& program() const override { return program_; }
  InstructionId producer(TensorId tensor) const override { return def_use_.producer(tensor); }
  TensorId gradient(TensorId tensor) override { return gradients_[index(tensor)]; }
  bool requires_grad(TensorId tensor) const override { return requires_grad_[index(tensor)]; }
  TensorId accumulator(TensorId tensor) override {
    const TensorId known = gradients_[index(tensor)];
    return known != no_tensor && holders_[known] == 1 ? known : no_tensor;
  }
  bool is_root(TensorId tensor) const override {
    return tensor == program_.loss || std::ranges::any_of(program_.outputs, [tensor](const StepOutput& output) {
             return output.kind == StepOutput::Kind::auxiliary_loss && output.tensor == tensor;
           });
  }
  void replace_all_uses_with(TensorId tensor, TensorId by) override { replaced_.emplace_back(tensor, by); }
  DType gradient_dtype(TensorId tensor) const override {
    return is_parameter_[index(tensor)] ? gradient_dtype_ : program_[tensor].dtype;
  }

  void accumulate_grad(TensorId tensor, TensorId gradient) override {
    if (!requires_grad(tensor)) return;
    TensorId& known = gradients_[index(tensor)];
    if (known == gradient) return;
    if (known == no_tensor) {
      hold(known, gradient);
    } else if (program_[gradient].storage == program_[known].storage) {
      hold(known, gradient);  // it was accumulated in place
    } else if (const TensorId sum = sum_by_maker(known, gradient); sum != no_tensor) {
      hold(known, sum);
    } else if (holders_[known] == 1) {
      hold(known, builder_.emit_one("add", {known, gradient}, {}, program_[gradient].name));
    } else {
      // The sum so far is also the gradient of another tensor: add into a copy.
      const Attributes same{{"dtype", std::string(name_of(program_[gradient].dtype))}};
      const TensorId copy = builder_.emit_one("cast", {known}, same, program_[gradient].name);
      hold(known, builder_.emit_one("add", {copy, gradient}, {}, program_[gradient].name));
    }
  }

 private:
  bool flows_back(const Instruction& i) const {
    for (TensorId output : i.outputs) {
      if (output != no_tensor && requires_grad_[index(output)] && (is_root(output) || gradients_[index(output)] != no_tensor))
        return true;
    }
    return false;
  }

  /// A sum that the op which made both summands makes at once; no_tensor: it cannot.
  TensorId sum_by_maker(TensorId known, TensorId gradient) {
    const auto maker = [&](TensorId made) {
      const auto& all = program_.instructions;
      const auto found = std::find_if(
          all.rbegin(), all.rend(), [&](const Instruction& i) { return std::ranges::find(i.outputs, made) != i.outputs.end(); });
      return found == all.rend() ? Instruction() : *found;  // a copy: emitting moves the vector
    };
    const Instruction last = maker(gradient);
    const Instruction first = maker(known);
    return first.op != nullptr && first.op == last.op ? last.op->emit_sum(builder_, first, last) : no_tensor;
  }

  void hold(TensorId& slot, TensorId gradient) {
    if (slot != no_tensor) --holders_[slot];
    slot = gradient;
    ++holders_[gradient];
  }

  void replace(TensorId old, TensorId by, std::size_t forward) {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction& instruction = program_.instructions[i];
      for (TensorId& input : instruction.inputs) {
        if (input != old) continue;
        if (i < forward)
          throw ProgramError("'" + program_[old].name + "' is read by forward, but its value comes only with the gradients");
        input = by;
      }
    }
    if (program_.loss == old) program_.loss = by;
  }

  Program& program_;
  Builder builder_;
  DType gradient_dtype_;
  std::vector<TensorId> gradients_;  // by forward tensor: as accumulated so far
  std::vector<bool> requires_grad_;
  std::vector<bool> is_parameter_;
  const DefUse def_use_;                       // of forward
  std::unordered_map<TensorId, int> holders_;  // forward tensors whose gradient this is and may still be asked for
  std::vector<std::pair<TensorId, TensorId>> replaced_;
};

}  // namespace

void remove_dead(Program& program) {
  std::vector<bool> needed(program.tensors.size(), false), dropped(program.tensors.size(), false);
  auto need = [&](TensorId id) {
    if (id != no_tensor) needed[static_cast<std::size_t>(id)] = true;
  };
  need(program.loss);
  for (const StepOutput& output : program.outputs) need(output.tensor);
  for (const Router& router : program.routers) need(router.statistics);  // its choices are counted later
  for (const Parameter& p : program.parameters) need(p.gradient);
  std::vector<Instruction> kept;
  for (std::size_t i = program.instructions.size(); i-- > 0;) {
    Instruction& instruction = program.instructions[i];
    // Such as a send: it is kept for its effect.
    const bool makes_nothing = std::ranges::all_of(instruction.outputs, [](TensorId id) { return id == no_tensor; });
    bool alive = makes_nothing;
    for (TensorId output : instruction.outputs) {
      if (output == no_tensor) continue;
      const Tensor& t = program[output];
      alive |= needed[static_cast<std::size_t>(output)] || t.state || t.role == Role::metric;
    }
    if (alive) {
      // An op that states the lifetime of bytes (a release) is no reason to make them.
      if (!makes_nothing || instruction.op->touches_memory()) std::ranges::for_each(instruction.inputs, need);
      kept.push_back(std::move(instruction));
      continue;
    }
    for (TensorId output : instruction.outputs) {
      if (output != no_tensor) dropped[static_cast<std::size_t>(output)] = true;
    }
  }
  std::erase_if(kept, [&](Instruction& i) {
    return std::erase_if(i.inputs, [&](TensorId id) { return id != no_tensor && dropped[static_cast<std::size_t>(id)]; }) > 0 &&
           i.inputs.empty();
  });
  program.instructions.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

void differentiate(Program& program, DType gradient_dtype) {
  if (program.loss == no_tensor) throw ProgramError("the program has no loss to differentiate");
  Reverse(program, gradient_dtype).run();
  std::vector<bool> is_gradient(program.tensors.size(), false);
  for (const Parameter& p : program.parameters) {
    if (p.gradient != no_tensor) is_gradient[static_cast<std::size_t>(program[p.gradient].storage)] = true;
  }
  for (Tensor& t : program.tensors) {
    if (is_gradient[static_cast<std::size_t>(t.storage)]) t.role = Role::gradient;
  }
  remove_dead(program);
}

}  // namespace consist
