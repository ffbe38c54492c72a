// Collectives over a set of mesh axes (attribute "axis"), the local slice of a replicated tensor, and messages between neighbours
// on one. Each collective has its adjoint: the gradient of an all_gather is a reduce_scatter and so on.
#include <algorithm>

#include "consist/analysis.h"
#include "core/ops/collective_kernels.h"
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

AxisSet axes_of(const Instruction& i) {
  return i.attributes.axes("axis");
}

/// The dimension of a collective's slices: attribute "dim", -1 for flat ones.
Placement parts_of(const Instruction& i) {
  const std::int64_t dim = i.attributes.integer("dim");
  return dim < 0 ? Placement::flat() : Placement::shard(static_cast<int>(dim));
}

/// The gradient with one placement along all `axes`: reduced if it is partial along some of them only, as that of a weight which
/// an op reads together with all tokens of one axis, and with a rank's tokens of another.
TensorId alike(Builder& builder, TensorId gradient, AxisSet axes) {
  if (builder[gradient].placements.on(axes)) return gradient;
  return builder.reshard(gradient, axes_with(builder[gradient], Placement::partial(), axes), Placement::replicate());
}

/// Adds each output's gradient, with placement `to`, to the gradient of its input.
void pass_back(Differentiator& d, const Instruction& f, Placement to) {
  for (std::size_t i = 0; i < f.inputs.size(); ++i) {
    const TensorId dy = d.gradient(f.outputs[i]);
    if (dy != no_tensor) d.accumulate_grad(f.inputs[i], d.build().reshard(alike(d.build(), dy, axes_of(f)), axes_of(f), to));
  }
}

/// Base: types pass through; what happens on the collective's own axes is stated by the builder, which knows them.
class CollectiveBase : public NamedOp {
 public:
  using NamedOp::NamedOp;
  Types infer(const Types& in, const Attributes& attributes) const override {
    attributes.axes("axis");
    require(!in.empty(), "there are no inputs");
    for (std::size_t i = 0; i < in.size(); ++i) present(in, i);
    return in;
  }
  /// Along every other axis the placement stays as it is.
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = axis.inputs;
  }
};

class AllReduce final : public CollectiveBase {
 public:
  AllReduce() : CollectiveBase("all_reduce") {}
  Movement movement() const noexcept override { return Movement::all_reduce; }
  bool is_collective() const noexcept override { return true; }
  std::int64_t bytes_sent(std::int64_t bytes, int ranks) const noexcept override { return 2 * bytes * (ranks - 1) / ranks; }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& /*request*/, Communicator* communicator,
                                                 int /*ranks*/) const override {
    return make_all_reduce_kernel(communicator);
  }
  int updates_in_place(int output) const noexcept override { return output; }
  void differentiate(Differentiator& d, const Instruction& f) const override {
    // Each summand moves the sum by as much as itself: the gradient passes through, replicated.
    pass_back(d, f, Placement::replicate());
  }
};

class ReduceScatter final : public CollectiveBase {
 public:
  ReduceScatter() : CollectiveBase("reduce_scatter") {}
  Movement movement() const noexcept override { return Movement::reduce_scatter; }
  bool is_collective() const noexcept override { return true; }
  std::int64_t bytes_sent(std::int64_t bytes, int ranks) const noexcept override { return bytes * (ranks - 1) / ranks; }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* communicator,
                                                 int ranks) const override {
    return make_reduce_scatter_kernel(request, communicator, ranks);
  }
  void differentiate(Differentiator& d, const Instruction& f) const override { pass_back(d, f, Placement::replicate()); }
};

class AllGather final : public CollectiveBase {
 public:
  AllGather() : CollectiveBase("all_gather") {}
  Movement movement() const noexcept override { return Movement::all_gather; }
  bool is_collective() const noexcept override { return true; }
  bool passes_parameters_on() const noexcept override { return true; }
  std::int64_t bytes_sent(std::int64_t bytes, int ranks) const noexcept override { return bytes * (ranks - 1); }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* communicator,
                                                 int ranks) const override {
    return make_all_gather_kernel(request, communicator, ranks);
  }
  void differentiate(Differentiator& d, const Instruction& f) const override { pass_back(d, f, parts_of(f)); }
};

