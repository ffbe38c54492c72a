#include "core/cost/step_errors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/op.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/cost/file_object.h"

namespace consist {
namespace {

constexpr std::string_view context = "context", experts = "experts", fp8 = "fp8", offload = "offload";
constexpr std::string_view within = " within a node", between = " between nodes";

bool same_rates(const LinkRates& a, const LinkRates& b) {
  return std::equal(a.curves.begin(), a.curves.end(), b.curves.begin(), b.curves.end(),
                    [](const LinkRates::Curve& one, const LinkRates::Curve& other) {
                      return one.op == other.op && one.members == other.members &&
                             std::equal(one.rates.begin(), one.rates.end(), other.rates.begin(), other.rates.end(),
                                        [](const auto& p, const auto& q) { return p.bytes == q.bytes && p.rate == q.rate; });
                    });
}

/// The transports with the links of the axis: its own, or those of the machine where it has none; then others of the file, since
/// `efa` goes over NVLink within a node. Those that go nowhere else come first.
std::vector<std::string> transports_over(const CostModel& costs, int axis) {
  const Machine& machine = costs.machine();
  const bool crosses = costs.crosses_nodes(axis);
  std::vector<std::string> all;
  if (!costs.transport(axis).empty()) all.push_back(costs.transport(axis));
  if (!costs.knows_links(axis)) return all;
  const auto links_in = [&](const TransportLinks& links) -> const std::optional<LinkRates>& {
    return crosses ? links.network : links.node;
  };
  const TransportLinks* const own = machine.find_transport(costs.transport(axis));
  const LinkRates& of_axis = own != nullptr ? *links_in(*own) : crosses ? machine.network : machine.node;
  for (const bool alone : {true, false}) {
    for (const TransportLinks& links : machine.transports) {
      const bool elsewhere = crosses ? links.node.has_value() : links.network.has_value();
      if (links_in(links) && elsewhere != alone && same_rates(*links_in(links), of_axis)) all.push_back(links.transport);
    }
  }
  return all;
}

const StepError* find_kind(const StepErrors& errors, std::string_view kind) {
  const auto found = std::find_if(errors.begin(), errors.end(), [&](const StepError& error) { return error.kind == kind; });
  return found == errors.end() ? nullptr : &*found;
}

/// By the first of the transports with these links of which steps were measured, else by the first.
std::string links_kind_of(const CostModel& costs, int axis, const StepErrors& errors) {
  const bool crosses = costs.crosses_nodes(axis);
  const std::vector<std::string> transports = transports_over(costs, axis);
  for (const std::string& transport : transports) {
    if (find_kind(errors, links_kind(transport, crosses)) != nullptr) return links_kind(transport, crosses);
  }
  return links_kind(transports.empty() ? std::string_view() : transports.front(), crosses);
}

/// True if ranks hold shards of the sequences that the trainer writes.
bool shares_sequences(const Program& program) {
  constexpr int sequence_dim = 1;
  return std::any_of(program.tensors.begin(), program.tensors.end(), [&](const Tensor& tensor) {
    if (tensor.role != Role::input) return false;
    for (int axis = 0; axis < program.mesh.axes(); ++axis) {
      if (tensor.placements[axis].is_shard(sequence_dim)) return true;
    }
    return false;
  });
}

bool has_float8(const Program& program) {
  return std::any_of(program.tensors.begin(), program.tensors.end(), [](const Tensor& t) { return is_float8(t.dtype); });
}

bool copies(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& i) { return i.queue.is_copy(); });
}

bool is_kind(const std::string& kind) {
  const std::array plain{one_device, context, experts, fp8, offload};
  return std::find(plain.begin(), plain.end(), kind) != plain.end() || is_links_kind(kind, false) || is_links_kind(kind, true);
}

/// "over nvlink within a node", "with experts", "on one device".
std::string with_preposition(const std::string& kind) {
  if (kind == one_device) return "on " + kind;
  const bool is_of_links = is_links_kind(kind, false) || is_links_kind(kind, true);
  return (is_of_links ? "over " : "with ") + (kind == context ? "context parallelism" : kind);
}

bool is_measured(const StepError& error) {
  return error.steps >= least_measured_steps;
}

}  // namespace

std::string links_kind(std::string_view transport, bool crosses_nodes) {
  return std::string(transport.empty() ? "no named transport" : transport) + std::string(crosses_nodes ? between : within);
}

bool is_links_kind(std::string_view kind, bool crosses_nodes) {
  const std::string_view where = crosses_nodes ? between : within;
  return kind.size() > where.size() && kind.ends_with(where);
}

