#include "core/program/own_metrics.h"

#include <algorithm>
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
