#include "plugins/strategies/tp-sp/partition.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"

namespace consist::tensor_parallel {
namespace {

constexpr int out_dim = 0;  // of a weight
constexpr int in_dim = 1;
constexpr int sequence_dim = 1;
constexpr int vocabulary_dim = 0;

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

class Partitioner {
 public:
  Partitioner(Program& program, const PartitionSettings& settings)
      : program_(program), settings_(settings), ranks_(program.mesh.size_of(settings.axis)) {
    producer_.assign(program.tensors.size(), -1);
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      for (TensorId output : program.instructions[i].outputs) {
        if (output != no_tensor) producer_[index(output)] = static_cast<InstructionId>(i);
      }
    }
  }

  void run() {
    for (const Instruction& i : program_.instructions) {
      if (i.op->name() == "attention") split_attention(i);
      if (i.op->name() == "swiglu") split_swiglu(i);
    }
    for (const Instruction& i : program_.instructions) old_inputs_.push_back(i.inputs.empty() ? no_tensor : i.inputs[0]);
    std::vector<Instruction> old = std::move(program_.instructions);
    program_.instructions.clear();
    for (Instruction& i : old) rewrite(std::move(i));
  }

 private:
  [[noreturn]] void refuse(const std::string& what, std::int64_t count) const {
    throw UsageError("tp-sp=" + std::to_string(ranks_) + ": " + what + " " + std::to_string(count) + ", which " +
                     std::to_string(ranks_) + " ranks cannot share equally; choose another size for tp-sp");
  }
  Placement& on_axis(TensorId tensor) { return program_[tensor].placements[settings_.axis]; }

  /// The linear that made `tensor`, rope in between or not; null if something else did.
  const Instruction* linear_behind(TensorId tensor) const {
    while (producer_[index(tensor)] >= 0) {
      const Instruction& i = program_.instructions[index(producer_[index(tensor)])];
      if (i.op->name() == "linear") return program_[i.inputs[1]].role == Role::parameter ? &i : nullptr;
      if (i.op->name() != "rope") return nullptr;
      tensor = i.inputs[0];
    }
    return nullptr;
  }

  void split_outputs(const Instruction& linear) {
    on_axis(linear.inputs[1]) = Placement::shard(out_dim);
    if (linear.inputs.size() > 2 && linear.inputs[2] != no_tensor) on_axis(linear.inputs[2]) = Placement::shard(0);
  }

  void split_attention(const Instruction& i) {
    const Instruction* made_by[3];
    for (std::size_t k = 0; k < 3; ++k) {
      made_by[k] = linear_behind(i.inputs[k]);
      if (made_by[k] == nullptr) return;  // not of linears: it stays whole, as the ops' rules have it
    }
    const std::int64_t head_dim = i.attributes.integer("head_dim");
    const std::int64_t heads = program_[i.inputs[0]].shape[2] / head_dim, kv_heads = program_[i.inputs[1]].shape[2] / head_dim;
    if (heads % ranks_ != 0) refuse("the number of attention heads is", heads);
    if (kv_heads % ranks_ != 0 && ranks_ % kv_heads != 0) refuse("the number of key/value heads is", kv_heads);
    split_outputs(*made_by[0]);
    for (const Instruction* linear : {made_by[1], made_by[2]}) {
      if (kv_heads % ranks_ == 0) {
        split_outputs(*linear);
      } else {
        repeated_[linear->outputs[0]] = head_dim;
      }
    }
    split_.insert(i.outputs[0]);
  }

  void split_swiglu(const Instruction& i) {
    const Instruction *gate = linear_behind(i.inputs[0]), *up = linear_behind(i.inputs[1]);
    if (gate == nullptr || up == nullptr) return;
    const std::int64_t channels = program_[i.inputs[0]].shape[2];
    if (channels % ranks_ != 0) refuse("the intermediate size is", channels);
    split_outputs(*gate);
    split_outputs(*up);
    split_.insert(i.outputs[0]);
  }

  /// Appends an instruction whose types are inferred when the program is rebuilt. The outputs are the newest tensors.
  TensorId append(std::string_view op, std::vector<TensorId> inputs, const Attributes& attributes,
                  const std::vector<std::string>& names) {
    Instruction made{.op = &registry().get(op), .inputs = std::move(inputs), .attributes = attributes, .tag = tag_};
    for (const std::string& name : names) {
      made.outputs.push_back(static_cast<TensorId>(program_.tensors.size()));
      program_.tensors.push_back({.name = name, .storage = made.outputs.back()});
    }
    program_.instructions.push_back(std::move(made));
    return program_.instructions.back().outputs.back();
  }

  void rewrite(Instruction i) {
    tag_ = i.tag;
    const std::string_view op = i.op->name();
    if (op == "linear") rewrite_linear(i);
    if (op == "embedding") rewrite_embedding(i);
    if (op == "lm_head_loss" && split_vocabulary(i.inputs[1])) return replace_loss(i);
    program_.instructions.push_back(std::move(i));
  }

