#include "plugins/strategies/zero/offload.h"

#include <algorithm>
#include <set>
#include <string>

#include "consist/edit.h"
#include "consist/error.h"
#include "plugins/strategies/zero/elements.h"

namespace consist::zero {
namespace {

constexpr std::size_t gathers_ahead = 2;  // one is copied to the device while the other is gathered

void on_queue(Program& program, Queue queue) {
  program.instructions.back().queue = queue;
}

/// A copy of `tensor` in another space, made on the queue of that direction.
TensorId copy_to(Builder& builder, TensorId tensor, MemorySpace space) {
  Program& program = builder.program();
  const TensorId copy = builder.emit_one("copy", {tensor}, {}, program[tensor].name);
  program[copy].space = space;
  program[copy].role = program[tensor].role == Role::input ? Role::workspace : program[tensor].role;
  on_queue(program, space == MemorySpace::device ? Queue::host_to_device() : Queue::device_to_host());
  return copy;
}

/// Memory for a parameter in another space. It is updated from the master where there is one, else from its own value.
TensorId parameter_in(Builder& builder, TensorId parameter, TensorId master, MemorySpace space) {
  if (master == no_tensor) return copy_to(builder, parameter, space);
  Program& program = builder.program();
  const TensorId room = builder.emit_one("empty_like", {parameter}, {}, program[parameter].name);
  program[room].space = space;
  program[room].role = Role::parameter;
  return room;
}

/// Writes `value` back to where `state` lies on the host.
void copy_back(Builder& builder, TensorId value, TensorId state) {
  const std::string name = builder[state].name;
  builder.emit("copy", {value, state}, {}, {name});
  on_queue(builder.program(), Queue::device_to_host());
}

/// One parameter's tensors in an op that updates parameters side by side (Op::states_per_update()).
struct Updated {
  TensorId parameter, gradient, master;
  std::vector<TensorId> states;

  /// Tensors that the update writes, in the order of the op's outputs.
  std::vector<TensorId> written() const {
    std::vector<TensorId> all{parameter, master};
    all.insert(all.end(), states.begin(), states.end());
    return all;
  }
};

/// Parameters that one instruction updates.
struct Piece {
  const Instruction* of;
  std::vector<Updated> parameters;
};

/// Groups whose states are on the device at one time.
struct Group {
  std::vector<Piece> pieces;
};

class Streamer {
 public:
  Streamer(Program& step, const Settings& settings) : step_(step), settings_(settings) {}

  void run() {
    take_updates();
    move_states();
    if (updates_.empty()) return copy_before_reads();
    const std::vector<Group> groups = cut();
    Inserter inserter(step_);
    inserter.after(position_, [&](Builder& builder) {
      builder.tag.phase = Phase::optimizer;
      if (settings_.update_on_host) {
        for (const Group& group : groups) update_on_host(builder, group);
        return;
      }
      // Three groups are on the device at once: one arrives, one is updated, one leaves.
      std::vector<Group> staged;
      const auto stage_next = [&] {
        if (staged.size() < groups.size()) staged.push_back(stage(builder, groups[staged.size()]));
      };
      stage_next();
      stage_next();
      for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::vector<std::vector<TensorId>> updated = update(builder, staged[g]);
        stage_next();
        bring_home(builder, groups[g], updated);
      }
    });
    inserter.apply();
  }

 private:
  /// Takes the updates out of the program; the others go where the first stood.
  void take_updates() {
    std::vector<Instruction> kept;
    for (Instruction& i : step_.instructions) {
      if (i.op->states_per_update() >= 0) {
        if (updates_.empty()) position_ = static_cast<InstructionId>(kept.size()) - 1;
        for (TensorId output : i.outputs) {
          if (output != no_tensor)
            step_[output].state = false;  // no instruction makes it any more, and it does not exist from the start either
        }
        updates_.push_back(std::move(i));
      } else {
        kept.push_back(std::move(i));
      }
    }
    step_.instructions = std::move(kept);
  }

  void move_states() {
    std::int64_t all = 0, moved = 0;
    for (const Parameter& p : step_.parameters) all += p.trainable ? step_.local(p.tensor).elements() : 0;
    std::set<TensorId> streamed;  // of other updates the states stay where their ops read them
    for (const Instruction& update : updates_) streamed.insert(update.inputs.begin(), update.inputs.end());
    for (const Parameter& p : step_.parameters) {
      if (!p.trainable) continue;
      const bool moves =
          settings_.offload_optimizer && static_cast<double>(moved) < settings_.offload_ratio * static_cast<double>(all);
      if (!moves && !on_host(p.tensor)) continue;
      if (p.gradient != no_tensor && !streamed.contains(p.tensor)) {
        throw UsageError("--" + std::string(settings_.strategy) + ": the update of '" + p.name +
                         "' needs more than single elements, so that " + (moves ? "its states" : "it") +
                         " cannot be offloaded; use --optimizer adamw, adamw-8bit, sgd or lion, or keep " +
                         (moves ? "the optimizer" : "parameters") + " on the device");
      }
      if (!moves) continue;
      moved += step_.local(p.tensor).elements();
      if (p.master != no_tensor) step_[p.master].space = MemorySpace::host;
      for (const ParameterState& state : p.states) step_[state.tensor].space = MemorySpace::host;
    }
  }

