#include "plugins/strategies/pipeline/divide.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "consist/analysis.h"
#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/rewrite.h"
#include "plugins/strategies/pipeline/messages.h"
#include "plugins/strategies/pipeline/unused_tensors.h"

namespace consist::pipeline {
namespace {

using RankSet = std::uint64_t;  // by coordinate on the axis

std::size_t index(TensorId id) {
  return static_cast<std::size_t>(id);
}

/// A layer may lie in two stages. What the recomputation of its first part makes again is not fetched from there: the second
/// part still has what forward sent. What was made again for it alone is dropped.
void keep_what_forward_sends(Program& program) {
  using Key = std::tuple<std::int16_t, std::string_view, std::string_view>;  // layer, op, name of the first output
  const auto key_of = [&](const Instruction& i) {
    const auto output = std::find_if(i.outputs.begin(), i.outputs.end(), [](TensorId id) { return id != no_tensor; });
    return Key{i.tag.layer, i.op->name(), output == i.outputs.end() ? std::string_view() : program[*output].name};
  };
  std::map<Key, std::vector<const Instruction*>> in_forward;
  std::vector<const Instruction*> again(program.tensors.size(), nullptr);  // by tensor: the repetition that makes it
  for (const Instruction& i : program.instructions) {
    if (i.tag.phase == Phase::forward) in_forward[key_of(i)].push_back(&i);
    for (TensorId output : i.outputs) {
      if (output != no_tensor && program[output].recomputed) again[index(output)] = &i;
    }
  }
  bool dropped = false;
  for (Instruction& reader : program.instructions) {
    for (TensorId& input : reader.inputs) {
      if (input == no_tensor || again[index(input)] == nullptr) continue;
      const Instruction& repeated = *again[index(input)];
      if (repeated.tag.stage == reader.tag.stage) continue;
      const auto first = in_forward.find(key_of(repeated));
      if (first == in_forward.end() || first->second.size() != 1) continue;
      const auto k = std::find(repeated.outputs.begin(), repeated.outputs.end(), input) - repeated.outputs.begin();
      input = first->second.front()->outputs[static_cast<std::size_t>(k)];
      dropped = true;
    }
  }
  if (dropped) remove_dead(program);
}

class Divider {
 public:
  Divider(Program& program, int axis)
      : program_(program),
        builder_(program),
        axis_(axis),
        ranks_(program.mesh.size_of(axis)),
        me_(program.mesh.coordinate(program.rank, axis)),
        old_(std::move(program.instructions)),
        def_use_(program.tensors.size(), old_),
        value_(program.tensors.size()),
        users_(program.tensors.size(), 0),
        hops_(program.tensors.size(), 0),
        is_sum_(program.tensors.size(), false),
        first_user_(program.tensors.size()),
        stage_here_(program.tensors.size(), -1),
        kind_(old_.size(), Kind::staged) {
    program.instructions.clear();
    for (std::size_t t = 0; t < value_.size(); ++t) value_[t] = static_cast<TensorId>(t);
    for (TensorId& value : value_) {
      if (def_use_.is_made(value)) value = no_tensor;
    }
  }

  void run() {
    find_free();
    find_sums();
    find_users();
    check_trainers();
    find_messages();
    for (std::size_t i = 0; i < old_.size(); ++i) take(i);
    if (!incoming_.empty())
      throw ProgramError("pipeline stage " + std::to_string(std::get<0>(incoming_.begin()->first)) +
                         " has no part that could receive what is sent to it");
    settle();
    program_.stage_axis = axis_;
  }

 private:
  enum class Kind : std::uint8_t {
    staged,  // runs where its stage lies
    free,    // follows from parameters alone: runs wherever its outputs are used
    sum,     // carries the sum of a parameter's gradient on: runs wherever there is a summand
  };

  static constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();
  struct User {
    std::size_t at = nobody;  ///< its place in the program
    Tag tag;
  };

