#include "plugins/strategies/tp-sp/partition.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/op.h"
#include "plugins/strategies/common/linears_behind.h"

namespace consist::tensor_parallel {
namespace {

constexpr int out_dim = 0;  // of a weight
constexpr int in_dim = 1;
constexpr int sequence_dim = 1;  // of an activation
constexpr int channel_dim = 2;
constexpr int vocabulary_dim = 0;

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

class Partitioner {
 public:
  Partitioner(Program& program, const PartitionSettings& settings)
      : program_(program), settings_(settings), ranks_(program.mesh.size_of(settings.axis)), def_use_(program) {
    for (const Instruction& reader : program.instructions) {
      const std::optional<ChannelSplit> split = reader.op->channel_split(reader.attributes);
      for (int k = 0; split && k < split->inputs; ++k) read_by_split_.insert(reader.inputs[index(k)]);
      if (reader.op->linear_part() == LinearPart::product) read_by_linears_.insert(reader.inputs[1]);
    }
  }

  void run() {
    for (const Instruction& i : program_.instructions) {
      if (!feeds_another_split(i)) split_channels(i);
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
  /// Channels that another axis shards already: slices of slices would not be the heads that both mean.
  void refuse_divided(TensorId activation) const {
    for (int axis = 0; axis < program_.mesh.axes(); ++axis) {
      if (axis == settings_.axis || !program_[activation].placements[axis].is_shard(channel_dim)) continue;
      throw UsageError("tp-sp=" + std::to_string(ranks_) + ": the heads of attention are divided over axis '" +
                       program_.mesh.axis(axis).name +
                       "' already; choose a way of dividing sequences that leaves heads whole, such as --cp.attention gather, or no tp-sp");
    }
  }
  Placement& on_axis(TensorId tensor) { return program_[tensor].placements[settings_.axis]; }

  std::vector<const Instruction*> linears_behind(TensorId tensor) const {
    std::vector<const Instruction*> linears;
    for (const InstructionId at : strategies::linears_behind(program_, def_use_, tensor))
      linears.push_back(&program_.instructions[index(at)]);
    return linears;
  }

  /// True if `i` is one of those in between: its output is sharded for the op that reads it.
  bool feeds_another_split(const Instruction& i) const {
    const std::optional<ChannelSplit> split = i.op->channel_split(i.attributes);
    const auto is_read = [&](TensorId output) { return read_by_split_.contains(output); };
    return !split || split->inputs < 1 || (split->inputs == 1 && std::ranges::any_of(i.outputs, is_read));
  }

  void split_outputs(const Instruction& linear) {
    on_axis(linear.inputs[1]) = Placement::shard(out_dim);
    if (linear.inputs.size() > 2 && linear.inputs[2] != no_tensor) on_axis(linear.inputs[2]) = Placement::shard(0);
  }

  /// Shards attention's heads and the channels of gated or other activations: ops on outputs of linears, all sharded alike.
  void split_channels(const Instruction& i) {
    const ChannelSplit split = *i.op->channel_split(i.attributes);
    for (int k = 0; k < split.inputs; ++k) refuse_divided(i.inputs[index(k)]);
    std::vector<std::vector<const Instruction*>> made_by;
    for (int k = 0; k < split.inputs; ++k) {
      made_by.push_back(linears_behind(i.inputs[index(k)]));
      if (made_by.back().empty()) return;  // not of linears: it stays unsharded, as the ops' rules have it
    }
    const auto groups_of = [&](std::size_t k) { return program_[i.inputs[k]].shape[2] / split.unit_of(k); };
    if (!i.op->attends() && split.unit > 1 && groups_of(0) == 1) return;  // one head, such as a part of keys that all heads share
    for (std::size_t k = 0; k < made_by.size(); ++k) {
      const std::int64_t groups = groups_of(k);
      const bool repeats = split.unit > 1 && k > 0 && ranks_ % groups == 0;
      if (groups % ranks_ != 0 && !(repeats && made_whole(i.inputs[k], made_by[k]))) refuse(what_is_split(i, k), groups);
    }
    for (std::size_t k = 0; k < made_by.size(); ++k) {
      for (const Instruction* linear : made_by[k]) {
        if (groups_of(k) % ranks_ == 0)
          split_outputs(*linear);
        else
          repeated_[linear->outputs[0]] = split.unit_of(k);
      }
    }
    split_.insert(i.outputs[0]);
  }

  /// True if the linears' outputs have the channels of `activation`, so that repeating their heads repeats its heads.
  bool made_whole(TensorId activation, const std::vector<const Instruction*>& linears) const {
    return std::ranges::all_of(linears, [&](const Instruction* linear) {
      return program_[linear->outputs[0]].shape[channel_dim] == program_[activation].shape[channel_dim];
    });
  }

  /// Names the size by which input k of an op is sharded, for messages.
  static std::string what_is_split(const Instruction& i, std::size_t k) {
    if (i.op->channel_split(i.attributes)->unit == 1) return "the intermediate size is";
    return k == 0 ? "the number of attention heads is" : "the number of key/value heads is";
  }

  /// Appends an instruction whose types are inferred when shardings are propagated. The outputs are the newest tensors.
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
    const VocabularyUse use = i.op->vocabulary_use();
    if (i.op->linear_part() == LinearPart::product) rewrite_linear(i);
    if (use == VocabularyUse::lookup) rewrite_embedding(i);
    if (use == VocabularyUse::loss && split_vocabulary(i.inputs[1])) return replace_loss(i);
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

  /// Shards an embedding table or a head along its words if the ranks can share them, and no linear makes logits of it, which
  /// would be gathered; otherwise it stays unsharded, and with sequence parallelism each rank works on tokens of its own.
  bool split_vocabulary(TensorId table) {
    const bool divides = program_[table].shape[vocabulary_dim] % ranks_ == 0;
    if (divides && !read_by_linears_.contains(table) && program_[table].role == Role::parameter)
      on_axis(table) = Placement::shard(vocabulary_dim);
    return on_axis(table).is_shard(vocabulary_dim);
  }

  void rewrite_embedding(Instruction& i) {
    if (split_vocabulary(i.inputs[1])) i.attributes.set("vocabulary", program_[i.inputs[1]].shape[vocabulary_dim]);
    if (!settings_.sequence_parallel) return;
    const std::int64_t sequence = program_[i.outputs[0]].shape[sequence_dim];
    const std::int64_t parts = sequence / program_.local(i.inputs[0])[sequence_dim];  // that other axes make of it
    if (sequence % (parts * ranks_) != 0) {
      throw UsageError("tp-sp=" + std::to_string(ranks_) + ": --sequence is " + std::to_string(sequence) +
                       ", which the ranks cannot share equally" +
                       (parts > 1 ? " where other axes make " + std::to_string(parts) + " parts of it" : "") +
                       "; choose a multiple of " + std::to_string(parts * ranks_) + ", or --tp-sp.sequence-parallel=false");
    }
    on_axis(i.outputs[0]) = Placement::shard(sequence_dim);
  }

  /// Chunks of tokens: the fewest that keep the logits of one within the settings, and that divide the sequence.
  /// `targets` tells the number of a rank's tokens: they come from an input, which the strategy that shards batches has placed.
  std::int64_t chunks_of(TensorId targets, TensorId table) const {
    const Program& p = program_;
    while (def_use_.is_made(targets)) targets = old_inputs_[index(def_use_.producer(targets))];
    const std::int64_t sequence = p.local(targets)[sequence_dim];
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
  const DefUse def_use_;                       // of forward as it was
  std::vector<TensorId> old_inputs_;           // by instruction, as it was: its first input
  std::map<TensorId, std::int64_t> repeated_;  // outputs of k and v whose heads are fewer than the ranks; head_dim
  std::set<TensorId> split_;                   // outputs of such ops (Op::channel_split) that are sharded
  std::set<TensorId> read_by_split_;           // activations that such ops read
  std::set<TensorId> read_by_linears_;         // weights
};

}  // namespace

void partition(Program& forward, const PartitionSettings& settings) {
  Partitioner(forward, settings).run();
}

}  // namespace consist::tensor_parallel
