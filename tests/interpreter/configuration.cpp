#include "tests/interpreter/configuration.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/plan/plan.h"
#include "tests/golden_config.h"
#include "tests/temporary_folder.h"

namespace consist::interpreter {
namespace {

void set_option(RunConfig& config, const std::string& name, const std::string& value, std::string& layers,
                std::string& recompute) {
  if (name == "strategy")
    config.strategies = parse_strategies(value);
  else if (name == "ranks")
    config.ranks = std::stoi(value);
  else if (name == "precision")
    config.precision = value;
  else if (name == "accumulation")
    config.accumulation = std::stoi(value);
  else if (name == "global-batch")
    config.global_batch = std::stoi(value);
  else if (name == "sequence")
    config.sequence = std::stoi(value);
  else if (name == "optimizer")
    config.optimizer_plugin = value;
  else if (name == "weight-decay")
    config.optimizer.weight_decay = std::stod(value);
  else if (name == "max-norm")
    config.optimizer.max_norm = std::stod(value);
  else if (name == "freeze")
    config.freeze = parse_freeze(value, "");
  else if (name == "train-only")
    config.freeze = parse_freeze("", value);
  else if (name == "frozen-weights")
    config.frozen_weights = parse_weight_blocks(value, "--frozen-weights");
  else if (name == "adapter")
    config.adapter = value;
  else if (name == "pack")
    config.pack = value == "on";
  else if (name == "expert-load")
    config.expert_load = value;
  else if (name == "recompute")
    recompute = value;
  else if (name == "recompute-layers")
    layers = value;
  else if (name == "offload-activations")
    config.offload = parse_offload(value);
  else if (const std::size_t dot = name.find('.'); dot != std::string::npos)
    config.plugin_options[name.substr(0, dot)][name.substr(dot + 1)] = value;
  else
    throw UsageError("--" + name + " is no option that the interpreter's runs have");
}

}  // namespace

const std::string& model_folder(const ModelChoice& model) {
  static const TemporaryFolder folder;
  static std::map<ModelChoice, std::string> made;
  auto [known, added] = made.try_emplace(model, folder / std::to_string(made.size()));
  if (!added) return known->second;
  std::filesystem::create_directory(known->second);
  std::ofstream(known->second + "/config.json") << test::golden_config(model.golden, nlohmann::json::parse(model.changes));
  return known->second;
}

PluginHost& plugin_host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

RunConfig config_of(const ModelChoice& model, const std::vector<std::string>& words) {
  RunConfig config;
  config.model = model_folder(model);
  config.device = "cpu";
  config.dataset = "synthetic";
  config.sequence = 8;
  config.global_batch = 8;
  config.batch = 0;
  std::string layers, recompute = "none";
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos) throw UsageError("'" + word + "' is not like --name=value");
    set_option(config, word.substr(2, equals - 2), word.substr(equals + 1), layers, recompute);
  }
  // So that an update of AdamW, which Muon has, too, changes by as much as its gradient does.
  if (config.optimizer_plugin == "adamw" || config.optimizer_plugin == "muon")
    config.plugin_options[config.optimizer_plugin].try_emplace("epsilon", "1e-3");
  config.recompute = parse_recompute(recompute, layers);
  return config;
}

std::unique_ptr<RankPrograms> compile(RunConfig config, std::int64_t workspace) {
  const Plan plan = plan_run(std::move(config), plugin_host());
  RunConfig settled = plan.config();
  return compile(std::move(settled), plan.parts(), workspace);
}

}  // namespace consist::interpreter