  struct Message {
    TensorId tensor = no_tensor;
    int hop = 1;           ///< number of ranks that it has passed when it is here
    bool goes_on = false;  ///< to the next rank
  };

  int owner(std::size_t i) const {
    const int stage = old_[i].tag.stage;
    if (stage < 0) throw ProgramError("'" + std::string(old_[i].op->name()) + "' is in no pipeline stage");
    return stage % ranks_;
  }
  static RankSet set_of(int rank) { return RankSet{1} << rank; }
  bool made(TensorId id) const { return def_use_.is_made(id); }
  std::size_t maker(TensorId id) const { return static_cast<std::size_t>(def_use_.producer(id)); }
  /// True if the tensor is a summand of the gradient of a parameter, which every rank sums by itself.
  bool is_sum(TensorId id) const { return is_sum_[index(program_[id].storage)]; }
  bool staged(TensorId id) const { return made(id) && kind_[maker(id)] == Kind::staged; }

  void find_free() {
    for (std::size_t i = 0; i < old_.size(); ++i) {
      const bool free = !old_[i].inputs.empty() && std::all_of(old_[i].inputs.begin(), old_[i].inputs.end(), [&](TensorId id) {
        if (id == no_tensor) return true;
        return made(id) ? kind_[maker(id)] == Kind::free : program_[id].state;
      });
      if (free) kind_[i] = Kind::free;
    }
  }

  void find_sums() {
    for (const Parameter& p : program_.parameters) {
      if (p.gradient != no_tensor) is_sum_[index(program_[p.gradient].storage)] = true;
    }
    for (std::size_t i = old_.size(); i-- > 0;) {
      if (!old_[i].op->changes_placement() && !old_[i].op->is_additive()) continue;
      const auto& outputs = old_[i].outputs;
      if (!std::all_of(outputs.begin(), outputs.end(), [&](TensorId id) { return id != no_tensor && is_sum(id); })) continue;
      kind_[i] = Kind::sum;
      for (TensorId input : old_[i].inputs) is_sum_[index(program_[input].storage)] = true;
    }
  }

  void find_users() {
    for (const StepOutput& output : program_.outputs) {  // what follows from parameters alone runs in one stage for these
      if (output.tensor == no_tensor || !made(output.tensor)) continue;
      const std::size_t at = maker(output.tensor);
      if (kind_[at] != Kind::free) continue;
      users_[index(output.tensor)] = set_of(owner(at));
      if (owner(at) == me_) first_user_[index(output.tensor)] = {at, old_[at].tag};
    }
    for (std::size_t i = old_.size(); i-- > 0;) {
      RankSet ranks = 0;
      User user{i, old_[i].tag};
      if (kind_[i] == Kind::staged) ranks = set_of(owner(i));
      if (kind_[i] == Kind::free) {
        for (TensorId output : old_[i].outputs) {
          if (output != no_tensor) ranks |= users_[index(output)];
        }
        user = first_user(old_[i]);
      }
      for (TensorId input : old_[i].inputs) {
        if (input == no_tensor) continue;
        users_[index(input)] |= ranks;
        if ((ranks & set_of(me_)) != 0) first_user_[index(input)] = user;
      }
    }
  }

  /// The ranks that have summands of a parameter's gradient.
  RankSet trainers(TensorId gradient) const {
    RankSet ranks = 0;
    std::vector<TensorId> open{gradient};
    while (!open.empty()) {
      const TensorId sum = open.back();
      open.pop_back();
      if (!made(sum)) continue;
      const std::size_t at = maker(sum);
      if (kind_[at] == Kind::staged) ranks |= set_of(owner(at));
      for (TensorId input : old_[at].inputs) {
        if (input != no_tensor && is_sum(input)) open.push_back(input);
      }
    }
    return ranks;
  }

