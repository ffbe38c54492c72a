// Ops: the operations of instructions, each with its rules in one place: types (infer), placement rule (shard), gradient
// (differentiate), cost. The op set is open: a plugin registers ops of its own (registry(), usually from a static initialiser or
// its constructor) together with kernels on the devices it supports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/op_traits.h"
#include "consist/program.h"

namespace consist {

class Builder;
class Communicator;
class Kernel;
struct KernelRequest;

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};

/// Inputs or outputs of an instruction as an op sees them: absent optional ones are nullopt.
using Types = std::vector<std::optional<TensorType>>;

/// Placements of one instruction along one mesh axis. `inputs` arrives with the placements that the inputs have; the op replaces
/// them by those that it needs (the builder inserts a collective where they differ); `outputs` arrives empty and must be filled.
struct AxisSharding {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  int axis = 0;  ///< index of the mesh axis, for ops whose attributes name one
};

/// Work of one instruction on one rank. Bytes: each input read once, each output written once.
struct Cost {
  double flops = 0;  ///< multiply and add count as two; only matrix work is counted
  double bytes = 0;
  int depth = 0;  ///< length of its products' sums where rates depend on it: the head size of attention. 0: they do not
};

class Differentiator;

/// Ops are stateless singletons. THREADS: all members are const and may be called from any thread.
class CONSIST_API Op {
 public:
  virtual ~Op();
  virtual std::string_view name() const noexcept = 0;

  /// Types of the outputs, in logical shapes. Throws ProgramError that says which input is wrong and why.
  virtual Types infer(const Types& inputs, const Attributes& attributes) const = 0;

  /// The placement rule along one axis. An op that cannot work on the placements it is given asks for others in `inputs`.
  virtual void shard(AxisSharding& axis, const Types& inputs, const Attributes& attributes) const = 0;

  /// Emits the gradient instructions of `forward`. The default throws ProgramError: the op has no gradient.
  virtual void differentiate(Differentiator& d, const Instruction& forward) const;

  virtual Cost cost(const Program& program, const Instruction& instruction) const;  ///< default: no flops, all bytes once

  /// The input that output `output` updates in place when that input is present, or -1. For gradients of parameters this is the
  /// accumulator: absent means overwrite, present means add.
  virtual int updates_in_place(int /*output*/) const noexcept { return -1; }

  /// True if that output may also lie in memory of its own, so that the input keeps its value for later readers.
  virtual bool updates_apart(int /*output*/) const noexcept { return false; }

  /// The number of states per parameter of an op that updates parameters side by side, else -1. Inputs: scalars and clip
  /// (Optimizer), then for each parameter the value, the gradient, the master and its states; outputs: for each the value, the
  /// master and the states, in place. The master and states that a run does not have are absent. Each element is updated by
  /// itself, so that strategies may update slices, or on the host.
  virtual int states_per_update() const noexcept { return -1; }

  /// True if running it reads or writes tensors. Ops that only state where bytes lie, for how long or under which name do
  /// not: they have no kernel and take no part in waits.
  virtual bool touches_memory() const noexcept { return true; }

  /// True if outputs whose inputs are all parameters are still like parameters, whose gradients have the precision's dtype: the
  /// op puts them in another place (gathers, repeats, takes the slice of a rank), or makes functions of them by elements.
  virtual bool passes_parameters_on() const noexcept { return false; }

  /// True if what backward reads of its outputs is made again there, from the same inputs, instead of being kept from forward.
  virtual bool remade_in_backward() const noexcept { return false; }

  /// True if its outputs are gradients of weights, for which nothing in backward waits: strategies may run it later.
  virtual bool makes_weight_gradients() const noexcept { return false; }

  /// True if that input or output may be a strided view of a wider tensor (Tensor::row_stride).
  virtual bool takes_strided_view(int /*input*/) const noexcept { return false; }
  virtual bool makes_strided_view(int /*output*/) const noexcept { return false; }

