#include "launch/compare/programs.h"

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "consist/error.h"
#include "core/config/option_table.h"
#include "core/program/printer.h"

namespace consist::launch {
namespace {

using nlohmann::json;

json config_of(const RunConfig& config) {
  return json::parse(config.to_json());
}

}  // namespace

std::string text_without_layout(const RunConfig& config) {
  json all = config_of(config);
  json& options = all["plugin_options"];
  for (const StrategyChoice& strategy : config.strategies) options.erase(strategy.name);
  for (const std::string& transport : named_transports(config)) options.erase(transport);
  for (const char* key : {"strategy", "transport"}) all.erase(key);
  for (const RunOption& option : run_option_table()) {
    if (is_place_of_results(option)) all.erase(option.spec.name);
  }
  return all.dump();
}

std::string text_of_programs(const Plan& plan) {
  const RunConfig& config = plan.config();
  const Layout& layout = plan.layout();
  std::string text;
  const json options = config_of(config)["plugin_options"];
  for (int axis = 0; axis < layout.mesh.axes(); ++axis) {
    const AxisTransports& transports = plan.transports().by_axis[static_cast<std::size_t>(axis)];
    text += std::to_string(layout.mesh.size_of(axis));
    for (const std::string& transport : {transports.within, transports.across})
      text += " over " + transport + (options.contains(transport) ? options[transport].dump() : "");
    text += "\n";
  }
  for (int axis : layout.batch_axes) text += "batch over " + std::to_string(axis) + "\n";
  const Program first = plan.step(0);
  const std::vector<int> ranks = first.stage_axis < 0 ? std::vector<int>{0} : first.mesh.group(0, first.stage_axis);
  for (int rank : ranks) {
    text += to_text(rank == 0 ? first : plan.step(rank));
    if (const std::optional<Program> evaluation = plan.evaluation(rank)) text += to_text(*evaluation);
  }
  return text;
}

std::vector<std::size_t> first_of_equals(std::size_t count, const std::vector<CheckedRow>& checked) {
  std::vector<std::size_t> first(count);
  std::iota(first.begin(), first.end(), 0);
  std::map<std::string, std::vector<const CheckedRow*>> groups;
  for (const CheckedRow& row : checked) groups[text_without_layout(row.plan.config())].push_back(&row);
  for (const auto& [text, group] : groups) {
    std::map<std::string, std::size_t> known;
    for (const CheckedRow* row : group) {
      if (group.size() == 1) continue;
      try {
        first[row->row] = known.try_emplace(text_of_programs(row->plan), row->row).first->second;
      } catch (const Error&) {
        // It is refused with its reason when its turn comes.
      }
    }
  }
  return first;
}

}  // namespace consist::launch