  /// The own metric that reads a parameter on one of these ranks; empty: none does.
  std::string metric_that_reads(TensorId parameter, RankSet ranks) const {
    std::string metric;
    for (const StepOutput& output : program_.outputs) {
      if (output.kind == StepOutput::Kind::metric) metric = output.name.substr(std::string_view("metric.").size());
      if (output.kind != StepOutput::Kind::metric && output.kind != StepOutput::Kind::metric_count) continue;
      std::vector<bool> seen(program_.tensors.size(), false);
      std::vector<TensorId> open{output.tensor};
      while (!open.empty()) {
        const TensorId tensor = open.back();
        open.pop_back();
        if (tensor == parameter) return metric;
        if (tensor == no_tensor || seen[index(tensor)] || !made(tensor)) continue;
        seen[index(tensor)] = true;
        const std::size_t at = maker(tensor);
        if (kind_[at] == Kind::staged && (set_of(owner(at)) & ranks) == 0) continue;
        open.insert(open.end(), old_[at].inputs.begin(), old_[at].inputs.end());
      }
    }
    return {};
  }

  /// Ranks that share a parameter exchange summands of its gradient: one that reads it alone would have nothing to send.
  void check_trainers() const {
    for (const Parameter& p : program_.parameters) {
      const RankSet users = users_[index(p.tensor)];
      if (p.gradient == no_tensor || std::popcount(users) < 2) continue;
      const RankSet readers = users & ~trainers(p.gradient);
      if (readers == 0) continue;
      const std::string metric = metric_that_reads(p.tensor, readers);
      throw UsageError("strategy 'pipeline': " + (metric.empty() ? "an op" : "the metric '" + metric + "'") + " reads '" +
                       p.name + "' in a stage that does not train it, beside what another stage makes; " +
                       (metric.empty() ? "leave it out" : "report what it takes of the weight as a metric of its own") +
                       ", or train without pipeline");
    }
  }

  /// The first reader of one of its outputs on this rank.
  User first_user(const Instruction& instruction) const {
    User first;
    for (TensorId output : instruction.outputs) {
      if (output != no_tensor && first_user_[index(output)].at < first.at) first = first_user_[index(output)];
    }
    return first;
  }

  /// Direction of the outputs of instruction `i`: activations are sent to the next stage, gradients to the one before.
  bool forward(std::size_t i) const { return old_[i].tag.phase == Phase::forward; }

  /// Number of ranks that the tensor is sent on, from neighbour to neighbour: those between forward it to the farthest reader.
  void find_messages() {
    for (std::size_t i = 0; i < old_.size(); ++i) {
      if (kind_[i] != Kind::staged) continue;
      for (TensorId input : old_[i].inputs) {
        if (input == no_tensor || !staged(input) || is_sum(input)) continue;
        const std::size_t made_by = maker(input);
        if (owner(made_by) == owner(i)) continue;
        const std::int16_t from = old_[made_by].tag.stage, to = old_[i].tag.stage;
        if (forward(made_by) ? to < from : to > from) {
          throw ProgramError("'" + program_[input].name + "' is made in pipeline stage " + std::to_string(from) +
                             " and read in stage " + std::to_string(to) + ", against the way of what it belongs to");
        }
        const int towards = forward(made_by) ? owner(i) - owner(made_by) : owner(made_by) - owner(i);
        hops_[index(input)] = std::max(hops_[index(input)], (towards + ranks_) % ranks_);
      }
    }
    for (std::size_t i = 0; i < old_.size(); ++i) {
      for (TensorId output : old_[i].outputs) {
        if (output == no_tensor || hops_[index(output)] == 0) continue;
        const int hop = (forward(i) ? me_ - owner(i) : owner(i) - me_) + ranks_;
        if (const int here = hop % ranks_; here >= 1 && here <= hops_[index(output)]) {
          const int stage = old_[i].tag.stage + (forward(i) ? here : -here);
          incoming_[{static_cast<std::int16_t>(stage), old_[i].tag.phase}].push_back({output, here, here < hops_[index(output)]});
        }
      }
    }
    // Neighbours send first the tensors that they forward, those of the farthest stages before the others, then their own.
    for (auto& [part, messages] : incoming_)
      std::stable_sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) { return a.hop > b.hop; });
  }

