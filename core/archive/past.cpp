#include "core/archive/past.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/archive/archived_json.h"

namespace consist {
namespace {

using Json = nlohmann::json;

/// The options of plugins that count, of a configuration.
Json plugin_options_of(const Json& config, const std::function<bool(const std::string&)>& may_differ) {
  Json kept = Json::object();
  const auto all = config.find("plugin_options");
  if (all == config.end() || !all->is_object()) return kept;
  for (const auto& [owner, options] : all->items()) {
    if (!options.is_object()) continue;
    for (const auto& [option, value] : options.items()) {
      if (!may_differ(owner + "." + option)) kept[owner][option] = value;
    }
  }
  return kept;
}

}  // namespace

double ArchivePast::last(const std::string& column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (rows.empty() || found == columns.end()) return std::numeric_limits<double>::quiet_NaN();
  return rows.back()[static_cast<std::size_t>(found - columns.begin())];
}

ArchivePast read_past(const std::string& path, std::int64_t last_step) {
  const ArchiveReader archive(path);
  ArchivePast past;
  past.events = archive.events();
  past.evaluations = archive.evaluations();
  std::erase_if(past.evaluations, [&](const ArchivedEvaluation& evaluation) { return evaluation.step > last_step; });
  past.experts = archive.experts();
  std::erase_if(past.experts, [&](const ArchivedChoices& row) { return row.step > last_step; });
  const std::vector<std::string> there = archive.columns();
  if (there.empty()) return past;  // it ended before its first step
  past.columns.emplace_back("step");
  for (const std::string& name : there) {
    if (name != "step") past.columns.push_back(name);
  }
  std::vector<std::vector<double>> values;
  for (const std::string& name : past.columns) values.push_back(archive.column(name));
  for (std::size_t row = 0; row < values.front().size() && values.front()[row] <= static_cast<double>(last_step); ++row) {
    std::vector<double>& added = past.rows.emplace_back();
    for (const std::vector<double>& column : values) added.push_back(column.at(row));
  }
  return past;
}

void check_same_run(const std::string& path, const std::string& config, const std::string& defaults,
                    const std::function<bool(const std::string&)>& may_differ) {
  const ArchiveReader archive(path);
  const std::string then = archive.text("/config");
  if (then.empty() && archive.columns().empty()) return;  // it ended before it had begun: there is nothing to mix up
  Json before = archived_config(then);
  Json now = archived_config(config), absent = Json::parse(defaults);
  if (!before.is_object()) throw DataError("the archive " + path + " has no configuration; name another with --archive");
  for (Json* one : {&before, &now, &absent}) (*one)["plugin_options"] = plugin_options_of(*one, may_differ);
  std::string differences;
  const auto text = [](const Json& object, const std::string& key) {
    return object.contains(key) ? object[key].dump(-1, ' ', false, Json::error_handler_t::replace) : std::string("nothing");
  };
  for (const auto& [key, value] : now.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (key == "chosen_options" || may_differ(name)) continue;  // a device settles these later, and a run takes them over
    if (const Json& known = before.contains(key) ? before : absent; known.contains(key) && known[key] == value) continue;
    if (key == "transport" && value == "auto") continue;  // whatever is there, of which earlier versions named one by default
    differences += "\n  " + key + ": " + text(before, key) + " in the archive, " + text(now, key) + " now";
  }
  if (differences.empty()) return;
  throw UsageError("--resume: the archive " + path + " is of another run:" + differences +
                   "\nGive the same options to go on in it, another --archive, or --overwrite to replace it");
}

}  // namespace consist
