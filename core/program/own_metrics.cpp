#include "core/program/own_metrics.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string>

#include "consist/builder.h"
#include "consist/error.h"

namespace consist {
namespace {

/// Before the names of own metrics in a program: an input may have the same name.
constexpr std::string_view prefix = "metric.";
constexpr std::size_t longest_name = 48;

void check_name(const Program& program, const std::string& name) {
  const auto refuse = [&](const std::string& why) { throw ProgramError("the metric '" + name + "' " + why); };
  const auto is_legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || name.size() > longest_name || !std::ranges::all_of(name, is_legal) || name[0] < 'a')
    refuse("is no name: lower-case letters, digits and '_', a letter first, " + std::to_string(longest_name) + " at most");
  if (is_column_of_runs(name)) refuse("has the name of a column that a run records itself; choose another");
  if (std::ranges::any_of(program.outputs, [&](const StepOutput& output) { return output.name == std::string(prefix) + name; }))
    refuse("is reported twice; each number needs a name of its own");
}

}  // namespace

bool is_column_of_runs(std::string_view name) {
  static const std::set<std::string, std::less<>> columns{
      "step",     "loss",      "grad_norm",   "learning_rate",      "seconds",    "tokens",       "tokens_per_second",
      "aux_loss", "sequences", "expert_load", "samples_per_second", "perplexity", "data_seconds", "time"};
  return columns.contains(name) || name.starts_with("device_");
}

void Builder::metric(const std::string& name, TensorId sum, TensorId count, std::string description, std::string unit) {
  check_name(program_, name);
  const auto add = [&](StepOutput::Kind kind, TensorId tensor, const std::string& as) {
    const Tensor& given = program_[tensor];
    if (given.dtype != DType::f32 || given.shape.rank() != 0) {
      throw ProgramError("the metric '" + name + "' is given '" + given.name + "', " + std::string(name_of(given.dtype)) +
                         given.shape.text() + "; it must be an f32 scalar, such as layers::total makes it");
    }
    // A copy, to be summed in place: others may read the tensor, or another metric be divided by it.
    const TensorId copy = emit_one("cast", {tensor}, {{"dtype", std::string(name_of(DType::f32))}}, as);
    program_.outputs.push_back({kind, as, copy, unit, description});
  };
  const std::string full = std::string(prefix) + name;
  add(StepOutput::Kind::metric, sum, full);
  if (count != no_tensor) add(StepOutput::Kind::metric_count, count, full + ".count");
}

namespace {

/// By instruction: true if nothing but own metrics needs it.
std::vector<bool> needed_by_metrics_alone(const Program& program) {
  std::vector<bool> by_metrics(program.tensors.size(), false), by_others(program.tensors.size(), false);
  const auto need = [](std::vector<bool>& by, TensorId tensor) {
    if (tensor != no_tensor) by[static_cast<std::size_t>(tensor)] = true;
  };
  need(by_others, program.loss);
  for (const Router& router : program.routers) need(by_others, router.statistics);
  for (const StepOutput& output : program.outputs) {
    const bool own = output.kind == StepOutput::Kind::metric || output.kind == StepOutput::Kind::metric_count;
    need(own ? by_metrics : by_others, output.tensor);
  }
  std::vector<bool> alone(program.instructions.size(), false);
  for (std::size_t i = program.instructions.size(); i-- > 0;) {
    const Instruction& instruction = program.instructions[i];
    for (std::vector<bool>* by : {&by_metrics, &by_others}) {
      const bool needed = std::ranges::any_of(
          instruction.outputs, [by](TensorId output) { return output != no_tensor && (*by)[static_cast<std::size_t>(output)]; });
      if (!needed) continue;
      for (const TensorId input : instruction.inputs) need(*by, input);
      alone[i] = by == &by_metrics;
    }
  }
  return alone;
}

}  // namespace

void place_own_metrics(Program& forward) {
  if (forward.output(StepOutput::Kind::metric) == no_tensor) return;
  const std::vector<bool> alone = needed_by_metrics_alone(forward);
  constexpr std::size_t nowhere = 0;
  std::vector<std::size_t> place(forward.tensors.size(), nowhere);  // 1 + that of what makes it, else of the first that reads it
  const auto put = [&](const std::vector<TensorId>& tensors, std::size_t at) {
    for (const TensorId tensor : tensors) {
      if (tensor == no_tensor) continue;
      std::size_t& known = place[static_cast<std::size_t>(tensor)];
      if (known == nowhere) known = at;
    }
  };
  const std::size_t count = forward.instructions.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (alone[i]) continue;
    put(forward.instructions[i].outputs, i + 1);
    put(forward.instructions[i].inputs, i + 1);
  }
  std::vector<std::vector<Instruction>> behind(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    if (!alone[i]) continue;
    Instruction& instruction = forward.instructions[i];
    std::size_t at = nowhere;
    for (const TensorId input : instruction.inputs) {
      if (input != no_tensor) at = std::max(at, place[static_cast<std::size_t>(input)]);
    }
    put(instruction.outputs, at);
    if (at != nowhere) instruction.tag = forward.instructions[at - 1].tag;
    behind[at].push_back(std::move(instruction));
  }
  std::vector<Instruction> placed = std::move(behind[nowhere]);
  for (std::size_t i = 0; i < count; ++i) {
    if (!alone[i]) placed.push_back(std::move(forward.instructions[i]));
    std::ranges::move(behind[i + 1], std::back_inserter(placed));
  }
  forward.instructions = std::move(placed);
}

std::vector<OwnMetric> own_metrics(const Program& program) {
  std::vector<OwnMetric> metrics;
  for (const StepOutput& output : program.outputs) {
    if (output.kind == StepOutput::Kind::metric)
      metrics.push_back({output.name.substr(prefix.size()), output.unit, output.description});
  }
  return metrics;
}

OwnMetricSums::OwnMetricSums(const Program& program) {
  for (const StepOutput& output : program.outputs) {
    if (output.kind == StepOutput::Kind::metric) sums_.push_back({.name = output.name, .count_name = ""});
    if (output.kind == StepOutput::Kind::metric_count) sums_.back().count_name = output.name;
  }
}

void OwnMetricSums::add(const std::function<double(std::string_view)>& read) {
  for (Sum& sum : sums_) {
    sum.sum += read(sum.name);
    if (!sum.count_name.empty()) sum.count += read(sum.count_name);
  }
}

std::vector<OwnMetricValue> OwnMetricSums::values() const {
  std::vector<OwnMetricValue> values;
  for (const Sum& sum : sums_) {
    const double mean = sum.count != 0 ? sum.sum / sum.count : std::numeric_limits<double>::quiet_NaN();
    values.push_back({sum.name.substr(prefix.size()), sum.count_name.empty() ? sum.sum : mean});
  }
  return values;
}

}  // namespace consist