  /// Checks further requirements on the places of tensors in memory. ERRORS: ProgramError that names the tensor.
  virtual void check_places(const Program& program, const Instruction& instruction) const;  ///< default: nothing is needed

  /// Collectives move bytes between the ranks of a group over the axes in attribute "axis" (an AxisSet) and run on their queue.
  virtual bool is_collective() const noexcept { return false; }

  /// True if it changes where values lie and not the values, so that its outputs' placements are stated by its emitter
  /// (Builder::reshard) and not by shard(). Has attribute "axis".
  virtual bool changes_placement() const noexcept { return is_collective(); }

  // Traits of consist/op_traits.h, and some that are explained here.

  /// The data that it moves between ranks. Movement::none for a collective of another kind.
  virtual Movement movement() const noexcept { return Movement::none; }

  /// The part of a linear that it computes: the product or one of its gradients.
  virtual LinearPart linear_part() const noexcept { return LinearPart::none; }

  /// The op that computes several of this part at once as a single product; null if there is none. Its inputs, by linear_part():
  /// product: x, then pairs of w and bias?. input_gradient: sum?, then pairs of dy and w; output 0 is the sum of all.
  /// weight_gradient: x, then pairs of dy and sum?.
  virtual const Op* packed() const noexcept { return nullptr; }

  virtual Separable separable() const noexcept { return Separable::no; }

  /// Layouts that reorder tokens (Program::zigzag, messages of tp-sp) ask every op that works on tokens, except those with
  /// attends() or position_rows(), which follow the order. If an op says nothing (fixed), cp refuses it by name and tp-sp keeps
  /// the order.
  virtual TokenOrder token_order() const noexcept {
    return separable() == Separable::tokens ? TokenOrder::any : TokenOrder::fixed;
  }
  virtual VocabularyUse vocabulary_use() const noexcept { return VocabularyUse::none; }
  virtual std::optional<ResidualSum> residual_sum() const noexcept { return std::nullopt; }
  virtual std::optional<ChannelSplit> channel_split(const Attributes& /*attributes*/) const { return std::nullopt; }

  /// The input whose dimension 0 runs over the positions of a sequence, as the table of rope does; -1: none.
  virtual int position_rows() const noexcept { return -1; }

  /// True for causal attention. Inputs: queries, keys, values [batch, sequence, heads*head_dim], optionally document starts and
  /// i32[1], the position of the first query beside keys of a KV cache (docs/ops.md). Output 0 is placed as the queries are. The
  /// op accepts queries that are sharded along the sequence, in the order of Program::zigzag, with unsharded keys and values.
  virtual bool attends() const noexcept { return false; }

  /// The input that holds the experts' weights, experts in dimension 0; -1: none. With a slice of it the op works on the rows of
  /// these experts.
  virtual int expert_weights() const noexcept { return -1; }

  /// True if it brings tokens to their experts. Attribute "rows": the capacity over all ranks, in rows, which are the last
  /// dimension but one of output 0 ("most_rows", if present: an upper bound of the rows that are ever needed). With attribute
  /// "axis" there may be more rows than the capacity; the last output is then the number of those beyond it.
  virtual bool dispatches_tokens() const noexcept { return false; }

  /// True if f(a + b) = f(a) + f(b), element by element, over all inputs together: it may be applied to the summands instead of
  /// their sum, and to the partial tensor of each rank.
  virtual bool is_additive() const noexcept { return false; }

  /// Emits one instruction that makes the sum of the outputs of two of this op, in place of both and an addition: a gradient of
  /// several summands is then rounded once. Returns its output, or no_tensor, as by default, where it knows no such instruction.
  virtual TensorId emit_sum(Builder& builder, const Instruction& a, const Instruction& b) const;

  /// True if output k is input 2k plus input 2k + 1, for every k.
  virtual bool adds_pairs() const noexcept { return false; }

