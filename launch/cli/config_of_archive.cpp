#include "launch/cli/config_of_archive.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "core/archive/reader.h"
#include "core/base/option_name.h"
#include "core/config/option_table.h"
#include "core/state/resume_checks.h"
#include "launch/cli/left_out.h"

namespace consist {
namespace {

using nlohmann::json;

std::string this_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

/// Options whose values are paths, if they look like one.
void check_path(const std::string& path, const std::string& option, const std::string& value) {
  std::error_code ignored;
  if (value.find('/') == std::string::npos || std::filesystem::exists(value, ignored)) return;
  throw UsageError("--config " + path + ": its run had --" + option + " " + printable(value) +
                   ", which is not there any more; give another --" + option);
}

/// True if the run's choice for `--transport auto` is taken over: not where another layout, machine or device is asked for.
bool takes_chosen_transport(const json& config, const std::function<bool(const std::string&)>& given) {
  const auto chosen = config.find("chosen_transport");
  if (chosen == config.end() || !chosen->is_string()) return false;
  constexpr const char* layout[] = {"ranks", "strategy", "machine", "device"};
  return std::none_of(std::begin(layout), std::end(layout), [&](const char* option) { return given(option); });
}

/// The options that a run's configuration states; `path` is the file that holds it.
std::vector<ConfigEntry> entries_of_run(const json& config, const std::string& path,
                                        const std::function<bool(const std::string&)>& given, std::vector<std::string>& notes) {
  const std::string file = printable(path);
  const bool batch_changes = given("ranks") || given("strategy") || given("batch") || given("accumulation");
  const bool has_epochs = !given("steps") && (given("epochs") || config.value("epochs", json(0)) != 0);
  std::vector<ConfigEntry> entries;
  std::string unknown;
  LeftOut left_out;
  const auto add = [&](const std::string& name, const json& value, bool is_text) {
    entries.push_back({name, value, file + ": " + printable(name), is_text, true});
  };
  for (const auto& [key, value] : config.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (key == "plugin_options" || key == "chosen_options" || key == "chosen_transport" || value.is_null()) continue;
    const RunOption* const option = find_run_option(name);
    if (option != nullptr && option->spec.role != OptionRole::setting) {
      if (!given(name)) left_out.add(option->spec.role, option->spec, name, value);
    } else if (name == "transport" && takes_chosen_transport(config, given)) {
      add(name, config["chosen_transport"], false);  // the same program again, or a refusal where it is not there
    } else if (option == nullptr || !option->archived) {
      unknown += (unknown.empty() ? "" : ", ") + printable(name);
    } else if ((name == "steps" && has_epochs) || (name == "epochs" && given("steps"))) {
      continue;  // the one follows from the other
    } else if ((name == "global-batch" && batch_changes) || (name == "batch" && given("global-batch"))) {
      continue;
    } else {
      if ((name == "model" || name == "machine") && value.is_string() && !given(name))
        check_path(path, name, value.get<std::string>());
      add(name, value, false);
    }
  }
  for (const char* key : {"chosen_options", "plugin_options"}) {  // the first of two counts
    const json owners = config.value(key, json::object());
    if (!owners.is_object()) continue;
    for (const auto& [owner, options] : owners.items()) {
      if (!options.is_object()) continue;
      for (const auto& [option, value] : options.items()) add(owner + "." + with_dashes(option), value, true);
    }
  }
  left_out.say("--config " + file, notes);
  if (!unknown.empty())
    notes.push_back("--config " + file + ": no configuration of a run here has what it also says: " + unknown);
  return entries;
}

}  // namespace

bool is_archive_name(const std::string& path) {
  return path.ends_with(".h5") || path.ends_with(".hdf5");
}

std::vector<ConfigEntry> config_of_archive(const std::string& path, const std::function<bool(const std::string&)>& given,
                                           std::vector<std::string>& notes) {
  const ArchiveReader archive(path);
  const std::string file = printable(path), text = archive.text("/config");
  if (text.empty()) throw DataError("the archive " + file + " has no configuration; its run ended before it had one");
  const json config = parse_json(text, file + ": /config"),
             environment =
                 parse_json(archive.text("/environment").empty() ? "{}" : archive.text("/environment"), file + ": /environment");
  if (!config.is_object()) throw DataError("the archive " + file + " has no configuration");
  std::vector<ConfigEntry> entries = entries_of_run(config, path, given, notes);
  const auto said = [&](const char* key) {
    const bool is_text = environment.is_object() && environment.contains(key) && environment[key].is_string();
    return is_text ? environment[key].get<std::string>() : std::string();
  };
  const std::string host = said("host"), device = said("device");
  if (!host.empty() && host != this_host())
    notes.push_back("--config " + file + ": its run was on the host " + printable(host) + " (" + printable(device) +
                    "), this is " + this_host());
  return entries;
}

bool is_of_evaluation(const std::string& path) {
  return !ArchiveReader(path).text("/evaluation").empty();
}

std::vector<ConfigEntry> config_of_checkpoint(const CheckpointState& state, const std::string& path,
                                              const std::function<bool(const std::string&)>& given) {
  std::vector<std::string> notes;  // of where its run's results lie, which is of no matter here
  const json config = parse_json(state.config, path + ": config");
  if (!config.is_object()) throw DataError(path + " has no configuration");
  std::vector<ConfigEntry> entries = entries_of_run(config, path, given, notes);
  for (const std::string& dataset : datasets_split_by_sequences(state, path)) {
    const std::string option = dataset + "." + split_option;
    entries.push_back({option, split_by_sequences, printable(path) + ": " + printable(option), true, true});
  }
  return entries;
}

}  // namespace consist