/// Slices along dimension "dim" become slices along dimension "to".
class AllToAll final : public CollectiveBase {
 public:
  AllToAll() : CollectiveBase("all_to_all") {}
  Types infer(const Types& in, const Attributes& attributes) const override {
    const std::int64_t dim = attributes.integer("dim"), to = attributes.integer("to");
    for (const std::optional<TensorType>& type : in)
      require(!type || (dim >= 0 && to >= 0 && dim != to && std::max(dim, to) < type->shape.rank()),
              "attributes 'dim' and 'to' must be two dimensions of the tensors");
    return CollectiveBase::infer(in, attributes);
  }
  bool is_collective() const noexcept override { return true; }
  bool passes_parameters_on() const noexcept override { return true; }
  std::int64_t bytes_sent(std::int64_t bytes, int ranks) const noexcept override { return bytes * (ranks - 1) / ranks; }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* communicator,
                                                 int ranks) const override {
    return make_all_to_all_kernel(request, communicator, ranks);
  }
  void differentiate(Differentiator& d, const Instruction& f) const override { pass_back(d, f, parts_of(f)); }
};

/// Slices along dimension "dim" move on by one rank: each gets that of the rank before it, the first one that of the last.
/// Inserted after differentiation, so that it needs no adjoint.
class Shift final : public CollectiveBase {
 public:
  Shift() : CollectiveBase("shift") {}
  bool is_collective() const noexcept override { return true; }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& /*request*/, Communicator* communicator,
                                                 int ranks) const override {
    return make_shift_kernel(communicator, ranks);
  }
};

class Slice final : public CollectiveBase {
 public:
  Slice() : CollectiveBase("slice") {}
  Movement movement() const noexcept override { return Movement::slice; }
  bool changes_placement() const noexcept override { return true; }
  bool passes_parameters_on() const noexcept override { return true; }
  void differentiate(Differentiator& d, const Instruction& f) const override { pass_back(d, f, Placement::replicate()); }
};

/// Attribute "lane": the neighbour that receives it (see Lane). Inserted after differentiation, so that it needs no adjoint.
class Send final : public NamedOp {
 public:
  Send() : NamedOp("send") {}
  Movement movement() const noexcept override { return Movement::send; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    attributes.axes("axis");
    const auto lane = static_cast<Lane>(attributes.integer("lane"));
    require(lane == Lane::to_next || lane == Lane::to_previous, "the lane is not one to send on");
    present(in, 0);
    return {std::nullopt};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {Placement()};
  }
  bool is_collective() const noexcept override { return true; }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& /*request*/, Communicator* communicator,
                                                 int /*ranks*/) const override {
    return make_send_kernel(communicator);
  }
};

/// Attributes "dtype" and "extent0", "extent1", ...: the tensor that is received, in its logical shape. The emitter states its
/// placements, which are those of the tensor that was sent.
class Receive final : public NamedOp {
 public:
  Receive() : NamedOp("receive") {}
  Movement movement() const noexcept override { return Movement::receive; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    attributes.axes("axis");
    const auto lane = static_cast<Lane>(attributes.integer("lane"));
    require(lane == Lane::from_next || lane == Lane::from_previous, "the lane is not one to receive from");
    require(in.empty(), "there are inputs");
    TensorType type{dtype_attribute(attributes), {}};
    for (int dim = 0; attributes.has("extent" + std::to_string(dim)); ++dim)
      type.shape.push_back(attributes.integer("extent" + std::to_string(dim)));
    return {type};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {Placement()};
  }
  bool is_collective() const noexcept override { return true; }
  std::int64_t bytes_sent(std::int64_t /*bytes*/, int /*ranks*/) const noexcept override { return 0; }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& /*request*/, Communicator* communicator,
                                                 int /*ranks*/) const override {
    return make_receive_kernel(communicator);
  }
};

}  // namespace

void register_collectives(OpRegistry& registry) {
  registry.add(std::make_unique<AllReduce>());
  registry.add(std::make_unique<ReduceScatter>());
  registry.add(std::make_unique<AllGather>());
  registry.add(std::make_unique<AllToAll>());
  registry.add(std::make_unique<Shift>());
  registry.add(std::make_unique<Slice>());
  registry.add(std::make_unique<Send>());
  registry.add(std::make_unique<Receive>());
}

}  // namespace consist::ops