  void take(std::size_t i) {
    Instruction& instruction = old_[i];
    if (kind_[i] == Kind::sum) return take_sum(instruction);
    bool mine = kind_[i] == Kind::staged && owner(i) == me_;
    if (const User user = first_user(instruction); kind_[i] == Kind::free && user.at != nobody) {
      // It runs with its first reader on this rank.
      instruction.tag.stage = user.tag.stage;
      instruction.tag.phase = user.tag.phase;
      mine = true;
    }
    if (!mine) return pass_by(instruction);
    if (kind_[i] == Kind::staged) receive(instruction.tag);
    for (TensorId& input : instruction.inputs) {
      if (input == no_tensor) continue;
      if (value_[index(input)] == no_tensor && !is_sum(input))
        throw ProgramError("'" + program_[input].name + "' has not arrived in pipeline stage " +
                           std::to_string(instruction.tag.stage) + ", which reads it");
      input = value_[index(input)];  // of a sum that begins here: none
    }
    keep(instruction);
  }

  /// Another rank's instruction may have added to a sum: here the sum stays as it is.
  void pass_by(const Instruction& instruction) {
    for (std::size_t k = 0; k < instruction.outputs.size(); ++k) {
      const int slot = instruction.op->updates_in_place(static_cast<int>(k));
      if (instruction.outputs[k] == no_tensor || !is_sum(instruction.outputs[k]) || slot < 0 ||
          static_cast<std::size_t>(slot) >= instruction.inputs.size() ||
          instruction.inputs[static_cast<std::size_t>(slot)] == no_tensor)
        continue;
      value_[index(instruction.outputs[k])] = value_[index(instruction.inputs[static_cast<std::size_t>(slot)])];
    }
  }

  void take_sum(Instruction& instruction) {
    TensorId here = no_tensor;
    bool all = true;
    for (TensorId& input : instruction.inputs) {
      input = value_[index(input)];
      if (input == no_tensor) all = false;
      if (input != no_tensor) here = input;
    }
    if (all) {
      instruction.tag.stage = stage_here_[index(instruction.inputs[0])];
      return keep(instruction);
    }
    if (instruction.op->adds_pairs()) value_[index(instruction.outputs[0])] = here;  // one summand is the sum
  }

  /// Emits the receives before the first instruction of a part: all that arrive for it or through it, in the order of sending.
  void receive(const Tag& tag) {
    const auto found = incoming_.find({tag.stage, tag.phase});
    if (found == incoming_.end()) return;
    const bool is_forward = tag.phase == Phase::forward;
    builder_.tag = tag;
    builder_.tag.inserted_by = "pipeline";
    for (const Message& message : found->second)
      value_[index(message.tensor)] =
          emit_receive(builder_, message.tensor, axis_, is_forward ? Lane::from_previous : Lane::from_next);
    for (const Message& message : found->second) {
      if (message.goes_on)
        emit_send(builder_, value_[index(message.tensor)], axis_, is_forward ? Lane::to_next : Lane::to_previous);
    }
    incoming_.erase(found);
  }

  void keep(Instruction& instruction) {
    const Tag tag = instruction.tag;
    for (std::size_t k = 0; k < instruction.outputs.size(); ++k) {
      const TensorId output = instruction.outputs[k];
      if (output == no_tensor) continue;
      value_[index(output)] = output;
      stage_here_[index(output)] = tag.stage;
      Tensor& tensor = program_[output];
      const int slot = instruction.op->updates_in_place(static_cast<int>(k));
      const bool updates = slot >= 0 && static_cast<std::size_t>(slot) < instruction.inputs.size() &&
                           instruction.inputs[static_cast<std::size_t>(slot)] != no_tensor;
      if (updates) {
        const Tensor& updated = program_[instruction.inputs[static_cast<std::size_t>(slot)]];
        if (tensor.storage == updated.storage) continue;
        tensor.storage = updated.storage;
        tensor.offset = updated.offset;
      } else if (made(tensor.storage) && value_[index(tensor.storage)] != tensor.storage) {
        tensor.storage = output;  // the tensor that it updated is on another rank
        tensor.offset = 0;
      }
    }
    const std::vector<TensorId> outputs = instruction.outputs;
    program_.instructions.push_back(std::move(instruction));
    for (TensorId output : outputs) {
      if (output == no_tensor || hops_[index(output)] == 0) continue;
      builder_.tag = tag;
      builder_.tag.inserted_by = "pipeline";
      emit_send(builder_, output, axis_, tag.phase == Phase::forward ? Lane::to_next : Lane::to_previous);
    }
  }

