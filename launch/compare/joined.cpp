#include "launch/compare/joined.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "core/archive/comparison.h"
#include "core/archive/reader.h"
#include "core/base/one_line.h"
#include "core/config/option_table.h"

namespace consist::launch {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// True if the option is a condition of a measurement. A profile slows a run, and an observer's options are known by it.
bool is_condition(const RunOption& option) {
  const std::string_view name = option.spec.name;
  return !is_beside_training(option) || name == "profile" || name == "observe";
}

/// True if rows of other machines are compared by the option where none is listed: the machine has a column of its own, and from
/// the global batch the ranks' part follows.
bool is_choice(const RunOption& option) {
  const std::string_view name = option.spec.name;
  return option.scope == OptionScope::program && name != "machine" && name != "device" && name != "global-batch";
}

std::string key_of(const RunOption& option) {
  std::string key = option.spec.name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

struct Description {
  json config, environment;
  /// Without what follows from the run: "AMD EPYC, 2 threads" is an "AMD EPYC".
  std::string device() const {
    const std::string whole = environment.value("device", std::string("?"));
    return one_line(whole.substr(0, whole.find(',')));
  }
  std::string host() const { return one_line(environment.value("host", std::string("?"))); }
};

Description describe(const std::string& path) {
  const ArchiveReader archive(path);
  Description description{archived_config(archive.text("/config")), archived_object(archive.text("/environment"))};
  if (!description.config.is_object()) description.config = json::object();
  // Values that depend on the moment of the start: free memory, measured choices.
  for (const char* figure : {"device_memory_bytes", "device_notes"}) description.environment.erase(figure);
  for (const char* name : {"device", "host"}) {
    if (const auto found = description.environment.find(name); found != description.environment.end() && !found->is_string())
      description.environment.erase(found);
  }
  for (const RunOption& option : run_option_table()) {
    if (!is_condition(option)) description.config.erase(key_of(option));
  }
  // Runs did not offload activations before there was a choice.
  if (!description.config.empty()) description.config.emplace("offload_activations", "none");
  return description;
}

std::string text_of(const json& value) {
  return one_line(value.is_string() ? value.get<std::string>() : value.dump());
}

/// An option's value by its name on the command line, as the archive has it.
std::string value_of(const json& config, const std::string& option) {
  std::string key = option;
  std::replace(key.begin(), key.end(), '-', '_');
  if (const std::size_t dot = option.find('.'); dot != std::string::npos) {
    const json::json_pointer at("/plugin_options/" + option.substr(0, dot) + "/" + option.substr(dot + 1));
    return config.contains(at) ? text_of(config[at]) : no_such_option;
  }
  return config.contains(key) ? text_of(config[key]) : no_such_option;
}

struct Joined {
  std::string label, folder, row;  ///< as Given's
  Description description;
  CompareOutcome outcome;
};

struct Given {
  std::string label, archive;
  std::string folder;  ///< of what was given: what lies apart was measured under conditions of its own
  std::string row;     ///< of a comparison, in which repeats have the label of their row; empty: not known
};

/// "llama-tiny_fp32.repeat2" as "llama-tiny_fp32".
std::string without_repeat(const std::string& label) {
  const std::size_t at = label.rfind(".repeat");
  const bool is_repeat = at != std::string::npos && label.find_first_not_of("0123456789", at + 7) == std::string::npos;
  return is_repeat ? label.substr(0, at) : label;
}

std::vector<Given> expanded(const std::vector<std::string>& given) {
  std::vector<Given> all;
  for (const std::string& path : given) {
    const fs::path whole = fs::absolute(path).lexically_normal();
    const std::string folder = whole.parent_path().filename().string();
    const auto linked = linked_archives(path);
    for (const auto& [label, archive] : linked)
      all.push_back({folder + ":" + label, archive, whole.parent_path().string(), whole.string() + "\n" + without_repeat(label)});
    if (linked.empty()) all.push_back({folder + ":" + whole.stem().string(), path, whole.parent_path().string(), ""});
  }
  return all;
}

std::vector<Joined> read_joined(const std::vector<std::string>& archives) {
  std::vector<Joined> joined;
  std::set<fs::path> seen;  // a comparison's runs may be named by themselves, too
  for (const auto& [label, path, folder, row] : expanded(archives)) {
    std::error_code ignored;
    if (!seen.insert(fs::weakly_canonical(path, ignored)).second) continue;
    auto both = of_archive(path, [&, path = path] { return std::pair{describe(path), read_outcome(path)}; });
    const Description& description = both.first;
    RunOutcome& run = both.second;
    auto same = std::find_if(joined.begin(), joined.end(), [&, row = row, folder = folder](const Joined& j) {
      if (!row.empty() && j.row == row) return true;  // whatever its device settled by measuring
      return j.folder == folder && j.description.config == description.config &&
             j.description.environment == description.environment;  // as many threads, too
    });
    if (same == joined.end()) {
      joined.push_back({label, folder, row, description, {}});
      same = joined.end() - 1;
    }
    CompareOutcome& outcome = same->outcome;
    if (run.status == "finished") {
      run.repeat = static_cast<int>(outcome.runs.size()) + 1;
      outcome.runs.push_back(std::move(run));
      outcome.status = "finished";
    } else if (outcome.runs.empty()) {
      outcome.status = run.status == "stopped" ? "interrupted" : run.status;
      outcome.reason = run.reason.empty() ? "its archive " + path + " is of a run that has not ended" : run.reason;
    }
  }
  return joined;
}

/// Runs of one folder and one machine were made beside one another and scatter alike; others do so in their own way.
void settle_by_machine(std::vector<Joined>& joined) {
  std::map<std::string, std::vector<std::size_t>> together;
  for (std::size_t i = 0; i < joined.size(); ++i) {
    const Joined& j = joined[i];
    together[j.folder + '\n' + j.description.host() + '\n' + j.description.device()].push_back(i);
  }
  for (const auto& [where, members] : together) {
    std::vector<CompareOutcome> outcomes;
    for (const std::size_t i : members) outcomes.push_back(std::move(joined[i].outcome));
    settle(outcomes);
    for (std::size_t n = 0; n < members.size(); ++n) joined[members[n]].outcome = std::move(outcomes[n]);
  }
}

/// The options that are columns: those of the rows, or those in which the archives differ.
std::vector<std::string> columns_of(const std::vector<CompareRow>& rows, const std::vector<Joined>& joined) {
  std::vector<std::string> columns;
  if (!rows.empty()) {
    for (const auto& [option, value] : rows.front().varied) columns.push_back(option);
    return columns;
  }
  columns.push_back("model");
  const auto add_if_different = [&](const std::string& option) {
    const std::string first = value_of(joined.front().description.config, option);
    if (std::any_of(joined.begin(), joined.end(),
                    [&](const Joined& j) { return value_of(j.description.config, option) != first; }))
      columns.push_back(option);
  };
  // Where all have one global batch, the ranks' part of it follows from their number and is no choice.
  const auto same = [&](const char* key) {
    const std::string first = value_of(joined.front().description.config, key);
    return std::all_of(joined.begin(), joined.end(),
                       [&](const Joined& j) { return value_of(j.description.config, key) == first; });
  };
  const bool batch_follows =
      same("global-batch") && same("accumulation") && value_of(joined.front().description.config, "global-batch") != "0";
  for (const RunOption& option : run_option_table()) {
    const std::string name = option.spec.name;
    if (is_choice(option) && name != "model" && (name != "batch" || !batch_follows)) add_if_different(name);
  }
  std::set<std::string> of_plugins;
  for (const Joined& j : joined) {
    const json given = j.description.config.value("plugin_options", json::object());
    const std::string observers = "," + value_of(j.description.config, "observe") + ",";
    for (const auto& [plugin, options] : given.items()) {
      if (observers.find("," + plugin + ",") != std::string::npos) continue;  // where results go is no choice
      for (const auto& [option, value] : options.items()) of_plugins.insert(plugin + "." + option);
    }
  }
  for (const std::string& option : of_plugins) add_if_different(option);
  return columns;
}

/// The machine of a row that was run here; empty if none of its runs has an archive.
Description description_of(const CompareOutcome& outcome) {
  for (const RunOutcome& run : outcome.runs) {
    if (!run.archive.empty()) return describe(run.archive);
  }
  return {json::object(), json::object()};
}

}  // namespace

void join_archives(const std::vector<std::string>& archives, std::vector<CompareRow>& rows,
                   std::vector<CompareOutcome>& outcomes) {
  std::vector<Joined> joined = read_joined(archives);
  if (joined.empty()) throw UsageError("there is no run in the archives that are to be compared");
  settle_by_machine(joined);
  const std::vector<std::string> columns = columns_of(rows, joined);
  std::vector<Description> descriptions;
  std::set<std::string> labels;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    descriptions.push_back(description_of(outcomes[i]));
    labels.insert(rows[i].label);
  }
  for (Joined& j : joined) {
    CompareRow row;
    for (const std::string& option : columns) row.varied.emplace_back(option, value_of(j.description.config, option));
    row.label = j.label;
    for (int n = 2; !labels.insert(row.label).second; ++n) row.label = j.label + "-" + std::to_string(n);
    j.outcome.same_program_as = rows.size();
    rows.push_back(std::move(row));
    outcomes.push_back(std::move(j.outcome));
    descriptions.push_back(j.description);
  }
  std::set<std::string> devices, hosts;
  for (const Description& d : descriptions) {
    if (d.environment.empty()) continue;
    devices.insert(d.device());
    hosts.insert(d.host());
  }
  if (devices.size() > 1 || hosts.size() > 1) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Description& d = descriptions[i];
      const bool known = !d.environment.empty();
      rows[i].varied.emplace_back("machine", !known ? no_such_option : devices.size() > 1 ? d.device() : d.host());
    }
  }
  // Rows that the columns do not tell apart are told apart by the conditions, by the rows' labels.
  std::set<std::vector<std::pair<std::string, std::string>>> shown;
  const bool ambiguous =
      std::any_of(rows.begin(), rows.end(), [&](const CompareRow& row) { return !shown.insert(row.varied).second; });
  for (CompareRow& row : rows) {
    if (ambiguous) row.varied.emplace_back("label", row.label);
  }
}

