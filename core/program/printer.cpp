#include "core/program/printer.h"

#include <charconv>

#include "consist/op.h"
#include "core/program/operands.h"

namespace consist {
namespace {

std::string number(double value) {
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : "?";
}

std::string value_text(const AttributeValue& value, const Mesh& mesh) {
  if (const auto* axes = std::get_if<AxisSet>(&value)) return mesh.text(*axes);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return number(*real);
  return std::get<std::string>(value);
}

std::string reference(TensorId id) {
  return id == no_tensor ? "_" : "%" + std::to_string(id);
}

std::string type_text(const Program& program, TensorId id) {
  const Tensor& t = program[id];
  return std::string(name_of(t.dtype)) + t.shape.text() + t.placements.text(program.mesh);
}

std::string storage_text(const Program& program, TensorId id) {
  const Tensor& t = program[id];
  if (t.storage == id) return "";
  return "@" + std::to_string(t.storage) + (t.offset == 0 ? "" : "+" + std::to_string(t.offset)) +
         (t.row_stride == 0 ? "" : "/" + std::to_string(t.row_stride));
}

std::string list(const std::vector<TensorId>& ids) {
  std::string text;
  for (TensorId id : ids) text += (text.empty() ? "" : ", ") + reference(id);
  return text;
}

}  // namespace

std::string to_text(const Program& program, InstructionId index, const PrintOptions& options) {
  const Instruction& i = program.instructions.at(static_cast<std::size_t>(index));
  std::string text = std::to_string(index) + " " + text_of(i.queue, program.mesh) + " ";
  std::string outputs, types;
  for (TensorId output : i.outputs) {
    outputs += (outputs.empty() ? "" : ", ") + reference(output);
    if (output == no_tensor) continue;
    types +=
        (types.empty() ? "" : ", ") + program[output].name + " " + type_text(program, output) + storage_text(program, output);
  }
  text += outputs + (outputs.empty() ? "" : " = ") + std::string(i.op->name()) + "(" + list(i.inputs) + ")";
  std::string attributes;
  for (const auto& [name, value] : i.attributes.all())
    attributes += (attributes.empty() ? "" : " ") + name + "=" + value_text(value, program.mesh);
  if (!attributes.empty()) text += " {" + attributes + "}";
  text += (types.empty() ? "" : " : " + types) + " | " + std::string(name_of(i.tag.phase));
  if (i.tag.layer >= 0) text += " layer " + std::to_string(i.tag.layer);
  if (i.tag.micro_batch >= 0) text += " micro " + std::to_string(i.tag.micro_batch);
  if (i.tag.inserted_by != nullptr && *i.tag.inserted_by != '\0') text += std::string(" by ") + i.tag.inserted_by;
  if (options.bytes && i.op->is_collective()) text += " bytes " + std::to_string(message_bytes(program, i));
  if (options.waits && !i.waits.empty()) {
    text += " waits";
    for (InstructionId wait : i.waits) text += " " + std::to_string(wait);
  }
  return text;
}

std::string to_text(const Program& program, const PrintOptions& options) {
  std::string text = "program";
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    text += " " + program.mesh.axis(axis).name + "=" + std::to_string(program.mesh.size_of(axis));
  }
  if (program.zigzag > 0) text += ", sequence in zigzag order over " + std::to_string(program.zigzag);
  text += "\n";
  std::vector<bool> defined(program.tensors.size(), false), used(program.tensors.size(), false);
  for (const Instruction& i : program.instructions) {
    for (TensorId input : i.inputs) {
      if (input != no_tensor) used[static_cast<std::size_t>(input)] = true;
    }
    for (TensorId output : i.outputs) {
      if (output == no_tensor) continue;
      defined[static_cast<std::size_t>(output)] = true;
      used[static_cast<std::size_t>(program[output].storage)] = true;
    }
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    if (defined[t] || (!used[t] && !program.tensors[t].state)) continue;
    const auto id = static_cast<TensorId>(t);
    const Tensor& tensor = program[id];
    const char* kind = tensor.state ? "state" : tensor.role == Role::input ? "input" : "storage";
    text += std::string(kind) + " %" + std::to_string(id) + " " + tensor.name + " " + type_text(program, id) +
            storage_text(program, id) + " " + std::string(name_of(tensor.role)) +
            (tensor.space == MemorySpace::host ? " host" : "") + "\n";
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    text += to_text(program, static_cast<InstructionId>(i), options) + "\n";
  return text;
}

}  // namespace consist
