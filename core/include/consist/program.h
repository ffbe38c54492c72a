// The program: what a rank executes in one step, as a flat list of instructions over typed, shaped tensors.
//
// Rules (checked by verify(), core/program/verifier.h):
// - a tensor is defined once: it is an input or state of the program, or an output of exactly one instruction;
// - an instruction reads only tensors defined before it;
// - tensors may share storage: a view lies inside its storage; an update in place is an output whose storage is that of
//   an input, and no later instruction reads an older value of those bytes;
// - dtypes, shapes and placements of outputs are what the op infers from the inputs.
// Shapes are logical (over all ranks of the mesh); what a rank holds follows from the placements (local_shape).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "consist/dtype.h"
#include "consist/export.h"
#include "consist/mesh.h"
#include "consist/shape.h"
#include "consist/weight_blocks.h"

namespace consist {

class CostModel;
class Op;

using TensorId = std::int32_t;
inline constexpr TensorId no_tensor = -1;  ///< an optional input or output that is absent

enum class Role : std::uint8_t {
  parameter,        ///< weights in the dtype that forward and backward read
  gradient,         ///< of a parameter
  optimizer_state,  ///< master weights and moments
  activation,       ///< made and dropped within a step, activation gradients included
  input,            ///< written by the trainer before each step: token ids, targets, learning rate
  metric,           ///< read by the trainer after each step: loss, grad_norm
  workspace,        ///< scratch of one instruction
};
CONSIST_API std::string_view name_of(Role role) noexcept;

enum class MemorySpace : std::uint8_t { device, host };  ///< host: pinned memory of the host
CONSIST_API std::string_view name_of(MemorySpace space) noexcept;

/// Rule by which a state (Builder::state), a parameter, a master or an optimizer's state is saved and resumed. A strategy's
/// finish() may set it.
enum class StateKind : std::uint8_t {
  logical,      ///< one value over all ranks, saved in slices as it is placed: any layout resumes it. Never partial
  per_rank,     ///< a value of each rank's own, under any placement; equal at the start. Only the layout that saved it resumes it
  discardable,  ///< as logical, but a run may resume without it, from zeros, or leave it unread. Not for parameters
};

struct Tensor {
  std::string name;  ///< unique only for inputs, states and metrics; otherwise for messages
  DType dtype = DType::f32;
  Shape shape;  ///< logical
  Placements placements;
  Role role = Role::activation;
  MemorySpace space = MemorySpace::device;
  bool state = false;            ///< keeps its value from step to step (parameters, optimizer states)
  StateKind state_kind = StateKind::logical;
  bool recomputed = false;       ///< computed again for backward instead of kept from forward (--recompute)
  TensorId storage = no_tensor;  ///< the tensor whose bytes these are; its own id if it owns them; never a chain
  std::int64_t offset = 0;       ///< bytes from the start of the storage, on every rank
  /// Elements from the start of a row (of the last dimension) to the start of the next, on every rank, where the tensor is a
  /// strided view of a wider one; 0: rows lie one behind the other.
  std::int64_t row_stride = 0;
};

/// A tensor that an optimizer keeps for a parameter (Optimizer::states()).
struct ParameterState {
  std::string name;  ///< "moment1"
  TensorId tensor = no_tensor;
};

/// A parameter of the model: its tensors and initial values. Apart from Tensor, since few tensors are parameters.
struct Parameter {
  TensorId tensor = no_tensor;  ///< the value that forward reads at the start of the step
  std::string name;             ///< as in Hugging Face's checkpoints: "model.layers.0.mlp.up_proj.weight"
  bool decay = true;            ///< weight decay applies (not on norms and biases)
  /// True if the optimizer updates it. A frozen parameter has no gradient, no master and no states.
  bool trainable = true;
  float init_mean = 0.0F;       ///< initial values: mean, and the standard deviation around it (0: constant)
  float init_std = 0.0F;
  bool init_uniform = false;      ///< they are distributed uniformly instead of normally, with that deviation
  TensorId gradient = no_tensor;  ///< the accumulated gradient that the optimizer consumes, once known
  int tied_replica = -1;          ///< the rank whose program trains this parameter too (see stage_axis), -1: none
  TensorId master = no_tensor;    ///< the weight that the optimizer keeps, once it is there; absent in fp32
  std::vector<ParameterState> states;  ///< of the optimizer, once they are there
  bool fixed = false;  ///< nothing trains it, whatever --train-only says: a router's bias, weights of a frozen model
  std::string model;  ///< the loss's frozen model that it is of (FrozenModel::name); empty: it is of the trained model
  WeightBlocks blocks;  ///< the codes as which its tensor, u8, holds it; none: its elements, in the tensor's dtype
};

using AttributeValue = std::variant<std::int64_t, double, std::string, AxisSet>;

/// Named constants of an instruction, in order of insertion.
class CONSIST_API Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> values) : values_(values) {}

  void set(std::string_view name, AttributeValue value);
  bool has(std::string_view name) const noexcept;
  /// Each throws ProgramError if the attribute is absent or of another type.
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& string(std::string_view name) const;
  AxisSet axes(std::string_view name) const;
  std::int64_t integer_or(std::string_view name, std::int64_t fallback) const;
  double real_or(std::string_view name, double fallback) const;

  const std::vector<std::pair<std::string, AttributeValue>>& all() const noexcept { return values_; }
  /// For keys of maps: bytes that are equal exactly if names, values (to the last bit) and their order are. Not for messages.
  std::string key() const;

 private:
  const AttributeValue* find(std::string_view name) const noexcept;
  std::vector<std::pair<std::string, AttributeValue>> values_;
};

