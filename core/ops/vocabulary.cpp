// The loss of an LM head whose vocabulary is sharded over ranks (Megatron-LM, Shoeybi et al., 2019). A row's softmax needs a
// maximum and a sum over all ranks between its two products, so lm_head_loss falls into instructions, per chunk of tokens:
// vocabulary_logits makes the logits of the rank's words and their statistics, an all_gather moves the statistics (three numbers
// per token and rank), vocabulary_loss_grad makes the loss and the gradients. The logits of a chunk live from the first to the
// last.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

constexpr int statistics =
    3;  // per token: the largest logit, Σ exp(logit − largest), the target's logit if it is the rank's, else 0
constexpr int vocabulary_dim = 0;  // of w

class VocabularyBase : public NamedOp {
 public:
  using NamedOp::NamedOp;

 protected:
  /// Types made from x [B,S,C] and w [V,C] by attributes "chunk" of "chunks" and "parts" (ranks that share the vocabulary).
  struct ChunkTypes {
    TensorType logits, statistics;
  };

  void check_inputs(const Types& in, std::size_t first) const {
    const TensorType& x = present(in, first);
    const TensorType& w = present(in, first + 1);
    require(x.shape.rank() == 3 && w.shape.rank() == 2 && x.shape[2] == w.shape[1] && x.dtype == w.dtype,
            "x must be [batch, sequence, channels] and w [vocabulary, channels] of the same dtype");
    present(in, first + 2);
    check(in, first + 2, {DType::i32, {x.shape[0], x.shape[1]}});
  }
  ChunkTypes chunk_types(const TensorType& x, const TensorType& w, const Attributes& attributes) const {
    const std::int64_t chunks = attributes.integer("chunks"), parts = attributes.integer("parts"), tokens = x.shape.rows();
    require(chunks > 0 && tokens % chunks == 0, "the chunks must divide the tokens");
    require(parts > 0, "there must be at least one part of the vocabulary");
    return {{x.dtype, {tokens / chunks, w.shape[0]}}, {DType::f32, {parts, tokens / chunks, statistics}}};
  }
  void check_chunk(const Attributes& attributes) const {
    const std::int64_t chunk = attributes.integer("chunk");
    require(chunk >= 0 && chunk < attributes.integer("chunks"), "there is no such chunk");
  }
  /// Along one axis: the vocabulary is sharded, or tokens are, or neither.
  struct Split {
    bool vocabulary = false;
    Placement tokens;  ///< of x and targets
    /// Placement of a tensor whose dimension `dim` holds the rows of a chunk.
    Placement rows(int dim) const { return tokens.is_replicate() ? tokens : Placement::shard(dim); }
  };
  static Split split(AxisSharding& axis, std::size_t first) {
    Split s;
    s.vocabulary = axis.inputs[first + 1].is_shard(vocabulary_dim);
    if (!s.vocabulary) {
      axis.inputs[first + 1] = Placement::replicate();
      if (over_tokens(axis.inputs[first])) s.tokens = axis.inputs[first];
    }
    axis.inputs[first] = axis.inputs[first + 2] = s.tokens;
    return s;
  }
  static double product_flops(const Program& program, const Instruction& i, std::size_t first) {
    return 2.0 * static_cast<double>(program.local(i.inputs[first]).rows()) *
           static_cast<double>(program.local(i.inputs[first + 1]).elements()) /
           static_cast<double>(i.attributes.integer("chunks"));
  }
};

class VocabularyLogits final : public VocabularyBase {
 public:
  VocabularyLogits() : VocabularyBase("vocabulary_logits") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_inputs(in, 0);
    check_chunk(attributes);
    const ChunkTypes types = chunk_types(*in[0], *in[1], attributes);
    return {types.logits, types.statistics};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Split s = split(axis, 0);
    if (s.vocabulary) {
      axis.outputs = {Placement::shard(1), Placement::shard(0)};
    } else {
      axis.outputs = {s.rows(0), s.rows(1)};
    }
  }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = product_flops(program, i, 0);
    return cost;
  }
};

