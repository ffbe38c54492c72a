// Optimizers: the states of a parameter, and its update as instructions of the step. An optimizer knows neither ranks nor
// strategies: its tensors lie as the strategies placed the gradients (a ZeRO rank has its slice). An optimizer that needs an
// unsharded matrix asks for it by Builder::reshard.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consist/builder.h"
#include "consist/export.h"
#include "consist/options.h"
#include "consist/program.h"

namespace consist {

class PassList;

/// The shape of a state, from that of its parameter.
enum class StateShape : std::uint8_t {
  like_parameter,  ///< one value for each element
  rows,            ///< of a matrix one value for each row: the shape without its last dimension
  columns,         ///< of a matrix one value for each column: the shape without its last but one dimension
  blocks,          ///< one value for `block` neighbouring elements of the flat parameter
  scalar,          ///< one value
};

/// A state that an optimizer keeps for a parameter. All of its bytes are zero before the first step.
///
/// It lies as the gradient does: a state of rows or columns is replicated along the axes that divide what it has one value for
/// (flat shards, and shards of the dimension that it lacks), where an op that sums over them leaves a partial sum, which the
/// builder reduces; a scalar is replicated. Blocks must not be divided: a layout whose shards end within one is refused.
struct OptimizerState {
  OptimizerState(const char* state) : name(state) {}  // NOLINT(google-explicit-constructor): a name alone is the common case
  OptimizerState(std::string state, StateShape of = StateShape::like_parameter, std::optional<DType> as = std::nullopt,
                 std::int64_t elements = 0)
      : name(std::move(state)), shape(of), dtype(as), block(elements) {}
  bool operator==(const OptimizerState&) const = default;

  std::string name;  ///< "moment1" becomes "<parameter>.moment1" in checkpoints; never "master"
  StateShape shape = StateShape::like_parameter;
  std::optional<DType> dtype;  ///< absent: DTypes::moment. 8-bit ones are e4m3, e5m2, and u8 for codes of the optimizer's own
  std::int64_t block = 0;      ///< elements that share a value; of StateShape::blocks alone
};

/// The logical shape of a state of a parameter of logical shape `shape`. Blocks: the last dimension is divided by the block if it
/// divides; else there is one dimension, ceil(elements / block). ERRORS: ProgramError where the parameter is no matrix that rows
/// or columns could be of, or a block is below 1.
CONSIST_API Shape shape_of(const OptimizerState& state, const Shape& shape);

/// One parameter's tensors, placed as its gradient is; all but states that say otherwise have its logical shape.
struct UpdatedParameter {
  const Parameter* parameter = nullptr;  ///< of the program; valid while the call lasts
  TensorId value = no_tensor;            ///< the weight that forward reads, in DTypes::parameter
  TensorId gradient = no_tensor;         ///< summed over micro-batches and ranks, not yet clipped, in DTypes::gradient
  TensorId master = no_tensor;           ///< the weight in DTypes::master; absent: `value` is the weight itself
  std::vector<TensorId> states;          ///< in the order of Optimizer::states()
};

/// Parameters that are updated side by side: of one layer, all with weight decay or all without.
struct UpdateGroup {
  std::vector<UpdatedParameter> parameters;  ///< at least one
  double weight_decay = 0;
  bool stochastic_rounding = false;  ///< of bf16 states, and of bf16 weights without a master
  std::int64_t seed = 0;             ///< of stochastic rounding: another one for each group, the same on all ranks
};

/// The plugin kind "optimizer". Const members give the same answer each time and on every rank. THREADS: several at a time, each
/// with a program of its own: predictions compile the ranks of a pipeline in parallel.
class CONSIST_API Optimizer {
 public:
  virtual ~Optimizer();

  /// The states of a parameter of logical shape `shape`, of different names. May be empty.
  virtual std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const = 0;

  /// A factor for each of states(), where evaluations, generated text and exports read other weights than training: those of
  /// training (the master, if there is one) plus the sum of factor times state. An average of weights is kept as its difference
  /// from them, which is zero at first. Empty, as by default: they read the same. A state whose factor is not 0 must be like the
  /// parameter, in f32 or bf16.
  virtual std::vector<double> evaluated(const Parameter& parameter, const Shape& shape) const;

  /// The number of scalars of a step that the update reads, at least one.
  virtual std::size_t scalar_count() const = 0;
  /// Writes the scalars: the learning rate and numbers that follow from `step`, which counts from 1. `out` has scalar_count()
  /// elements. Called before each step: it must not allocate.
  virtual void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const = 0;

  /// Emits the update of a group. `scalars`: f32 [scalar_count()], as write_scalars() wrote them for the step; `clip`: f32 scalar
  /// that multiplies the gradients. The outputs must update `value`, `master` and `states` in place (Op::updates_in_place).
  virtual void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const = 0;

  /// Adds passes of its own (consist/pass.h), beside update(). The default adds none.
  virtual void add_passes(PassList& passes) const;

  /// One line for the log: "AdamW, betas 0.9 and 0.95".
  virtual std::string describe() const = 0;
};

/// AdamW (Loshchilov & Hutter, 2019), states "moment1" and "moment2"; Adam's constants are those of Kingma & Ba (2015). The
/// plugin "adamw"; other optimizers use it for parameters that their own rule does not cover.
class CONSIST_API AdamW final : public Optimizer {
 public:
  struct Settings {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    bool bias_correction = true;  ///< of both moments
  };

  AdamW() = default;
  explicit AdamW(const Settings& settings) : settings_(settings) {}

  std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const override;
  std::size_t scalar_count() const override { return 4; }
  /// Rate, 1 - beta1^step, 1 - beta2^step (both 1 without bias correction), step.
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override;
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override;
  std::string describe() const override;

 private:
  Settings settings_;
};

/// Emits an op whose operands are those of Op::states_per_update(), for all parameters of a group.
CONSIST_API void emit_update(Builder& builder, std::string_view op, TensorId scalars, TensorId clip, const UpdateGroup& group,
                             Attributes attributes);

}  // namespace consist