/// Messages of mesh axes that a communication queue carries. Collectives share one queue; messages between two neighbours in
/// the group (the last one's next is the first) have a queue per direction and peer, so that none waits behind one that is not
/// ready.
enum class Lane : std::uint8_t { collective, to_next, from_previous, to_previous, from_next };
inline constexpr int lanes = 5;

/// The work of a queue: the device's kernels, communication over a set of mesh axes, or copies from or to the host.
/// Instructions of one queue run in program order; queues run side by side, ordered only by waits. The queues of a program are
/// those that its instructions name; data per queue are indexed by a QueueTable.
class Queue {
 public:
  enum class Kind : std::uint8_t { compute, host_to_device, device_to_host, communication };

  static constexpr Queue compute() noexcept { return {}; }
  static constexpr Queue host_to_device() noexcept { return {Kind::host_to_device, Lane::collective, {}}; }
  static constexpr Queue device_to_host() noexcept { return {Kind::device_to_host, Lane::collective, {}}; }
  static constexpr Queue communication(AxisSet axes, Lane lane = Lane::collective) noexcept {
    return {Kind::communication, lane, axes};
  }

  constexpr Queue() = default;  ///< compute
  constexpr Kind kind() const noexcept { return kind_; }
  constexpr bool is_communication() const noexcept { return kind_ == Kind::communication; }
  constexpr bool is_copy() const noexcept { return kind_ == Kind::host_to_device || kind_ == Kind::device_to_host; }
  constexpr AxisSet axes() const noexcept { return axes_; }  ///< of a communication queue; else none
  constexpr Lane lane() const noexcept { return lane_; }     ///< of a communication queue
  /// By kind, then lane, then axes: compute is the first of all.
  constexpr auto operator<=>(const Queue&) const noexcept = default;

 private:
  constexpr Queue(Kind kind, Lane lane, AxisSet axes) : kind_(kind), lane_(lane), axes_(axes) {}
  Kind kind_ = Kind::compute;
  Lane lane_ = Lane::collective;
  AxisSet axes_;
};
/// "compute", "h2d", "d2h", "comm:<axes>", or "comm:<axes>.to_next" and the like.
CONSIST_API std::string text_of(Queue queue, const Mesh& mesh);

enum class Phase : std::uint8_t {
  forward,
  backward,
  weight_gradient,  ///< the part of backward that only the optimizer waits for, where a schedule runs it apart
  optimizer,
};
CONSIST_API std::string_view name_of(Phase phase) noexcept;

/// The origin of an instruction. `inserted_by` points to a string literal or another string that outlives the program.
struct Tag {
  Phase phase = Phase::forward;
  std::int16_t layer = -1;        ///< transformer layer, -1 outside of any
  std::int16_t micro_batch = -1;  ///< -1 outside of any
  const char* inserted_by = "";
  std::int16_t stage = -1;  ///< of a pipeline, counted through all ranks and chunks; -1 outside of any
};

using InstructionId = std::int32_t;

struct Instruction {
  const Op* op = nullptr;  ///< owned by the op registry, which outlives every program
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attributes attributes;
  Queue queue;
  Tag tag;
  /// Instructions of other queues that must have finished before this one starts. Filled by the pass `waits`.
  std::vector<InstructionId> waits;
};

/// A tensor that never changes, such as rope's table; computed on the host at set-up, in f32.
struct Constant {
  TensorId tensor = no_tensor;
  std::function<void(std::span<float>)> fill;  ///< receives the elements of the logical shape
};

/// Values of a dataset for each token of a sequence beside ids and targets (Builder::field): "loss_mask", "document_start".
struct Field {
  std::string name;
  DType dtype = DType::i32;  ///< i32 or f32
  bool operator==(const Field&) const = default;
};

/// Throws the ProgramError of a tensor id that a program of `tensors` tensors does not have.
[[noreturn]] CONSIST_API void throw_no_such_tensor(TensorId id, std::size_t tensors);

/// A router of a mixture of experts, and where its statistics are: f32[2·experts + 1], how many choices fell on each expert
/// first.
struct Router {
  TensorId statistics =
      no_tensor;            ///< of one micro-batch, partial where tokens are sharded; no_tensor where another rank has the layer
  std::int16_t layer = -1;  ///< transformer layer
  std::int64_t experts = 0;
};

