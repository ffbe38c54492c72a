#include "core/program/content.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <variant>

namespace consist {
namespace {

/// Multiplies and folds: every bit of what came before and of the value reaches the whole state.
class Hash {
 public:
  void add(std::uint64_t value) noexcept {
    const auto product = static_cast<unsigned __int128>(state_ ^ value) * odd;
    state_ = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64) ^ (value << 32 | value >> 32);
    state_ += odd;
  }
  template <typename Number>
  requires std::is_integral_v<Number> || std::is_enum_v<Number>
  void add(Number value) noexcept { add(static_cast<std::uint64_t>(value)); }
  void add(const void* pointer) noexcept { add(static_cast<std::uint64_t>(std::bit_cast<std::uintptr_t>(pointer))); }
  void add(std::string_view text) noexcept {
    add(static_cast<std::uint64_t>(text.size()));
    for (; text.size() >= sizeof(std::uint64_t); text.remove_prefix(sizeof(std::uint64_t))) add(word_of(text));
    add(word_of(text));
  }
  std::uint64_t value() const noexcept { return state_; }

 private:
  /// The first eight bytes, or all with zeros behind them.
  static std::uint64_t word_of(std::string_view text) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), std::min(text.size(), sizeof word));
    return word;
  }

  static constexpr std::uint64_t odd = 0x9e3779b97f4a7c15U;
  std::uint64_t state_ = odd;
};

// Tensors and instructions have a hash each, which goes into the program's: the processor works on several at a time.

std::uint64_t hash_of(const Tensor& t, int axes) {
  Hash hash;
  hash.add(std::string_view(t.name));
  hash.add(static_cast<std::uint64_t>(t.dtype) | static_cast<std::uint64_t>(t.role) << 8 |
           static_cast<std::uint64_t>(t.space) << 16 | static_cast<std::uint64_t>(t.state_kind) << 24 |
           std::uint64_t{t.state} << 32 | std::uint64_t{t.recomputed} << 33);
  hash.add(t.shape.rank());
  for (int dim = 0; dim < t.shape.rank(); ++dim) hash.add(t.shape[dim]);
  for (int axis = 0; axis < axes; ++axis) {
    const Placement p = t.placements[axis];
    hash.add((p.is_shard() ? 8 + p.dim() : 0) | int{p.is_partial()} | int{p.is_flat()} << 1);
  }
  hash.add(t.storage);
  hash.add(t.offset);
  hash.add(t.row_stride);
  return hash.value();
}

std::uint64_t hash_of(const Instruction& i) {
  Hash hash;
  hash.add(static_cast<const void*>(i.op));
  for (const auto* tensors : {&i.inputs, &i.outputs}) {
    hash.add(tensors->size());
    for (TensorId id : *tensors) hash.add(id);
  }
  hash.add(i.attributes.all().size());
  for (const auto& [name, value] : i.attributes.all()) {
    hash.add(std::string_view(name));
    hash.add(value.index());
    if (const auto* integer = std::get_if<std::int64_t>(&value)) hash.add(*integer);
    if (const auto* real = std::get_if<double>(&value)) hash.add(std::bit_cast<std::uint64_t>(*real));
    if (const auto* text = std::get_if<std::string>(&value)) hash.add(std::string_view(*text));
    if (const auto* axes = std::get_if<AxisSet>(&value)) hash.add(axes->bits());
  }
  hash.add(static_cast<std::uint64_t>(i.queue.kind()) | static_cast<std::uint64_t>(i.queue.lane()) << 8);
  hash.add(i.queue.axes().bits());
  hash.add(static_cast<std::uint64_t>(i.tag.phase) | static_cast<std::uint64_t>(static_cast<std::uint16_t>(i.tag.layer)) << 8 |
           static_cast<std::uint64_t>(static_cast<std::uint16_t>(i.tag.micro_batch)) << 24 |
           static_cast<std::uint64_t>(static_cast<std::uint16_t>(i.tag.stage)) << 40);
  hash.add(static_cast<const void*>(i.tag.inserted_by));
  hash.add(i.waits.size());
  for (InstructionId wait : i.waits) hash.add(wait);
  return hash.value();
}

void add(Hash& hash, const Parameter& p) {
  hash.add(std::string_view(p.name));
  for (TensorId id : {p.tensor, p.gradient, p.master}) hash.add(id);
  hash.add(p.tied_replica);
  hash.add(p.trainable);
  hash.add(p.states.size());
  for (const ParameterState& state : p.states) {
    hash.add(std::string_view(state.name));
    hash.add(state.tensor);
  }
}

}  // namespace

namespace {

Hash hash_without_rank(const Program& program) {
  Hash hash;
  const int axes = program.mesh.axes();
  for (int axis = 0; axis < axes; ++axis) {
    hash.add(std::string_view(program.mesh.axis(axis).name));
    hash.add(program.mesh.size_of(axis));
  }
  hash.add(program.loss);
  hash.add(program.micro_batches);
  hash.add(program.stage_axis);
  hash.add(program.zigzag);
  hash.add(program.tensors.size());
  for (const Tensor& tensor : program.tensors) hash.add(hash_of(tensor, axes));
  hash.add(program.instructions.size());
  for (const Instruction& instruction : program.instructions) hash.add(hash_of(instruction));
  hash.add(program.parameters.size());
  for (const Parameter& parameter : program.parameters) add(hash, parameter);
  hash.add(program.constants.size());
  for (const Constant& constant : program.constants) {
    hash.add(constant.tensor);
    hash.add(static_cast<bool>(constant.fill));
  }
  return hash;
}

}  // namespace

std::uint64_t content_of(const Program& program) {
  Hash hash = hash_without_rank(program);
  hash.add(program.rank);
  return hash.value();
}

std::uint64_t content_of_any_rank(const Program& program) {
  return hash_without_rank(program).value();
}

}  // namespace consist