  void rewrite_linear(Instruction& i) {
    if (const auto repeated = repeated_.find(i.outputs[0]); repeated != repeated_.end()) {
      const Attributes attributes{
          {"axis", AxisSet(settings_.axis)}, {"heads", std::int64_t{ranks_}}, {"head_dim", repeated->second}};
      for (std::size_t k = 1; k < i.inputs.size(); ++k) {
        if (i.inputs[k] == no_tensor) continue;
        i.inputs[k] = append("repeat_heads", {i.inputs[k]}, attributes, {program_[i.inputs[k]].name + ".heads"});
      }
    }
    if (!split_.contains(i.inputs[0]) || program_[i.inputs[1]].role != Role::parameter) return;
    if (i.inputs.size() > 2 && i.inputs[2] != no_tensor) {
      throw UsageError("tp-sp: '" + program_[i.inputs[2]].name +
                       "' is the bias of a linear that would be split along its inputs, where each rank would add it once; "
                       "tp-sp cannot train this model");
    }
    on_axis(i.inputs[1]) = Placement::shard(in_dim);
  }

  /// Splits an embedding table or a head along its words if the ranks can share them; otherwise it stays whole, and with sequence
  /// parallelism each rank works on tokens of its own.
  bool split_vocabulary(TensorId table) {
    const bool divides = program_[table].shape[vocabulary_dim] % ranks_ == 0;
    if (divides && program_[table].role == Role::parameter) on_axis(table) = Placement::shard(vocabulary_dim);
    return on_axis(table).is_shard(vocabulary_dim);
  }

  void rewrite_embedding(Instruction& i) {
    if (split_vocabulary(i.inputs[1])) i.attributes.set("vocabulary", program_[i.inputs[1]].shape[vocabulary_dim]);
    if (!settings_.sequence_parallel) return;
    const std::int64_t sequence = program_[i.outputs[0]].shape[sequence_dim];
    if (sequence % ranks_ != 0) {
      throw UsageError("tp-sp=" + std::to_string(ranks_) + ": --sequence is " + std::to_string(sequence) +
                       ", which the ranks cannot share equally; choose a multiple of " + std::to_string(ranks_) +
                       ", or --tp-sp.sequence-parallel=false");
    }
    on_axis(i.outputs[0]) = Placement::shard(sequence_dim);
  }

  /// Chunks of tokens: the fewest that keep the logits of one within the settings, and that divide the sequence.
  /// `targets` tells how many tokens a rank has: they come from an input, which whoever splits batches has placed.
  std::int64_t chunks_of(TensorId targets, TensorId table) const {
    const Program& p = program_;
    while (producer_[index(targets)] >= 0) targets = old_inputs_[index(producer_[index(targets)])];
    const std::int64_t sequence = p[targets].shape[sequence_dim];
    const std::int64_t words = p[table].shape[vocabulary_dim] / ranks_;  // whatever other axes do to the table: it is gathered
    const std::int64_t bytes = p.local(targets).elements() * words * static_cast<std::int64_t>(size_of(p[table].dtype));
    const std::int64_t wanted = (bytes + settings_.logits_bytes - 1) / settings_.logits_bytes;
    std::int64_t chunks = 1;
    while (chunks < wanted && chunks < sequence) {
      do ++chunks;
      while (sequence % chunks != 0);
    }
    return chunks;
  }

  void replace_loss(const Instruction& i) {
    const TensorId x = i.inputs[0], w = i.inputs[1], targets = i.inputs[2];
    const std::int64_t chunks = chunks_of(targets, w);
    Attributes attributes{{"chunk", std::int64_t{0}},
                          {"chunks", chunks},
                          {"parts", std::int64_t{ranks_}},
                          {"vocabulary", program_[w].shape[vocabulary_dim]}};
    std::vector<TensorId> inputs{x, w, targets};
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      attributes.set("chunk", chunk);
      inputs.push_back(append("vocabulary_logits", {x, w, targets}, attributes, {"logits", "logits.statistics"}));
    }
    attributes.set("scale", i.attributes.real("scale"));
    const TensorId loss = append("vocabulary_loss", std::move(inputs), attributes, {program_[i.outputs[0]].name});
    if (program_.loss == i.outputs[0]) program_.loss = loss;
  }

  Program& program_;
  const PartitionSettings& settings_;
  int ranks_;
  Tag tag_;                                    // of the instruction that is being rewritten
  std::vector<InstructionId> producer_;        // by tensor
  std::vector<TensorId> old_inputs_;           // by instruction, as it was: its first input
  std::map<TensorId, std::int64_t> repeated_;  // outputs of k and v whose heads are fewer than the ranks; head_dim
  std::set<TensorId> split_;                   // outputs of attentions and swiglus whose channels are split
};

}  // namespace

void partition(Program& forward, const PartitionSettings& settings) {
  Partitioner(forward, settings).run();
}

}  // namespace consist::tensor_parallel
