#include "core/connect/device_options.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "core/checkpoint/checkpoint_reader.h"

namespace consist {
namespace {

using nlohmann::json;
using ByPlugin = std::map<std::string, std::map<std::string, std::string>>;

constexpr const char* key = "device.options";

/// Options of the run that wrote the newest readable checkpoint: those that it was given (`told`) and those that its device had
/// chosen (`settled`). Loading a checkpoint shows if it is sound.
struct Before {
  ByPlugin told, settled;
};
Before run_before(const RunConfig& config) {
  if (!config.resume || config.checkpoint.empty()) return {};
  for (const CheckpointPlace& place : list_checkpoints(config.checkpoint)) {
    try {
      const json then = json::parse(Checkpoint(place.path).state().config);
      return {then.value("plugin_options", ByPlugin{}), then.value("chosen_options", ByPlugin{})};
    } catch (const std::exception&) {
      continue;
    }
  }
  return {};
}

bool leaves_open(const std::string& value) {
  return value == "auto";
}

/// Removes the settled options that this run's own options state; `auto` states nothing.
void drop_what_is_given(std::map<std::string, std::string>& settled, const RunConfig& config, const std::string& device) {
  const auto given = config.plugin_options.find(device);
  if (given == config.plugin_options.end()) return;
  std::erase_if(settled, [&](const auto& option) {
    const auto own = given->second.find(option.first);
    return own != given->second.end() && !leaves_open(own->second);
  });
}

/// Replaces what the device has just chosen by what the run before was told; true if something was.
bool take_what_was_told(std::map<std::string, std::string>& chosen, const ByPlugin& told, const std::string& device) {
  const auto before = told.find(device);
  if (before == told.end()) return false;
  bool any = false;
  for (auto& [option, value] : chosen) {
    const auto was = before->second.find(option);
    if (was == before->second.end() || leaves_open(was->second)) continue;
    value = was->second;
    any = true;
  }
  return any;
}

std::string note_of(const std::string& device, const std::string& option, const std::string& value) {
  return "--" + device + "." + option + " " + value + ", as in the run that is resumed";
}

}  // namespace

OpenDevice open_device(const Parts& parts, const RunConfig& config, PluginHost& host, Job& job) {
  RunConfig settled = config;
  NamedDevice made;
  std::vector<std::string> notes;
  const auto open = [&] {
    made = make_device(settled, host);
    made.device->open(job.local_rank(), job.local_size());
  };
  if (job.rank() != 0) {
    // Opened while rank 0's is: drivers take seconds to start. Another one is made only where something was settled.
    open();
    settled.chosen_options = json::parse(job.broadcast(key, "", job.timeout())).get<ByPlugin>();
    if (!settled.chosen_options.empty()) open();
    return {std::move(made.device), std::move(settled.chosen_options), {}};
  }
  Before before = run_before(config);
  settled.chosen_options = std::move(before.settled);
  for (auto& [device, options] : settled.chosen_options) {
    drop_what_is_given(options, config, device);
    for (const auto& [option, value] : options) notes.push_back(note_of(device, option, value));
  }
  std::erase_if(settled.chosen_options, [](const auto& device) { return device.second.empty(); });
  open();
  std::erase_if(settled.chosen_options, [&](const auto& device) { return device.first != made.name; });
  if (settled.chosen_options.empty()) {
    const ModelSizes sizes = parts.architecture->sizes();
    auto chosen =
        made.device->choose_options(parts.precision->dtypes().parameter, config.batch * config.sequence, sizes.ffn, sizes.hidden);
    notes = made.device->info().notes;
    const bool was_told = take_what_was_told(chosen, before.told, made.name);
    if (!chosen.empty()) settled.chosen_options[made.name] = chosen;
    if (was_told) {  // the device has been set by its own choice
      open();
      notes.clear();
      for (const auto& [option, value] : chosen) notes.push_back(note_of(made.name, option, value));
    }
  }
  job.broadcast(key, json(settled.chosen_options).dump(), job.timeout());
  return {std::move(made.device), std::move(settled.chosen_options), std::move(notes)};
}

}  // namespace consist