std::vector<Condition> conditions_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                                     bool configurations) {
  std::set<std::string> shown;
  for (const auto& [option, value] : rows.front().varied) {
    std::string key = option;
    std::replace(key.begin(), key.end(), '-', '_');
    std::replace(key.begin(), key.end(), '.', '/');
    shown.insert(key);
  }
  // By condition, then value: the labels of the rows that have it.
  std::map<std::string, std::map<std::string, std::vector<std::string>>> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!outcomes[i].finished() || outcomes[i].same_program_as != i) continue;
    Description description = description_of(outcomes[i]);
    if (description.environment.contains("device")) description.environment["name of the device"] = description.device();
    description.environment.erase("device");  // the configuration has an option of that name
    const bool is_column = shown.count("machine") != 0 && !description.config.value("machine", "").empty();
    if (is_column) description.environment.erase("planned_for");  // follows from it
    const auto add = [&](const json& object) {
      if (object.empty()) return;
      const json flat = object.flatten();
      for (const auto& [key, value] : flat.items()) {
        std::string name = key.substr(1);
        if (name.starts_with("plugin_options/")) name.erase(0, std::string("plugin_options/").size());
        if (shown.count(name) == 0) found[name][text_of(value)].push_back(rows[i].label);
      }
    };
    add(description.environment);
    if (configurations) add(description.config);
  }
  std::vector<Condition> conditions;
  for (const auto& [name, values] : found) {
    if (values.size() < 2) continue;
    conditions.push_back({name, {values.begin(), values.end()}});
  }
  return conditions;
}

std::string conditions_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                            bool configurations) {
  std::string text;
  for (const Condition& condition : conditions_of(rows, outcomes, configurations)) {
    text += "  " + condition.name + ":";
    bool first = true;
    for (const auto& [value, labels] : condition.values) {
      text += (first ? " " : "; ") + value + " (" + labels.front() +
              (labels.size() > 1 ? " and " + std::to_string(labels.size() - 1) + " more" : "") + ")";
      first = false;
    }
    text += "\n";
  }
  return text.empty()
             ? text
             : "The rows were not run under the same conditions. Besides the columns of the table, these differ:\n" + text;
}

}  // namespace consist::launch