/// Inputs: x, w and targets, which only its gradient reads, then the statistics of all chunks.
class VocabularyLoss final : public VocabularyBase {
 public:
  VocabularyLoss() : VocabularyBase("vocabulary_loss") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_inputs(in, 0);
    attributes.real("scale");
    const ChunkTypes types = chunk_types(*in[0], *in[1], attributes);
    require(in.size() == 3 + static_cast<std::size_t>(attributes.integer("chunks")), "there must be statistics of every chunk");
    for (std::size_t i = 3; i < in.size(); ++i) {
      present(in, i);
      check(in, i, types.statistics);
    }
    return {TensorType{DType::f32, {}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Split s = split(axis, 0);
    for (std::size_t i = 3; i < axis.inputs.size(); ++i) axis.inputs[i] = s.rows(1);
    axis.outputs = {summed_over_tokens(s.tokens)};
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    if (!d.is_root(f.outputs[0])) fail("only a loss that is the root of the program can be differentiated");
    const TensorId x = f.inputs[0], w = f.inputs[1], targets = f.inputs[2];
    const Program& program = d.program();
    const std::string x_name = program[x].name + ".grad", w_name = program[w].name + ".grad", loss = program[f.outputs[0]].name;
    const std::int64_t chunks = f.attributes.integer("chunks");
    auto logits_of = [&](std::int64_t chunk) {
      return d.build().emit("vocabulary_logits", {x, w, targets},
                            {{"chunk", chunk},
                             {"chunks", chunks},
                             {"parts", f.attributes.integer("parts")},
                             {"vocabulary", f.attributes.integer("vocabulary")}},
                            {"logits", "logits.statistics"});
    };
    Attributes attributes = f.attributes;
    if (d.requires_grad(w)) attributes.set("dtype", dtype_value(d.gradient_dtype(w)));
    if (!d.requires_grad(x)) attributes.set(only_weight, std::int64_t{1});
    std::vector<TensorId> made{no_tensor, no_tensor, d.accumulator(w)};
    std::vector<TensorId> next = logits_of(0);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::vector<TensorId> now = next;
      // One chunk ahead: its product runs while the statistics of this one are sent.
      if (chunk + 1 < chunks) next = logits_of(chunk + 1);
      attributes.set("chunk", chunk);
      made = d.build().emit("vocabulary_loss_grad", {now[0], now[1], x, w, targets, made[0], made[1], made[2]}, attributes,
                            {loss, x_name, w_name, "dlogits"});
    }
    d.replace_all_uses_with(f.outputs[0], made[0]);
    if (made[1] != no_tensor) d.accumulate_grad(x, made[1]);
    if (made[2] != no_tensor) d.accumulate_grad(w, made[2]);
  }
};

/// Inputs: logits, statistics of all slices, x, w, targets, loss?, dx?, dw?; outputs: loss, dx, dw, and dlogits in the logits'
/// place. Of dx it writes the rows of its chunk; `loss?` and `dx?` are those of the chunks before.
class VocabularyLossGrad final : public VocabularyBase {
 public:
  VocabularyLossGrad() : VocabularyBase("vocabulary_loss_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    check_inputs(in, 2);
    check_chunk(attributes);
    attributes.real("scale");
    const ChunkTypes types = chunk_types(*in[2], *in[3], attributes);
    present(in, 0);
    present(in, 1);
    check(in, 0, types.logits);
    check(in, 1, types.statistics);
    const TensorType loss{DType::f32, {}};
    Types made{loss, *in[2], std::nullopt, types.logits};
    if (attributes.integer_or(only_weight, 0) != 0) made[1].reset();
    if (const std::optional<DType> gradient = weight_gradient_dtype(attributes)) made[2] = TensorType{*gradient, in[3]->shape};
    check(in, 5, loss);
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
      if (made[k]) check(in, 5 + k, *made[k]);
      require(made[k] || !has(in, 5 + k), "there is a sum of gradients that no attribute asks for");
    }
    return made;
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    const Split s = split(axis, 2);
    if (s.vocabulary) {
      axis.inputs[0] = Placement::shard(1);
      axis.inputs[1] = Placement::replicate();
      axis.outputs = {Placement::replicate(), Placement::partial(), Placement::shard(vocabulary_dim), Placement::shard(1)};
    } else {
      axis.inputs[0] = s.rows(0);
      axis.inputs[1] = s.rows(1);
      axis.outputs = {summed_over_tokens(s.tokens), s.tokens, summed_over_tokens(s.tokens), s.rows(0)};
    }
    for (std::size_t i = 5; i < axis.inputs.size(); ++i) axis.inputs[i] = axis.outputs[i - 5];
  }
  int updates_in_place(int output) const noexcept override { return output == 3 ? 0 : 5 + output; }
  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    cost.flops = ((i.outputs[1] != no_tensor ? 1 : 0) + (i.outputs[2] != no_tensor ? 1 : 0)) * product_flops(program, i, 2);
    return cost;
  }
};

}  // namespace

void register_vocabulary(OpRegistry& registry) {
  registry.add(std::make_unique<VocabularyLogits>());
  registry.add(std::make_unique<VocabularyLoss>());
  registry.add(std::make_unique<VocabularyLossGrad>());
}

}  // namespace consist::ops