  void settle() {
    std::vector<Parameter> mine;
    for (Parameter p : program_.parameters) {
      const RankSet users = users_[index(p.tensor)];
      if ((users & set_of(me_)) == 0) continue;
      if (std::popcount(users) > 2) {
        throw UsageError("strategy 'pipeline': '" + p.name + "' is used in " + std::to_string(std::popcount(users)) +
                         " stages; a parameter can be shared by two, as tied embeddings are");
      }
      if (std::popcount(users) == 2) {
        const int other = std::countr_zero(users & ~set_of(me_));
        p.tied_replica = program_.mesh.group(program_.rank, axis_)[static_cast<std::size_t>(other)];
      }
      if (p.gradient != no_tensor) p.gradient = value_[index(p.gradient)];
      mine.push_back(std::move(p));
    }
    program_.parameters = std::move(mine);
    if (program_.loss != no_tensor) program_.loss = value_[index(program_.loss)];
    for (StepOutput& output : program_.outputs) keep_or_zero(output.tensor, output.name);
    for (Router& router : program_.routers) {  // another rank may have received them
      if (value_[index(router.statistics)] != router.statistics) router.statistics = no_tensor;
    }
  }

  /// A scalar that is summed over the stages, each of which must have a summand: zero where another rank makes it.
  void keep_or_zero(TensorId& scalar, const std::string& name) {
    if (scalar == no_tensor) return;
    const bool is_received = value_[index(scalar)] != scalar;
    scalar = is_received ? no_tensor : scalar;
    if (scalar != no_tensor || program_.instructions.empty()) return;
    builder_.tag = program_.instructions.front().tag;
    builder_.tag.inserted_by = "pipeline";
    const TensorId zero = builder_.constant("no_" + name, {}, [](std::span<float> out) { out[0] = 0; });
    scalar = builder_.emit_one("cast", {zero}, {{"dtype", std::string(name_of(DType::f32))}}, name);
  }

  Program& program_;
  Builder builder_;
  int axis_, ranks_, me_;
  std::vector<Instruction> old_;
  const DefUse def_use_;                  // of the whole segment
  std::vector<TensorId> value_;           // by tensor: what stands for it on this rank, no_tensor if nothing (yet) does
  std::vector<RankSet> users_;            // by tensor: ranks whose staged instructions read it, through free ones too
  std::vector<int> hops_;                 // by tensor: to how many ranks it goes, one behind the other; 0: it stays
  std::vector<bool> is_sum_;              // by storage
  std::vector<User> first_user_;          // by tensor: of the first instruction on this rank that reads it, through free ones too
  std::vector<std::int16_t> stage_here_;  // by tensor: the stage whose part makes it on this rank
  std::vector<Kind> kind_;                // by instruction
  std::map<std::tuple<std::int16_t, Phase>, std::vector<Message>> incoming_;  // by the part of this rank that receives them
};

}  // namespace

void divide(Program& segment, int axis) {
  if (segment.mesh.size_of(axis) > 64) throw UsageError("strategy 'pipeline' spans at most 64 ranks");
  keep_what_forward_sends(segment);
  Divider(segment, axis).run();
  drop_unused_tensors(segment);
}

}  // namespace consist::pipeline
