#include "core/runtime/device_options.h"

#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/checkpoint/checkpoint_reader.h"

namespace consist {
namespace {

using Json = nlohmann::json;
using ByPlugin = std::map<std::string, std::map<std::string, std::string>>;

constexpr const char* key = "device.options";

/// What the run settled that wrote the newest readable checkpoint. Whether a checkpoint is sound is judged when it is loaded.
ByPlugin settled_before(const RunConfig& config) {
  if (!config.resume || config.checkpoint.empty()) return {};
  for (const CheckpointPlace& place : list_checkpoints(config.checkpoint)) {
    try {
      const Json then = Json::parse(Checkpoint(place.path).state().config);
      return then.value("chosen_options", ByPlugin{});
    } catch (const std::exception&) {
      continue;
    }
  }
  return {};
}

/// What this run's own options do not say.
void drop_what_is_given(std::map<std::string, std::string>& settled, const RunConfig& config, const std::string& device) {
  const auto given = config.plugin_options.find(device);
  if (given == config.plugin_options.end()) return;
  std::erase_if(settled, [&](const auto& option) { return given->second.contains(option.first); });
}

}  // namespace

std::vector<std::string> open_device(Parts& parts, RunConfig& config, PluginHost& host, Job& job) {
  std::vector<std::string> notes;
  if (job.rank() != 0) {
    // Opened while rank 0's is: drivers take seconds to start. Another one is made only where something was settled.
    add_device(parts, config, host);
    parts.device->open(job.local_rank(), job.local_size());
    config.chosen_options = Json::parse(job.get(key, job.timeout())).get<ByPlugin>();
    if (config.chosen_options.empty()) return notes;
    add_device(parts, config, host);
    parts.device->open(job.local_rank(), job.local_size());
    return notes;
  }
  config.chosen_options = settled_before(config);
  for (auto& [device, options] : config.chosen_options) {
    drop_what_is_given(options, config, device);
    for (const auto& [option, value] : options)
      notes.push_back("--" + device + "." + option + " " + value + ", as the run settled that is resumed");
  }
  std::erase_if(config.chosen_options, [](const auto& device) { return device.second.empty(); });
  add_device(parts, config, host);
  std::erase_if(config.chosen_options, [&](const auto& device) { return device.first != parts.device_name; });
  parts.device->open(job.local_rank(), job.local_size());
  if (config.chosen_options.empty()) {
    const ModelSizes sizes = parts.architecture->sizes();
    const auto chosen = parts.device->choose_options(parts.precision->dtypes().parameter, config.batch * config.sequence,
                                                     sizes.ffn, sizes.hidden);
    if (!chosen.empty()) config.chosen_options[parts.device_name] = chosen;
    notes = parts.device->info().notes;
  }
  if (job.size() > 1) job.put(key, Json(config.chosen_options).dump());
  return notes;
}

}  // namespace consist
