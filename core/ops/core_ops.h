// Registration of the core's ops, one function per family, and what the families share. docs/ops.md states every tensor.
#pragma once

#include <optional>
#include <string>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"

namespace consist::ops {

/// The type of losses, norms and the optimizer's numbers.
inline const TensorType scalar{DType::f32, {}};

/// The dims of tensors with experts: rows [1, rows, channels], and weights with the experts first.
inline constexpr Placement row_dim = Placement::shard(1), first_dim = Placement::shard(0);

void register_core_ops(OpRegistry& registry);
void register_embedding(OpRegistry& registry);
void register_linear(OpRegistry& registry);
void register_packed_linear(OpRegistry& registry);
void register_fp8(OpRegistry& registry);
void register_fp8_grouped(OpRegistry& registry);
void register_fp8_parts(OpRegistry& registry);
void register_fp8_quantize(OpRegistry& registry);
void register_amax(OpRegistry& registry);
void register_decode_weights(OpRegistry& registry);
void register_rms_norm(OpRegistry& registry);
void register_rope(OpRegistry& registry);
void register_attention(OpRegistry& registry);
void register_cache(OpRegistry& registry);
void register_attention_part(OpRegistry& registry);
void register_swiglu(OpRegistry& registry);
void register_moe_route(OpRegistry& registry);
void register_moe_rows(OpRegistry& registry);
void register_moe_sends(OpRegistry& registry);
void register_grouped_linear(OpRegistry& registry);
void register_lm_head(OpRegistry& registry);
void register_vocabulary(OpRegistry& registry);
void register_targets(OpRegistry& registry);
void register_repeat_heads(OpRegistry& registry);
void register_elementwise(OpRegistry& registry);
void register_map(OpRegistry& registry);
void register_reduce(OpRegistry& registry);
void register_map_update(OpRegistry& registry);
void register_optimizer(OpRegistry& registry);
void register_muon(OpRegistry& registry);
void register_channel_parts(OpRegistry& registry);
void register_split(OpRegistry& registry);
void register_collectives(OpRegistry& registry);
void register_storage(OpRegistry& registry);

/// True if the op is one of the core's: of these, only those with Op::attends() and Op::position_rows() depend on the order of
/// tokens. For an op of a plugin, its traits state how it depends on it.
CONSIST_API bool is_core_op(const Op& op);

/// The letter of an expression's input (consist/expression.h).
inline std::string letter_of(std::size_t input) {
  return std::string(1, static_cast<char>('a' + input));
}

/// Base of the core's ops: a name, and checks that name the op in their message. None looks at the order of tokens but those that state
/// TokenOrder::fixed again.
class NamedOp : public Op {
 public:
  explicit NamedOp(std::string name) : name_(std::move(name)) {}
  std::string_view name() const noexcept override { return name_; }
  TokenOrder token_order() const noexcept override { return TokenOrder::any; }

 protected:
  [[noreturn]] void fail(const std::string& why) const { throw ProgramError("op '" + name_ + "': " + why); }

  void require(bool condition, const char* why) const {
    if (!condition) fail(why);
  }
  const TensorType& present(const Types& types, std::size_t index) const {
    if (index >= types.size() || !types[index]) fail("input " + std::to_string(index) + " is missing");
    return *types[index];
  }
  /// The type, checked to equal `expected`.
  void check_present(const Types& types, std::size_t index, const TensorType& expected) const {
    present(types, index);
    check(types, index, expected);
  }
  /// The same for an input that may be absent.
  void check(const Types& types, std::size_t index, const TensorType& expected) const {
    if (index >= types.size() || !types[index] || *types[index] == expected) return;
    fail("input " + std::to_string(index) + " is " + std::string(name_of(types[index]->dtype)) + types[index]->shape.text() +
         ", it must be " + std::string(name_of(expected.dtype)) + expected.shape.text());
  }
  /// For check_places(): throws ProgramError if the rank's slice of `tensor` splits a head of `head_dim` channels.
  void require_whole_heads(const Program& program, TensorId tensor, std::int64_t head_dim) const {
    const std::int64_t channels = program.local(tensor).last();
    if (channels > 0 && channels % head_dim == 0) return;
    fail("a rank holds " + std::to_string(channels) + " channels of '" + program[tensor].name + "', which are no whole heads of " +
         std::to_string(head_dim));
  }
  static bool has(const Types& types, std::size_t index) { return index < types.size() && types[index].has_value(); }

 private:
  std::string name_;
};

constexpr int channels = 2;  ///< dimension of an activation [batch, sequence, channels]
constexpr int out_dim = 0;   ///< dimensions of a weight [out, in]
constexpr int in_dim = 1;

/// The dtype in attribute "dtype".
inline DType dtype_attribute(const Attributes& attributes) {
  const std::optional<DType> type = dtype_of(attributes.string("dtype"));
  if (!type) throw ProgramError("attribute 'dtype' is '" + attributes.string("dtype") + "', which is no dtype");
  return *type;
}
/// Attribute "dtype" of an op that also makes a weight's gradient: it is absent, as that output then is, where the weight is frozen.
inline std::optional<DType> weight_gradient_dtype(const Attributes& attributes) {
  if (!attributes.has("dtype")) return std::nullopt;
  return dtype_attribute(attributes);
}
/// Attribute of an op that makes the gradients of an activation and a weight: only the weight's is wanted.
constexpr const char* only_weight = "only_weight";

inline AttributeValue dtype_value(DType type) {
  return std::string(name_of(type));
}

/// Fraction of the rows at a rank's experts that are in use, by which products of experts are rated: all of the capacity where no
/// prediction has stated less ("used_rows", core/plan/expert_load.h).
inline double rows_in_use(const Instruction& i) {
  return i.attributes.real_or("used_rows", 1);
}

/// True if a [batch, sequence, channels] tensor is sharded over tokens: along batch or sequence.
inline bool over_tokens(Placement placement) {
  return placement.is_shard(0) || placement.is_shard(1);
}

/// The placement of a sum over all tokens of something placed like `placement`.
inline Placement summed_over_tokens(Placement placement) {
  return over_tokens(placement) ? Placement::partial() : placement;
}

/// inputs[index] of an instruction, or no_tensor.
inline TensorId input_of(const Instruction& instruction, std::size_t index) {
  return index < instruction.inputs.size() ? instruction.inputs[index] : no_tensor;
}

}  // namespace consist::ops