  /// An evaluation may read states: on the device.
  void copy_before_reads() {
    Inserter inserter(step_);
    for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
      std::vector<TensorId> inputs = step_.instructions[i].inputs;
      const Tag tag = step_.instructions[i].tag;
      const auto is_read = [&](TensorId id) { return on_host(id) && step_[id].state; };
      if (step_.instructions[i].queue.is_copy() || std::ranges::none_of(inputs, is_read)) continue;
      inserter.after(static_cast<InstructionId>(i) - 1, [&](Builder& builder) {
        builder.tag = tag;
        builder.tag.inserted_by = settings_.strategy;
        for (TensorId& input : inputs) {
          if (is_read(input)) input = copy_to(builder, input, MemorySpace::device);
        }
      });
      step_.instructions[i].inputs = std::move(inputs);
    }
    inserter.apply();
  }

  std::vector<Group> cut() const {
    std::vector<Group> groups(1);
    std::int64_t elements = 0;
    for (const Instruction& update : updates_) {
      groups.back().pieces.push_back({&update, {}});
      const std::size_t each = 3 + static_cast<std::size_t>(update.op->states_per_update());
      for (std::size_t k = 2; k < update.inputs.size(); k += each) {
        const auto first = update.inputs.begin() + static_cast<std::ptrdiff_t>(k);
        const Updated tensors{first[0], first[1], first[2], {first + 3, first + static_cast<std::ptrdiff_t>(each)}};
        const std::int64_t more = step_.local(tensors.parameter).elements();
        if (elements > 0 && elements + more > settings_.sub_group) {
          groups.push_back({{{&update, {}}}});
          elements = 0;
        }
        elements += more;
        groups.back().pieces.back().parameters.push_back(tensors);
      }
    }
    return groups;
  }

  bool on_host(TensorId tensor) const { return tensor != no_tensor && step_[tensor].space == MemorySpace::host; }

  /// True if states or master of an update lie on the host; where it keeps none (sgd without momentum), if the parameter does.
  bool lives_on_host(const Updated& u) const {
    for (TensorId tensor : u.states) {
      if (tensor != no_tensor) return on_host(tensor);
    }
    return on_host(u.master != no_tensor ? u.master : u.parameter);
  }

  TensorId staged(Builder& builder, TensorId state) const {
    return on_host(state) ? copy_to(builder, state, MemorySpace::device) : state;
  }

  /// The group's tensors, all on the device.
  Group stage(Builder& builder, Group group) const {
    for (Piece& piece : group.pieces) {
      for (Updated& u : piece.parameters) {
        set_tag(builder, *piece.of);
        if (on_host(u.parameter)) u.parameter = parameter_in(builder, u.parameter, u.master, MemorySpace::device);
        u.master = staged(builder, u.master);
        for (TensorId& state : u.states) state = staged(builder, state);
      }
    }
    return group;
  }

  /// Emits the updates and returns their outputs by group: for each parameter the tensors of Updated::written().
  std::vector<std::vector<TensorId>> update(Builder& builder, const Group& group) const {
    std::vector<std::vector<TensorId>> updated;
    for (const Piece& piece : group.pieces) {
      updated.push_back(piece.parameters.empty() ? std::vector<TensorId>{}
                                                 : emit_update(builder, piece, {piece.of->inputs[0], piece.of->inputs[1]}));
    }
    return updated;
  }

  /// Copies tensors back that live on the host.
  void bring_home(Builder& builder, const Group& group, const std::vector<std::vector<TensorId>>& updated) const {
    for (std::size_t p = 0; p < group.pieces.size(); ++p) {
      set_tag(builder, *group.pieces[p].of);
      for (std::size_t k = 0; k < group.pieces[p].parameters.size(); ++k) {
        const Updated& u = group.pieces[p].parameters[k];
        const std::vector<TensorId> homes = u.written();
        for (std::size_t s = 0; s < homes.size(); ++s) {
          if (on_host(homes[s])) copy_back(builder, updated[p][homes.size() * k + s], homes[s]);
        }
      }
    }
  }

