#include "core/compile/with_cache.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "consist/error.h"
#include "consist/rewrite.h"
#include "core/ops/core_ops.h"
#include "core/passes/emit_anew.h"

namespace consist {
namespace {

using Outputs = std::optional<std::vector<TensorId>>;

[[noreturn]] void refuse(const std::string& why) {
  throw UsageError("text cannot be generated with a cache of keys and values: " + why);
}

/// Whatever divides a sequence's tokens over ranks would have to divide one token.
void check_layout(const Program& forward, std::int64_t longest) {
  if (forward.zigzag != 0) refuse("the layout divides sequences over ranks (strategy cp)");
  for (const Tensor& tensor : forward.tensors) {
    if (tensor.state || tensor.shape.rank() < 2 || tensor.shape[1] != longest) continue;
    for (int axis = 0; axis < forward.mesh.axes(); ++axis) {
      if (tensor.placements[axis].is_shard(1))
        refuse("the layout divides the tokens of a sequence over the ranks of axis '" + forward.mesh.axis(axis).name + "' ('" +
               tensor.name + "')");
    }
  }
}

/// Rewrites instruction by instruction.
class Stretch {
 public:
  Stretch(const Program& forward, std::int64_t longest, std::int64_t tokens, bool logits)
      : forward_(forward), longest_(longest), tokens_(tokens), logits_(logits) {
    for (std::size_t id = 0; id < forward.tensors.size(); ++id) {
      if (forward.tensors[id].role == Role::input && !forward.tensors[id].state) of_tokens_.insert(static_cast<TensorId>(id));
    }
  }

  Outputs replace(Builder& builder, const Instruction& i, std::vector<TensorId>& inputs) {
    const bool reads_dropped = std::any_of(i.inputs.begin(), i.inputs.end(), [&](TensorId t) { return dropped_.contains(t); });
    if (reads_dropped) return drop(i);
    const bool reads_tokens = std::any_of(i.inputs.begin(), i.inputs.end(), [&](TensorId t) { return of_tokens_.contains(t); });
    if (reads_tokens) of_tokens_.insert(i.outputs.begin(), i.outputs.end());
    of_tokens_.erase(no_tensor);
    if (i.op->vocabulary_use() == VocabularyUse::loss) {
      if (logits_) make_logits(builder, inputs);
      return drop(i);
    }
    if (i.op->attends()) return attend(builder, i, inputs);
    if (const int table = i.op->position_rows(); table >= 0) {
      inputs[static_cast<std::size_t>(table)] = rows_of(builder, inputs[static_cast<std::size_t>(table)]);
      return emit(builder, i, inputs, i.attributes);
    }
    if (i.op->dispatches_tokens()) {
      Attributes attributes = i.attributes;
      attributes.set("rows", std::max<std::int64_t>(1, attributes.integer("rows") * tokens_ / longest_));
      return emit(builder, i, inputs, attributes);
    }
    if (reads_tokens && i.op->separable() != Separable::tokens && !ops::is_core_op(*i.op))
      refuse("nothing says whether op '" + std::string(i.op->name()) +
             "' works on each token by itself; an op that does states so (Op::separable(), docs/plugins.md)");
    return std::nullopt;
  }

 private:
  /// The loss, and what is made of it.
  Outputs drop(const Instruction& i) {
    dropped_.insert(i.outputs.begin(), i.outputs.end());
    dropped_.erase(no_tensor);
    return std::vector<TensorId>(i.outputs.size(), no_tensor);
  }

  Outputs emit(Builder& builder, const Instruction& i, std::vector<TensorId> inputs, Attributes attributes) const {
    std::vector<std::string> names;
    for (TensorId output : i.outputs) names.push_back(output == no_tensor ? "" : forward_[output].name);
    return builder.emit(i.op->name(), std::move(inputs), std::move(attributes), std::move(names));
  }

  void make_logits(Builder& builder, const std::vector<TensorId>& inputs) const {
    const TensorId product = builder.emit_one("linear", {inputs[0], inputs[1]}, {}, "lm_head");
    const TensorId logits = builder.emit_one("cast", {product}, {{"dtype", std::string(name_of(DType::f32))}}, logits_name);
    builder.program()[logits].role = Role::metric;
  }

  static TensorId position(Builder& builder) { return builder.program().find(position_name); }

  TensorId cached(Builder& builder, const char* what, TensorId rows) const {
    const Tensor made = builder[rows];
    const TensorId cache = builder.state("generate." + std::string(what) + "." + std::to_string(attentions_), made.dtype,
                                         {made.shape[0], longest_, made.shape[2]}, made.placements, StateKind::discardable);
    builder.program()[cache].role = Role::activation;  // nothing of it is saved
    return builder.emit_one("write_rows", {cache, rows, position(builder)}, {}, made.name + ".cache");
  }

  Outputs attend(Builder& builder, const Instruction& i, std::vector<TensorId>& inputs) {
    if (inputs.size() > 3 && inputs[3] != no_tensor) refuse("attention within documents has none");
    const TensorId keys = cached(builder, "keys", inputs[1]), values = cached(builder, "values", inputs[2]);
    ++attentions_;
    return emit(builder, i, {inputs[0], keys, values, no_tensor, position(builder)}, i.attributes);
  }

  TensorId rows_of(Builder& builder, TensorId table) {
    const auto known = rows_.find(table);
    if (known != rows_.end()) return known->second;
    const TensorId rows =
        builder.emit_one("rows_at", {table, position(builder)}, {{"rows", tokens_}}, builder[table].name + ".rows");
    return rows_.emplace(table, rows).first->second;
  }

  const Program& forward_;
  std::int64_t longest_, tokens_;
  bool logits_;
  int attentions_ = 0;
  std::set<TensorId> of_tokens_;       // of the forward part: what depends on the tokens, unlike weights and what is made of them
  std::set<TensorId> dropped_;         // of the forward part
  std::map<TensorId, TensorId> rows_;  // by table: its rows of this stretch
};

}  // namespace

void with_cache(Program& forward, std::int64_t tokens, bool logits) {
  const TensorId ids = forward.find("ids");
  if (ids == no_tensor) throw ProgramError("the program has no input 'ids'");
  const Shape whole = forward[ids].shape;
  check_layout(forward, whole[1]);
  if (tokens < 1 || tokens > whole[1])
    throw ProgramError("a stretch of " + std::to_string(tokens) + " tokens of " + std::to_string(whole[1]));
  for (Tensor& tensor : forward.tensors) {
    if (tensor.role == Role::input && !tensor.state && tensor.shape == whole) tensor.shape = {whole[0], tokens};
  }
  for (Constant& constant : forward.constants) {  // as long as the longest sequence, which need not be as long as a step's
    std::string& name = forward[constant.tensor].name;
    name = "generate." + name;
  }
  Builder(forward).input(position_name, DType::i32, {1});
  Stretch stretch(forward, whole[1], tokens, logits);
  Program made = emit_anew(forward, [&](Builder& builder, const Instruction& i, std::vector<TensorId>& inputs) {
    return stretch.replace(builder, i, inputs);
  });
  if (logits && made.find(logits_name) == no_tensor)
    refuse("the model ends in no op whose trait says that it makes logits (VocabularyUse::loss)");
  made.loss = no_tensor;
  made.outputs.clear();
  remove_dead(made);
  forward = std::move(made);
}

}  // namespace consist