std::vector<std::string> kinds_of(std::span<const Program* const> stages, const StepErrors& errors) {
  std::vector<std::string> kinds{std::string(one_device)};
  const Program& first = *stages.front();
  for (int axis = 0; axis < first.mesh.axes(); ++axis) {
    const std::string kind = links_kind_of(costs_of(first), axis, errors);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  const auto add = [&](std::string_view kind, auto holds) {
    if (std::any_of(stages.begin(), stages.end(), [&](const Program* stage) { return holds(*stage); })) kinds.emplace_back(kind);
  };
  add(context, shares_sequences);
  add(experts, [](const Program& stage) { return !stage.routers.empty(); });
  add(fp8, has_float8);
  add(offload, copies);
  return kinds;
}

bool counts_for(std::string_view kind, std::span<const std::string> kinds) {
  const auto level = [](std::string_view k) {
    return k == one_device ? 0 : is_links_kind(k, false) || is_links_kind(k, true) ? 1 : 2;
  };
  return std::all_of(kinds.begin(), kinds.end(), [&](const std::string& other) { return level(other) <= level(kind); });
}

ErrorBar error_bar(const StepErrors& errors, std::span<const std::string> kinds) {
  ErrorBar bar;
  for (const std::string& kind : kinds) {
    const StepError* const known = find_kind(errors, kind);
    bar.kinds.push_back(known == nullptr ? StepError{kind, {}, 0} : *known);
  }
  if (!std::all_of(bar.kinds.begin(), bar.kinds.end(), is_measured)) return bar;
  const StepError* const device = find_kind(errors, one_device);
  const auto square = [](const StepError& error) { return error.error.value * error.error.value; };
  const double of_device = device == nullptr ? 0 : square(*device);
  double sum = of_device;
  for (const StepError& error : bar.kinds) sum += std::max(0.0, square(error) - of_device);
  bar.value = std::sqrt(sum);
  return bar;
}

ErrorBar error_bar(const StepErrors& errors, std::span<const Program* const> stages) {
  const std::vector<std::string> kinds = kinds_of(stages, errors);
  return error_bar(errors, kinds);
}

std::string why_unknown(const ErrorBar& bar) {
  std::string text;
  for (const StepError& error : bar.kinds) {
    if (is_measured(error)) continue;
    text += text.empty() ? "" : ", ";
    text += error.steps == 0 ? "no step " + with_preposition(error.kind) + " was measured"
                             : "only " + std::to_string(error.steps) + " steps " + with_preposition(error.kind) +
                                   " were measured (" + std::to_string(least_measured_steps) + " are needed)";
  }
  return text;
}

std::string text_of(const ErrorBar& bar) {
  std::string text = bar.value ? "±" + percent_text(*bar.value, 1) + ": " : "not known: " + why_unknown(bar);
  bool first = true;
  for (const StepError& error : bar.kinds) {
    if (!is_measured(error)) continue;
    text += first ? (bar.value ? "" : "; ") : ", ";
    text += error.kind + " ±" + percent_text(error.error.value, 1) + " (" + std::to_string(error.steps) +
            (first ? " measured steps)" : ")");
    first = false;
  }
  return text;
}

StepErrors step_errors_from(FileObject& object) {
  if (!object.has("step_errors")) {
    const Figure figure = object.has("step_error") ? object.figure("step_error", 0) : Figure();
    return figure.value > 0 ? StepErrors{{std::string(one_device), figure, least_measured_steps}} : StepErrors();
  }
  StepErrors all;
  for (const nlohmann::json& json : object.list("step_errors")) {
    FileObject one(json, item(object.name("step_errors"), all.size()));
    StepError error{.kind = one.text("kind"), .error = {one.number("value", 0, true), one.source()}};
    if (!is_kind(error.kind))
      throw DataError(one.name("kind") + " is " + shown(nlohmann::json(error.kind)) +
                      "; it can be one device, context, experts, fp8, offload, or links such as \"nvlink within a node\" or "
                      "\"socket between nodes\"");
    for (const StepError& other : all) {
      if (other.kind == error.kind) throw DataError(one.name("kind") + ": " + error.kind + " stands in the list twice");
    }
    const double steps = one.number("steps", 1);
    if (steps != std::floor(steps) || steps > 1e9)
      throw DataError(one.name("steps") + " must be a whole number, not " + shown(json["steps"]));
    error.steps = static_cast<int>(steps);
    one.finish();
    all.push_back(std::move(error));
  }
  return all;
}

StepErrors step_errors_from_json(std::string_view text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name, {.repeated = JsonRules::Repeated::refused, .comments = true});
  FileObject object(json, name);
  return step_errors_from(object);
}

Figure error_of_device(const StepErrors& errors) {
  const StepError* const device = find_kind(errors, one_device);
  return device == nullptr ? Figure() : device->error;
}

nlohmann::ordered_json json_of(const StepErrors& errors) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const StepError& error : errors) {
    json.push_back(
        {{"kind", error.kind}, {"value", error.error.value}, {"steps", error.steps}, {"source", name_of(error.error.source)}});
  }
  return json;
}

}  // namespace consist
