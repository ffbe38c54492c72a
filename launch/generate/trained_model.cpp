#include "launch/generate/trained_model.h"

#include <algorithm>
#include <set>

#include "consist/error.h"
#include "core/checkpoint/checkpoint_reader.h"
#include "core/config/optimizer_rules.h"
#include "launch/cli/config_of_archive.h"

namespace consist::launch {
namespace {

std::string value_in(const std::vector<ConfigEntry>& entries, const std::string& name) {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const ConfigEntry& e) { return e.name == name; });
  return found == entries.end() || !found->value.is_string() ? "" : found->value.get<std::string>();
}

}  // namespace

void add_options_of_checkpoint(ParsedRun& parsed, std::vector<std::string> parts) {
  const std::string folder = parsed.text("checkpoint");
  if (folder.empty()) return;
  const std::vector<CheckpointPlace> places = list_checkpoints(folder);
  if (places.empty()) throw UsageError("--checkpoint " + folder + ": there is no checkpoint in that folder");
  const auto given = [&](const std::string& name) { return parsed.has(name); };
  std::vector<ConfigEntry> entries;
  for (std::size_t n = 0; n < places.size() && entries.empty(); ++n) {
    try {
      const Checkpoint checkpoint(places[n].path);
      entries = config_of_checkpoint(checkpoint.state(), checkpoint.path() + "/state.json", given);
    } catch (const DataError&) {  // it is passed over here as it is when weights are read, which says so
      if (n + 1 == places.size()) throw;
    }
  }
  std::set<std::string> kept{"model",    "optimizer", "optimizer-rules",    "precision", "dataset",
                             "sequence", "batch",     "evaluate-sequences", "adapter"};
  kept.insert(parts.begin(), parts.end());
  parts.insert(parts.end(), {"optimizer", "precision", "dataset", "adapter"});
  if (value_in(entries, "adapter") != no_adapter && !given("adapter")) kept.insert("frozen-weights");
  // Options of a part count where the part is the run's.
  for (const std::string& part : parts) {
    const std::string of_run = value_in(entries, part);
    if (given(part) && parsed.text(part) != of_run) continue;
    for (const ConfigEntry& entry : entries) {
      if (entry.name.starts_with(of_run + ".")) kept.insert(entry.name);
    }
  }
  for (const OptimizerRule& rule : parse_optimizer_rules(given("optimizer-rules") ? "" : value_in(entries, "optimizer-rules"))) {
    for (const ConfigEntry& entry : entries) {
      if (!rule.optimizer.empty() && entry.name.starts_with(rule.optimizer + ".")) kept.insert(entry.name);
    }
  }
  kept.erase(value_in(entries, "adapter") + ".weights");  // from which the run began
  std::erase_if(entries, [&](const ConfigEntry& entry) { return !kept.contains(entry.name); });
  add_entries(parsed, std::move(entries));
}

}  // namespace consist::launch