/// A value that leaves the step beside its loss: f32, of a micro-batch, partial as the loss is. The step sums it over
/// micro-batches and ranks; where a rank of a pipeline does not have it, it adds nothing.
struct StepOutput {
  enum class Kind : std::uint8_t {
    /// The number of targets that the loss counts, where a mask decides it: the loss, auxiliary losses and the gradients are
    /// divided by the sum. At most one; without one every target counts, and `loss` is the mean.
    loss_count,
    /// Trained on beside `loss`, such as a router's balance loss, already times its weight. The reported loss does not contain
    /// it.
    auxiliary_loss,
    /// Rows beyond the experts' capacity: a step in which the sum is not 0 changes nothing. Without one the capacity suffices.
    overflow,
    /// Number of choices that fell on each expert: f32[routers, most experts of one].
    expert_choices,
    metric,        ///< a number that a model, loss or strategy reports of its own: Builder::metric()
    metric_count,  ///< what the sum of the metric before it is divided by
  };
  Kind kind = Kind::metric;
  std::string name;  ///< the metric as which a run reads it: "loss_count", "aux_loss", "metric.preference_accuracy"
  TensorId tensor = no_tensor;
  std::string unit, description;  ///< of a metric: "1", "nat"; one line, which is shown beside it
};

struct Program {
  Mesh mesh;
  int rank = 0;  ///< whose program this is, where ranks' programs differ (pipeline stages)
  std::vector<Tensor> tensors;
  std::vector<Instruction> instructions;
  std::vector<Parameter> parameters;  ///< in the model's order
  std::vector<Constant> constants;    ///< replicated
  TensorId loss = no_tensor;          ///< the scalar that is trained on
  std::vector<StepOutput> outputs;    ///< beside the loss
  std::vector<Router> routers;        ///< of all layers, in the order of forward
  /// The order of the sequence in all inputs, activations and tables of positions. 0: that of positions. n: zigzag over n ranks:
  /// of 2n equal chunks the first and the last, the second and the last but one, and so on (Llama 3, Grattafiori et al., 2024).
  int zigzag = 0;
  std::vector<Field> fields;  ///< of the dataset; those that a model asks for become inputs
  int micro_batches = 1;
  /// The axis along which ranks run different programs (pipeline stages), -1: none. Each program has only the
  /// parameters, inputs and loss that its rank needs. Placements along this axis only say which values are partial along it.
  int stage_axis = -1;
  /// Durations of instructions on the machine that the program is planned for (consist/cost.h); the same for all ranks of a job.
  /// Null in programs that were made by hand; see costs_of().
  std::shared_ptr<const CostModel> costs;

  /// ERRORS: both throw ProgramError for an id that the program does not have, no_tensor included.
  const Tensor& operator[](TensorId id) const {
    if (static_cast<std::size_t>(id) >= tensors.size()) throw_no_such_tensor(id, tensors.size());
    return tensors[static_cast<std::size_t>(id)];
  }
  Tensor& operator[](TensorId id) { return const_cast<Tensor&>(std::as_const(*this)[id]); }
  Shape local(TensorId id) const {
    const Tensor& t = (*this)[id];
    return local_shape(t.shape, t.placements, mesh);
  }
  /// The slice of the tensor that this program's rank holds.
  LocalPart part(TensorId id) const {
    const Tensor& t = (*this)[id];
    return local_part(t.shape, t.placements, mesh, rank);
  }
  /// The shape of a parameter's weights, as files have it.
  Shape shape_of(const Parameter& parameter) const {
    const Shape& shape = (*this)[parameter.tensor].shape;
    return parameter.blocks.any() ? parameter.blocks.weights(shape) : shape;
  }
  /// Bytes that one rank holds of the tensor.
  std::int64_t bytes(TensorId id) const;
  /// Bytes that must lie unused behind every storage: collectives over equal slices move the padding of flat tensors too.
  std::int64_t padding() const;
  /// The first tensor of that name, or no_tensor. Linear in the number of tensors.
  TensorId find(std::string_view name) const noexcept;
  /// The first output of that kind, or no_tensor.
  TensorId output(StepOutput::Kind kind) const noexcept;
  /// Adds an output of a kind that is no metric.
  void add_output(StepOutput::Kind kind, TensorId tensor);
  /// Leaves out those of that kind.
  void drop_outputs(StepOutput::Kind kind);
};

/// Numbers queues: in the order of Queue, so that compute, which is always among them, is number 0.
class CONSIST_API QueueTable {
 public:
  /// For these queues, in any order; a queue may be repeated.
  explicit QueueTable(std::vector<Queue> queues = {});
  /// For the queues that the program's instructions name.
  explicit QueueTable(const Program& program);

  std::size_t size() const noexcept { return queues_.size(); }
  Queue operator[](std::size_t number) const { return queues_.at(number); }
  auto begin() const noexcept { return queues_.begin(); }
  auto end() const noexcept { return queues_.end(); }
  bool contains(Queue queue) const noexcept;
  /// Throws ProgramError for a queue that is not among them.
  std::size_t number_of(Queue queue) const;
  bool operator==(const QueueTable&) const = default;

 private:
  std::vector<Queue> queues_;
};

}  // namespace consist