  /// Where the states lie on the host, the gradient goes there and the parameter, if it lives on the device, comes back.
  void update_on_host(Builder& builder, const Group& group) {
    for (const Piece& piece : group.pieces) {
      Piece here{piece.of, {}}, there{piece.of, {}};
      std::vector<TensorId> homes;
      for (Updated u : piece.parameters) {
        if (!lives_on_host(u)) {
          here.parameters.push_back(u);
          continue;
        }
        set_tag(builder, *piece.of);
        u.gradient = copy_to(builder, u.gradient, MemorySpace::host);
        homes.push_back(on_host(u.parameter) ? no_tensor : u.parameter);
        if (!on_host(u.parameter)) u.parameter = parameter_in(builder, u.parameter, u.master, MemorySpace::host);
        there.parameters.push_back(u);
      }
      if (!here.parameters.empty()) bring_home(builder, {{here}}, update(builder, stage(builder, {{here}})));
      if (there.parameters.empty()) continue;
      const std::vector<TensorId> out = emit_update(builder, there, scalars_on_host(builder, piece));
      on_queue(step_, Queue::device_to_host());
      step_.instructions.back().attributes.set("host", std::int64_t{1});
      for (std::size_t k = 0; k < homes.size(); ++k) {
        if (homes[k] == no_tensor) continue;
        builder.emit("copy", {out[k * there.parameters[k].written().size()], homes[k]}, {}, {step_[homes[k]].name});
        on_queue(step_, Queue::host_to_device());
      }
    }
  }

  /// The update's rates and its clip coefficient, which all updates share.
  const std::vector<TensorId>& scalars_on_host(Builder& builder, const Piece& piece) {
    if (scalars_.empty()) {
      for (std::size_t k : {std::size_t{0}, std::size_t{1}})
        scalars_.push_back(copy_to(builder, piece.of->inputs[k], MemorySpace::host));
    }
    return scalars_;
  }

  std::vector<TensorId> emit_update(Builder& builder, const Piece& piece, std::vector<TensorId> inputs) const {
    std::vector<std::string> names;
    for (const Updated& u : piece.parameters) {
      inputs.insert(inputs.end(), {u.parameter, u.gradient, u.master});
      inputs.insert(inputs.end(), u.states.begin(), u.states.end());
      for (TensorId t : u.written()) names.push_back(t == no_tensor ? "" : step_[t].name);
    }
    set_tag(builder, *piece.of);
    return builder.emit(piece.of->op->name(), std::move(inputs), piece.of->attributes, std::move(names));
  }

  void set_tag(Builder& builder, const Instruction& update) const {
    builder.tag = update.tag;
    builder.tag.inserted_by = settings_.strategy;
  }

  Program& step_;
  const Settings& settings_;
  std::vector<Instruction> updates_;
  std::vector<TensorId> scalars_;
  InstructionId position_ = -1;  // behind which they stood
};

}  // namespace

void place_parameters(Program& forward, const Settings& settings) {
  if (!settings.offload_param) return;
  for (const Parameter& parameter : forward.parameters) {
    Tensor& tensor = forward[parameter.tensor];
    if (!tensor.placements.flat_axes().empty() && whole_elements(forward, parameter.tensor) >= settings.persistence)
      tensor.space = MemorySpace::host;
  }
}

void copy_before_gathers(Program& program, AxisSet axes, const Settings& settings) {
  if (!settings.offload_param) return;
  std::vector<InstructionId> first_use(program.tensors.size(), -1), gathers;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (TensorId input : instruction.inputs) {
      if (input != no_tensor && first_use[static_cast<std::size_t>(input)] < 0)
        first_use[static_cast<std::size_t>(input)] = static_cast<InstructionId>(i);
    }
    const auto on_host = [&](TensorId t) { return t != no_tensor && program[t].space == MemorySpace::host; };
    if (instruction.op->movement() == Movement::all_gather && axes.contains(instruction.attributes.axes("axis")) &&
        std::any_of(instruction.inputs.begin(), instruction.inputs.end(), on_host))
      gathers.push_back(static_cast<InstructionId>(i));
  }
  Inserter inserter(program);
  for (std::size_t g = 0; g < gathers.size(); ++g) {
    const auto at = static_cast<std::size_t>(gathers[g]);
    const std::vector<TensorId> sources = program.instructions[at].inputs;
    const Tag tag = program.instructions[at].tag;
    InstructionId used = gathers[g];
    for (TensorId whole : program.instructions[at].outputs) used = std::max(used, first_use[static_cast<std::size_t>(whole)]);
    std::vector<TensorId> staged = sources, copies;
    const std::size_t ahead = settings.overlap ? gathers_ahead : 0;
    inserter.after(g < ahead ? -1 : gathers[g - ahead] - 1, [&](Builder& builder) {
      builder.tag = tag;
      builder.tag.inserted_by = settings.strategy;
      for (TensorId& source : staged) {
        if (program[source].space != MemorySpace::host) continue;
        source = copy_to(builder, source, MemorySpace::device);
        copies.push_back(source);
      }
    });
    program.instructions[at].inputs = staged;
    // By its use the gather has ended: until then nothing must wait for its memory.
    inserter.after(used, [&](Builder& builder) {
      builder.tag.inserted_by = settings.strategy;
      builder.emit("release", copies);
    });
  }
  inserter.apply();
}

void stream_optimizer(Program& step, const Settings& settings) {
  if (settings.offload_param || settings.offload_optimizer) Streamer(step, settings).run();
}

}  // namespace consist::zero
