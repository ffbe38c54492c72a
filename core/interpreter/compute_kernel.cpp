#include "core/interpreter/compute_kernel.h"

#include <cstring>
#include <vector>

#include "consist/bfloat16.h"
#include "consist/error.h"
#include "consist/float8.h"
#include "consist/kernel.h"
#include "consist/op.h"
#include "core/plugin/kernel_sets.h"

namespace consist::interpreter {
namespace {

constexpr std::size_t alignment = 256;

/// Memory of one operand; what updates an operand in place shares its memory.
struct Operand {
  std::vector<unsigned char> bytes;
  Buffer buffer;

  void allocate(DType dtype, const Shape& shape) {
    const std::size_t size = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
    bytes.resize(size + alignment);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    buffer.data = bytes.data() + (alignment - address % alignment) % alignment;
    buffer.dtype = dtype;
    buffer.shape = shape;
  }
};

void absent(Buffer& buffer) {
  buffer.dtype = DType::u8;
  buffer.shape = {0};
}

void encode(const std::vector<double>& values, const Buffer& to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (to.dtype) {
      case DType::f32: to.as<float>()[i] = static_cast<float>(values[i]); break;
      case DType::bf16: to.as<std::uint16_t>()[i] = to_bfloat16(static_cast<float>(values[i])); break;
      case DType::i32: to.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]); break;
      case DType::e4m3:
        to.as<std::uint8_t>()[i] = to_float8<e4m3_format>(static_cast<float>(values[i]));
        break;
      case DType::e5m2:
        to.as<std::uint8_t>()[i] = to_float8<e5m2_format>(static_cast<float>(values[i]));
        break;
      case DType::u8:
        to.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(values[i]);
        break;
    }
  }
}

double decoded(const Buffer& from, std::size_t i) {
  switch (from.dtype) {
    case DType::f32: return static_cast<double>(from.as<float>()[i]);
    case DType::bf16: return static_cast<double>(from_bfloat16(from.as<std::uint16_t>()[i]));
    case DType::i32: return from.as<std::int32_t>()[i];
    case DType::e4m3:
      return static_cast<double>(from_float8<e4m3_format>(from.as<std::uint8_t>()[i]));
    case DType::e5m2:
      return static_cast<double>(from_float8<e5m2_format>(from.as<std::uint8_t>()[i]));
    case DType::u8:
      return from.as<std::uint8_t>()[i];
  }
  throw ProgramError("an op of a plugin writes an unknown dtype");
}

/// The operands of one instruction as a kernel takes them.
class Call {
 public:
  /// `exact`: floats are f32 whatever the program's dtypes.
  Call(Arena& arena, const Instruction& i, bool exact) : arena_(arena), i_(i), program_(arena.planned().program), exact_(exact) {
    inputs_.resize(i.inputs.size());
    outputs_.resize(i.outputs.size());
    for (std::size_t k = 0; k < i.inputs.size(); ++k) place(inputs_[k], i.inputs[k], input_origins_);
    for (std::size_t k = 0; k < i.outputs.size(); ++k) place(outputs_[k], i.outputs[k], output_origins_);
    for (std::size_t k = 0; k < i.outputs.size(); ++k) {
      const int slot = i.op->updates_in_place(static_cast<int>(k));
      if (slot < 0 || static_cast<std::size_t>(slot) >= i.inputs.size() || i.inputs[static_cast<std::size_t>(slot)] == no_tensor) continue;
      outputs_[k].buffer.data = inputs_[static_cast<std::size_t>(slot)].buffer.data;
    }
  }

  std::unique_ptr<Kernel> kernel() const {
    const std::vector<Buffer> in = buffers(inputs_), out = buffers(outputs_);
    return kernel_sets().make({.op = i_.op->name(),
                               .inputs = in,
                               .outputs = out,
                               .attributes = i_.attributes,
                               .input_origins = input_origins_,
                               .output_origins = output_origins_,
                               .device = "cpu"});
  }

  void run(Kernel& kernel) {
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      if (i_.inputs[k] != no_tensor) encode(arena_.read(i_.inputs[k]).data, inputs_[k].buffer);
    }
    Operand scratch;
    scratch.allocate(DType::u8, {kernel.workspace_bytes()});
    kernel.launch(buffers(inputs_), buffers(outputs_), scratch.buffer.data, nullptr);
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      if (i_.outputs[k] == no_tensor) continue;
      reference::Value value = reference::zeros(DType::f32, outputs_[k].buffer.shape);
      for (std::size_t n = 0; n < value.data.size(); ++n) value.data[n] = decoded(outputs_[k].buffer, n);
      arena_.write(i_.outputs[k], value);
    }
  }

 private:
  void place(Operand& operand, TensorId id, std::vector<Origin>& origins) {
    if (id == no_tensor) {
      absent(operand.buffer);
      origins.push_back({});
      return;
    }
    const LocalPart part = program_.part(id);
    const DType dtype = program_[id].dtype;
    operand.allocate(exact_ && dtype == DType::bf16 ? DType::f32 : dtype, part.shape);
    origins.push_back(part.origin);
  }
  static std::vector<Buffer> buffers(const std::vector<Operand>& operands) {
    std::vector<Buffer> buffers;
    for (const Operand& operand : operands) buffers.push_back(operand.buffer);
    return buffers;
  }

  Arena& arena_;
  const Instruction& i_;
  const Program& program_;
  bool exact_;
  std::vector<Operand> inputs_, outputs_;
  std::vector<Origin> input_origins_, output_origins_;
};

}  // namespace

bool compute_by_kernel(Arena& arena, InstructionId id) {
  const Instruction& i = arena.planned().program.instructions[static_cast<std::size_t>(id)];
  for (const bool exact : {true, false}) {
    Call call(arena, i, exact);
    if (const std::unique_ptr<Kernel> kernel = call.kernel()) {
      call.run(*kernel);
      return true;
    }
  }
  return false;
}

}  // namespace consist::interpreter