  /// The input whose memory output `output` may take if no instruction reads that input later, or -1. Unlike with
  /// updates_in_place(), the output may have memory of its own.
  virtual int may_take_place_of(int /*output*/) const noexcept { return -1; }

  /// True if its gradient reads output `output` of forward, which then has to be kept.
  virtual bool gradient_reads_output(int /*output*/) const noexcept { return true; }

  /// True if output 0, a scalar f32, is the largest magnitude in input 0.
  virtual bool states_amax() const noexcept { return false; }

  /// The op that also states the largest magnitudes of outputs: those that attribute "amax_of" names (bit k: of output k), behind
  /// its own outputs, each a scalar f32. Null if there is none.
  virtual const Op* with_amax() const noexcept { return nullptr; }

  /// True if it quantizes input 0 as consist/quantize.h states: outputs are the 8-bit values, their transposed copy, and scales.
  virtual bool quantizes() const noexcept { return false; }

  /// Bytes that each of `ranks` ranks sends when a collective runs as a ring; `bytes` are those of the rank's inputs, or of its
  /// outputs where there are no inputs.
  virtual std::int64_t bytes_sent(std::int64_t bytes, int ranks) const noexcept;  ///< default: bytes

  /// The kernel of a collective, on every device; other ops' kernels come from the device. `communicator` is that of the
  /// instruction's queue, with `ranks` members; it outlives the kernel, and is null where the program is only planned. The
  /// default throws ProgramError. Throws ProgramError for a layout that would take very many messages. The request
  /// states the memory that it gets: `device`, and `space` of each buffer.
  virtual std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* communicator,
                                                         int ranks) const;
};

/// All ops of the process. THREADS: any. Ops are never removed.
class CONSIST_API OpRegistry {
 public:
  OpRegistry();
  ~OpRegistry();
  /// Registers an op and owns it. Throws UsageError if an op of that name exists already.
  const Op& add(std::unique_ptr<Op> op);
  const Op* find(std::string_view name) const noexcept;  ///< null if there is none
  /// Throws ProgramError naming the op if there is none.
  const Op& get(std::string_view name) const;
  std::vector<const Op*> all() const;  ///< by name

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The process-wide registry, filled with the core's ops.
CONSIST_API OpRegistry& registry();

/// The argument of Op::differentiate. Reverse mode: gradients of outputs are known, those of inputs are accumulated.
class CONSIST_API Differentiator {
 public:
  virtual ~Differentiator();
  /// Emits into the backward part, tagged like the forward instruction.
  virtual Builder& build() = 0;
  virtual const Program& program() const = 0;
  /// The instruction that made a forward tensor, an index into program().instructions; -1 for inputs and states.
  virtual InstructionId producer(TensorId tensor) const = 0;
  /// The gradient of a forward tensor; no_tensor if no gradient flows into it.
  virtual TensorId gradient(TensorId tensor) = 0;
  /// True if a gradient of `tensor` is of use: the tensor is, or depends on, a parameter.
  virtual bool requires_grad(TensorId tensor) const = 0;
  /// The gradient as accumulated so far if an op may add to it in place, no_tensor otherwise (none yet, or shared).
  virtual TensorId accumulator(TensorId tensor) = 0;
  /// Adds `gradient` to that of `tensor`. If it was made by accumulating into accumulator(tensor), it replaces that.
  virtual void accumulate_grad(TensorId tensor, TensorId gradient) = 0;
  /// True if `tensor` is the loss that is differentiated (its own gradient is the constant 1 and has no tensor).
  virtual bool is_root(TensorId tensor) const = 0;
  /// Lets all uses of a forward tensor read `by` instead, for ops whose gradient instruction makes the value again.
  virtual void replace_all_uses_with(TensorId tensor, TensorId by) = 0;
  /// The dtype for the gradient of `tensor`: that of the precision for parameters, else the tensor's own.
  virtual DType gradient_dtype(TensorId tensor) const = 0;
};

}  // namespace consist
