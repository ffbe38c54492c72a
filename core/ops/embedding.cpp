// embedding and its gradient. A table sharded along its vocabulary (Megatron-LM, Shoeybi et al., 2019) gives partial rows: each
// rank adds what it has, zeros for the ids of others.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// The mesh axis that shards the table, which ids and dy do not tell.
constexpr const char* vocabulary_axis = "vocabulary_axis";

/// Attribute of `embedding` and its gradient: the id whose row gets no gradient. Ids count over the unsharded table.
constexpr const char* padding_id = "padding_id";

class EmbeddingGrad final : public NamedOp {
 public:
  EmbeddingGrad() : NamedOp("embedding_grad") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& dy = present(in, 1);
    require(dy.shape.rank() == 3, "dy must be [batch, sequence, channels]");
    check_present(in, 0, {DType::i32, {dy.shape[0], dy.shape[1]}});
    TensorType out{dtype_attribute(attributes), {attributes.integer("vocabulary"), dy.shape[2]}};
    check(in, 2, out);
    return {out};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    if (attributes.integer_or(vocabulary_axis, -1) == axis.axis) {
      axis.inputs[0] = axis.inputs[1] = Placement::replicate();
      axis.outputs = {Placement::shard(0)};
    } else {
      // ids lead: they were split when the batch was, and dy follows.
      const Placement tokens = over_tokens(axis.inputs[0]) ? axis.inputs[0] : Placement::replicate();
      axis.inputs[0] = axis.inputs[1] = tokens;
      axis.outputs = {summed_over_tokens(tokens)};
    }
    if (axis.inputs.size() > 2) axis.inputs[2] = axis.outputs[0];
  }
  int updates_in_place(int /*output*/) const noexcept override { return 2; }
  /// Counts only the rows of its ids if there is a sum to add to.
  Cost cost(const Program& program, const Instruction& i) const override {
    const auto bytes = [&](TensorId id) { return static_cast<double>(program.bytes(id)); };
    const double rows = static_cast<double>(program.local(i.inputs[1]).elements()) * size_of(program[i.outputs[0]].dtype);
    const bool adds = i.inputs.size() > 2 && i.inputs[2] != no_tensor;
    return {.flops = 0, .bytes = bytes(i.inputs[0]) + bytes(i.inputs[1]) + (adds ? 2 * rows : bytes(i.outputs[0]) + rows)};
  }
};

class Embedding final : public NamedOp {
 public:
  Embedding() : NamedOp("embedding") {}
  VocabularyUse vocabulary_use() const noexcept override { return VocabularyUse::lookup; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& ids = present(in, 0);
    const TensorType& table = present(in, 1);
    require(ids.dtype == DType::i32 && ids.shape.rank() == 2, "ids must be i32[batch, sequence]");
    require(table.shape.rank() == 2, "the table must be [vocabulary, channels]");
    const std::int64_t padding = attributes.integer_or(padding_id, 0);
    require(padding >= 0 && padding < attributes.integer_or("vocabulary", table.shape[0]), "padding_id must be the id of a row");
    return {TensorType{table.dtype, {ids.shape[0], ids.shape[1], table.shape[1]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    if (axis.inputs[1].is_shard(0)) {
      axis.inputs[0] = Placement::replicate();
      axis.outputs = {Placement::partial()};
      return;
    }
    if (!over_tokens(axis.inputs[0])) axis.inputs[0] = Placement::replicate();
    axis.inputs[1] = Placement::replicate();
    axis.outputs = {axis.inputs[0]};
  }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const TensorId ids = forward.inputs[0], table = forward.inputs[1];
    const TensorId dy = d.gradient(forward.outputs[0]);
    const Tensor& t = d.program()[table];
    Attributes attributes{{"dtype", dtype_value(d.gradient_dtype(table))}, {"vocabulary", t.shape[0]}};
    if (const std::int64_t id = forward.attributes.integer_or(padding_id, -1); id >= 0) attributes.set(padding_id, id);
    for (int axis = 0; axis < d.program().mesh.axes(); ++axis) {
      if (t.placements[axis].is_shard(0)) attributes.set(vocabulary_axis, std::int64_t{axis});
    }
    d.accumulate_grad(table, d.build().emit_one("embedding_grad", {ids, dy, d.accumulator(table)}, attributes, t.name + ".grad"));
  }
  /// Counts only the rows of the ids: no others of the table are read.
  Cost cost(const Program& program, const Instruction& i) const override {
    return {.flops = 0, .bytes = static_cast<double>(program.bytes(i.inputs[0]) + 2 * program.bytes(i.outputs[0]))};
  }
};

}  // namespace

void register_embedding(OpRegistry& registry) {
  registry.add(std::make_unique<Embedding>());
  registry.add(std::make_unique<EmbeddingGrad>());
}

}  // namespace consist::ops
