#include "core/lower/program_summary.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "consist/op.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/passes/gather_quantized.h"
#include "core/program/operands.h"
#include "core/program/printer.h"

namespace consist {
namespace {

bool makes_again(const Program& program, const Instruction& i) {
  return std::any_of(i.outputs.begin(), i.outputs.end(), [&](TensorId id) { return id != no_tensor && program[id].recomputed; });
}

std::string row(const char* format, const std::string& a, const std::string& b, const std::string& c, const std::string& d) {
  char text[512];
  std::snprintf(text, sizeof text, format, a.c_str(), b.c_str(), c.c_str(), d.c_str());
  return text;
}

}  // namespace

ProgramSummary summarize(const PreparedProgram& prepared) {
  const Program& program = prepared.program();
  ProgramSummary s;
  s.instructions = static_cast<std::int64_t>(program.instructions.size());
  s.gathers_nothing_quantized = gathers_nothing_quantized(program);
  s.tensors = static_cast<std::int64_t>(program.tensors.size());
  for (const Parameter& p : program.parameters) {
    const std::int64_t stored = program[p.tensor].shape.elements(), weights = program.shape_of(p).elements();
    const bool of_frozen_model = !p.model.empty();
    (of_frozen_model ? s.frozen_model_parameters : s.parameters) += weights;
    if (!of_frozen_model) s.rank_parameters += program.local(p.tensor).elements() * weights / stored;
  }

  std::map<std::string, OpSummary> ops;
  std::map<std::pair<std::string, std::string>, CollectiveSummary> collectives;
  for (const Instruction& i : program.instructions) {
    const Cost cost = i.op->cost(program, i);
    const std::string name(i.op->name());
    OpSummary& op = ops[name];
    op.op = name;
    ++op.count;
    op.flops += cost.flops;
    op.bytes += cost.bytes;
    s.flops += cost.flops;
    if (makes_again(program, i)) s.repeated_flops += cost.flops;
    const bool divides = !i.op->touches_memory() && i.attributes.has("parts");
    if (divides && i.tag.phase == Phase::forward)
      s.parts = "forward in " + std::to_string(i.attributes.integer("parts")) + " parts of each micro-batch (" +
                std::string(i.tag.inserted_by) + ")";
    const TensorId first = first_operand(i);
    const DType operand = cost.flops > 0 && first != no_tensor ? program[first].dtype : DType::u8;
    if (operand == DType::e4m3 || operand == DType::e5m2) s.fp8_flops += cost.flops;
    if (!i.op->is_collective()) continue;
    const AxisSet axes = i.attributes.axes("axis");
    const std::int64_t bytes = message_bytes(program, i);
    CollectiveSummary& c = collectives[{program.mesh.text(axes), name}];
    c.axes = program.mesh.text(axes);
    c.op = name;
    c.gathers = i.op->movement() == Movement::all_gather;
    ++c.count;
    c.bytes += bytes;
    c.bytes_sent += i.op->bytes_sent(bytes, program.mesh.size_of(axes));
  }
  for (auto& [name, op] : ops) s.ops.push_back(op);
  std::stable_sort(s.ops.begin(), s.ops.end(), [](const OpSummary& a, const OpSummary& b) {
    return std::tie(a.flops, a.bytes) > std::tie(b.flops, b.bytes);
  });
  for (auto& [key, c] : collectives) s.collectives.push_back(c);

  const MemoryPlan& plan = prepared.memory();
  s.planned_bytes = plan.bytes[0];
  s.planned_host_bytes = plan.bytes[1];
  s.memory = memory_by_role(program, plan, prepared.workspace_bytes());
  s.largest = largest_tensors(program, plan, 8);
  if (plan.peak_at >= 0) s.peak_at = to_text(program, plan.peak_at);
  return s;
}

std::string fp8_text(const ProgramSummary& s) {
  return si_text(s.fp8_flops) + "FLOP (" + percent_text(s.fp8_flops / s.flops, 1) + ") of them in fp8";
}

std::string summary_text(const ProgramSummary& s) {
  std::string text = "parameters " + si_text(static_cast<double>(s.parameters));
  if (s.rank_parameters != s.parameters) text += ", " + si_text(static_cast<double>(s.rank_parameters)) + " of them on this rank";
  if (s.frozen_model_parameters > 0) text += "   in frozen models " + si_text(static_cast<double>(s.frozen_model_parameters));
  text += "   instructions " + std::to_string(s.instructions) + "   " + si_text(s.flops) + "FLOP per rank and step";
  if (s.fp8_flops > 0) text += ", " + fp8_text(s);
  if (s.repeated_flops > 0)
    text += ", " + si_text(s.repeated_flops) + "FLOP (" + percent_text(s.repeated_flops / s.flops, 1) +
            ") of them repeated by --recompute";
  if (!s.parts.empty()) text += "\n" + s.parts;
  text += "\n\n";
  text += row("%-26s %10s %12s %12s\n", "OP", "COUNT", "FLOP", "BYTES");
  for (const OpSummary& op : s.ops) {
    text += row("%-26s %10s %12s %12s\n", op.op, std::to_string(op.count), si_text(op.flops),
                bytes_text(static_cast<std::int64_t>(op.bytes)));
  }
  text += "\nCollectives per rank and step";
  text += s.collectives.empty() ? ": none\n" : "\n" + row("%-26s %10s %12s %12s (ring)\n", "AXIS OP", "COUNT", "BYTES", "SENT");
  for (const CollectiveSummary& c : s.collectives) {
    text += row("%-26s %10s %12s %12s\n", c.axes + " " + c.op, std::to_string(c.count), bytes_text(c.bytes),
                bytes_text(c.bytes_sent));
  }
  text += "\nPlanned memory per rank: " + bytes_text(s.planned_bytes) + " on the device";
  if (s.planned_host_bytes > 0) text += ", " + bytes_text(s.planned_host_bytes) + " pinned on the host";
  text += "\nAt the peak, by role:\n";
  for (const MemoryShare& share : s.memory) text += "  " + row("%-20s %12s%s%s\n", share.what, bytes_text(share.bytes), "", "");
  text += "The largest tensors then:\n";
  for (const MemoryShare& share : s.largest) text += "  " + row("%12s  %s%s%s\n", bytes_text(share.bytes), share.what, "", "");
  return text + "The peak is at: " + s.peak_at + "\n";
}

std::string summary_json(const ProgramSummary& s) {
  nlohmann::ordered_json json{{"parameters", s.parameters},
                              {"rank_parameters", s.rank_parameters},
                              {"frozen_model_parameters", s.frozen_model_parameters},
                              {"instructions", s.instructions},
                              {"tensors", s.tensors},
                              {"flops_per_step_and_rank", s.flops},
                              {"fp8_flops_per_step_and_rank", s.fp8_flops},
                              {"repeated_flops_per_step_and_rank", s.repeated_flops},
                              {"parts", s.parts},
                              {"planned_bytes", s.planned_bytes},
                              {"planned_host_bytes", s.planned_host_bytes},
                              {"peak_at", s.peak_at}};
  for (const OpSummary& op : s.ops)
    json["ops"].push_back({{"op", op.op}, {"count", op.count}, {"flops", op.flops}, {"bytes", op.bytes}});
  json["collectives"] = nlohmann::ordered_json::array();
  for (const CollectiveSummary& c : s.collectives) {
    json["collectives"].push_back(
        {{"axis", c.axes}, {"op", c.op}, {"count", c.count}, {"bytes", c.bytes}, {"bytes_sent", c.bytes_sent}});
  }
  for (const MemoryShare& share : s.memory) json["memory_at_peak"].push_back({{"role", share.what}, {"bytes", share.bytes}});
  return json.dump(2);
}

}  // namespace consist
