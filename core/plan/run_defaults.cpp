#include "core/plan/run_defaults.h"

#include <algorithm>

#include "core/compile/reduced_step.h"
#include "core/config/option_value.h"

namespace consist {
namespace {

std::map<std::string, std::string> given_to(const std::string& strategy, const RunConfig& config) {
  const auto options = config.plugin_options.find(strategy);
  return options == config.plugin_options.end() ? std::map<std::string, std::string>() : options->second;
}

}  // namespace

RunFacts facts_of(const Parts& parts) {
  RunFacts facts{.layers = parts.architecture->sizes().layers};
  for (const StrategyUse& use : parts.uses) {
    if (makes_stages(use.strategy->axis())) facts.stages *= std::max(1, use.size);
  }
  return facts;
}

void make_again_with_defaults(Parts& parts, const RunConfig& config, PluginHost& host) {
  const RunFacts facts = facts_of(parts);
  for (std::size_t n = 0; n < parts.uses.size(); ++n) {
    const std::string& name = parts.uses[n].name;
    std::map<std::string, std::string> options = given_to(name, config);
    std::map<std::string, std::string> defaults = defaults_by_facts(host.option_table("strategy", name), options, facts);
    if (defaults.empty()) continue;
    options.merge(defaults);
    parts.strategies[n] = host.make<ParallelStrategy>("strategy", name, options);
    parts.uses[n].strategy = parts.strategies[n].get();
  }
}

std::vector<std::string> notes_on_defaults(const Parts& parts, const RunConfig& config, PluginHost& host) {
  std::vector<std::string> notes;
  const RunFacts facts = facts_of(parts);
  for (const StrategyUse& use : parts.uses) {
    const std::vector<OptionSpec> table = host.option_table("strategy", use.name);
    for (const auto& [option, value] : defaults_by_facts(table, given_to(use.name, config), facts))
      notes.push_back("--" + use.name + "." + option + " " + value + ", its default beside stages of a pipeline (" +
                      value_of(table, {}, option) + " without)");
  }
  return notes;
}

}  // namespace consist
