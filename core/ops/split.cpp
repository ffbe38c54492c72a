// split and concat: the parts of each head's channels, one tensor each, and back; the gradient of each is the other. With one
// head they are slices of the channels. A part that all heads share (consist/head_parts.h) is repeated by concat and added up by
// split.
#include "consist/head_parts.h"
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class PartsOfHeads : public NamedOp {
 public:
  using NamedOp::NamedOp;
  Separable separable() const noexcept override { return Separable::tokens; }
  bool is_additive() const noexcept override { return true; }
  bool gradient_reads_output(int /*output*/) const noexcept override { return false; }
  bool takes_strided_view(int /*input*/) const noexcept override { return true; }
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }

 protected:
  static HeadParts parts_of(const Attributes& attributes) { return HeadParts::parse(attributes.string("parts")); }

  TensorType with_channels(TensorType type, std::int64_t channels) const {
    require(type.dtype == DType::f32 || type.dtype == DType::bf16, "tensors must be f32 or bf16");
    require(type.shape.rank() > 0, "a scalar has no channels");
    type.shape[type.shape.rank() - 1] = channels;
    return type;
  }
  std::int64_t heads_in(std::int64_t channels, std::int64_t of_a_head, const std::string& what) const {
    if (channels > 0 && channels % of_a_head == 0) return channels / of_a_head;
    fail(what + " has " + std::to_string(channels) + " channels, which are no whole heads of " + std::to_string(of_a_head));
  }
  /// The placement of the whole, if its channels stay sharded only where several heads share them.
  static Placement of_whole(Placement placement, const Shape& shape, std::int64_t head_dim) {
    if (placement.is_flat()) return Placement::replicate();
    const int last = shape.rank() - 1;
    return placement.is_shard(last) && shape[last] == head_dim ? Placement::replicate() : placement;
  }
  /// The placement of a part of a whole that is placed so. Where heads are sharded, a rank reads all of a shared part, and adds
  /// up its own heads to a summand of one.
  static Placement of_part(const HeadPart& part, Placement whole, int last, bool adds_up) {
    if (!part.shared || !whole.is_shard(last)) return whole;
    return adds_up ? Placement::partial() : Placement::replicate();
  }
  void check_heads(const Program& program, TensorId tensor, std::int64_t of_a_head) const {
    if (program[tensor].shape.last() != of_a_head) require_whole_heads(program, tensor, of_a_head);
  }
};

class Split final : public PartsOfHeads {
 public:
  Split() : PartsOfHeads("split") {}
  std::optional<ChannelSplit> channel_split(const Attributes& attributes) const override {
    return ChannelSplit{.inputs = 1, .unit = parts_of(attributes).head_dim()};
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const HeadParts parts = parts_of(attributes);
    const TensorType& x = present(in, 0);
    with_channels(x, 0);
    const std::int64_t heads = heads_in(x.shape.last(), parts.head_dim(), "x");
    Types made;
    for (const HeadPart& part : parts.all()) made.emplace_back(with_channels(x, part.shared ? part.width : heads * part.width));
    return made;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const HeadParts parts = parts_of(attributes);
    const Shape& shape = in[0]->shape;
    axis.inputs[0] = of_whole(axis.inputs[0], shape, parts.head_dim());
    for (const HeadPart& part : parts.all()) axis.outputs.push_back(of_part(part, axis.inputs[0], shape.rank() - 1, true));
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.inputs[0], parts_of(i.attributes).head_dim());
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    const std::size_t of_each_head = parts_of(f.attributes).own();
    std::vector<TensorId> gradients;
    bool own = false;
    for (std::size_t k = 0; k < f.outputs.size(); ++k) {
      gradients.push_back(f.outputs[k] == no_tensor ? no_tensor : d.gradient(f.outputs[k]));
      own = own || (gradients.back() != no_tensor && k < of_each_head);
    }
    require(own,
            "no gradient flows into a part of each head's own, and from those that all share the number of heads is not known");
    d.accumulate_grad(f.inputs[0],
                      d.build().emit_one("concat", gradients, f.attributes, d.program()[f.inputs[0]].name + ".grad"));
  }
};

/// Absent inputs are zeros.
class Concat final : public PartsOfHeads {
 public:
  Concat() : PartsOfHeads("concat") {}
  std::optional<ChannelSplit> channel_split(const Attributes& attributes) const override {
    const HeadParts parts = parts_of(attributes);
    const std::int64_t unit = parts.all()[0].width, last = parts.all()[parts.own() - 1].width;
    for (std::size_t k = 0; k + 1 < parts.own(); ++k) {
      if (parts.all()[k].width != unit) return std::nullopt;
    }
    return ChannelSplit{.inputs = static_cast<int>(parts.own()), .unit = unit, .last_unit = last};
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const HeadParts parts = parts_of(attributes);
    require(in.size() == parts.all().size(), "there must be an input for each part");
    const std::size_t leading = leading_part(in, parts);
    const TensorType& first = present(in, leading);
    const std::string name = "part " + std::to_string(leading);
    with_channels(first, 0);
    const std::int64_t heads = heads_in(first.shape.last(), parts.all()[leading].width, name);
    for (std::size_t k = 0; k < in.size(); ++k) {
      const HeadPart& part = parts.all()[k];
      if (has(in, k)) check(in, k, with_channels(first, part.shared ? part.width : heads * part.width));
    }
    return {with_channels(first, heads * parts.head_dim())};
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    const HeadParts parts = parts_of(attributes);
    const std::size_t leading = leading_part(in, parts);
    const Shape& shape = in[leading]->shape;
    bool summands = true;
    Placement placement = Placement::replicate();
    for (std::size_t k = parts.all().size(); k-- > 0;) {
      if (!has(in, k)) continue;
      summands = summands && axis.inputs[k].is_partial();
      const int last = shape.rank() - 1;
      const bool of_one = parts.all()[k].shared && axis.inputs[k].is_shard(last);  // channels of one part, no heads
      if (axis.inputs[k].is_shard() && !of_one) placement = of_whole(axis.inputs[k], shape, parts.all()[leading].width);
    }
    if (summands) placement = Placement::partial();
    for (std::size_t k = 0; k < axis.inputs.size(); ++k)
      axis.inputs[k] = of_part(parts.all()[k], placement, shape.rank() - 1, false);
    axis.outputs = {placement};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    check_heads(program, i.outputs[0], parts_of(i.attributes).head_dim());
  }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    std::vector<std::string> names;
    for (const TensorId input : f.inputs) names.push_back(input == no_tensor ? "" : d.program()[input].name + ".grad");
    const std::vector<TensorId> made = d.build().emit("split", {d.gradient(f.outputs[0])}, f.attributes, names);
    for (std::size_t k = 0; k < f.inputs.size(); ++k) {
      if (f.inputs[k] != no_tensor && d.requires_grad(f.inputs[k])) d.accumulate_grad(f.inputs[k], made[k]);
    }
  }

 private:
  /// The first part of each head's own that is there.
  std::size_t leading_part(const Types& in, const HeadParts& parts) const {
    for (std::size_t k = 0; k < parts.own(); ++k) {
      if (has(in, k)) return k;
    }
    fail("no part of each head's own is given");
  }
};

}  // namespace

void register_split(OpRegistry& registry) {
  registry.add(std::make_unique<Split>());
  registry.add(std::make_unique<Concat>());
}

}  // namespace consist::ops
