#include "launch/compare/runs.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "consist/error.h"
#include "consist/text.h"
#include "core/archive/archived_json.h"
#include "core/archive/reader.h"
#include "core/config/config_file.h"
#include "core/config/option_value.h"
#include "core/record/progress_line.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/plugin_options.h"
#include "launch/start/child_process.h"
#include "launch/start/noted_signals.h"

namespace consist::launch {
namespace {

/// The step that an interrupted run reached, as its archive says.
std::string steps_of(const std::string& archive) {
  try {
    const std::vector<double> steps = ArchiveReader(archive).column("step");
    return steps.empty() ? "before its first step" : "after step " + std::to_string(static_cast<long long>(steps.back()));
  } catch (const Error&) {
    return "before its first step";
  }
}

}  // namespace

void Reason::add(const std::string& line) {
  last_ = line;
  const bool begins = line.starts_with("consist: ");
  if (begins && message_.empty()) {
    message_ = line.substr(9);
    open_ = true;
  } else if (begins || line.starts_with("[rank ") || line.starts_with("consist launch: ")) {
    open_ = false;  // other ranks and the launcher say the same in their words
  } else if (open_) {
    message_ += "\n" + line;
  }
}

std::string Reason::text(int exit_status) const {
  if (!message_.empty()) return message_;
  const std::string how = exit_status > 128
                              ? "ended by signal " + std::to_string(exit_status - 128) + " (" + strsignal(exit_status - 128) + ")"
                              : "ended with exit status " + std::to_string(exit_status) + " without a message";
  return how + (last_.empty() ? "" : "; its last line: " + last_);
}

RunOutcome outcome_of(int status, const std::string& reason, const std::string& archive, const std::string& log) {
  if (status == 0) return read_outcome(archive);
  std::error_code ignored;
  RunOutcome run{.archive = std::filesystem::exists(archive, ignored) ? archive : ""};
  if (const int asked = noted_signals().number; asked != 0) {
    run.status = "interrupted";
    run.reason = "by " + signal_text(asked) + " " + steps_of(archive) + "; the same command runs it anew and keeps the rest";
  } else {
    run.status = status == exit_usage ? "refused" : "failed";
    run.reason = reason + " (see " + log + ")";
  }
  return run;
}

RunOutcome run_in_process(const std::string& config, const std::vector<std::string>& notes, const std::string& archive,
                          const std::string& log_path, bool overwrite) {
  std::ofstream log(log_path);
  for (const std::string& note : notes) log << printable(note) << "\n";
  const bool terminal = isatty(STDERR_FILENO) == 1;
  Reason reason;
  std::vector<std::string> words{"train", "--config", config, "--archive", archive};
  // Files of a run of the same configuration that did not come to its end are replaced.
  if (std::error_code ignored; overwrite || std::filesystem::exists(archive, ignored)) words.emplace_back("--overwrite");
  const int status = run_child(
      words,
      [&](const std::string& said) {
        const std::string line = printable(said);
        log << line << std::endl;
        reason.add(line);
        if (terminal && line.starts_with("step "))
          std::fprintf(stderr, "\r\033[K%s", fit_line("  " + line, terminal_columns()).c_str());
      },
      &noted_signals().number);
  if (terminal) std::fputs("\r\033[K", stderr);
  return outcome_of(status, reason.text(status), archive, log_path);
}

namespace {

/// The text of an option's value, which may be written in several ways, once a file holds it: "50000000.0" of "5e7", "1048576" of
/// "1Mi". Throws UsageError, as legal_value().
std::string text_of_file(const OptionSpec& spec, const std::string& value) {
  const std::string name = spec.name;
  const nlohmann::json read = parse_toml("value = " + toml_value(spec, legal_value(spec, value, name)), name);
  const ConfigEntry entry{.name = name, .value = read.at("value"), .said = name};
  return option_text(spec, entry.value, entry);
}

/// The configuration as it is asked for: without what a run's start settles by measuring, and without what changes nothing in it.
nlohmann::json asked_for(const std::string& config, PluginHost& host) {
  nlohmann::json parsed = archived_config(config);
  if (!parsed.is_object()) return parsed;
  parsed.erase("chosen_options");
  parsed.erase("price");
  if (!parsed.contains("plugin_options") || !parsed["plugin_options"].is_object()) return parsed;
  for (auto& [owner, options] : parsed["plugin_options"].items()) {
    if (!options.is_object()) continue;
    for (auto& [option, value] : options.items()) {
      const std::optional<OptionSpec> spec = spec_of_plugin(owner + "." + option, host);
      if (!spec || !value.is_string()) continue;
      try {
        value = text_of_file(*spec, value.get<std::string>());
      } catch (const UsageError&) {
        continue;  // of another version, in which it was legal
      }
    }
  }
  return parsed;
}

}  // namespace

bool is_done(const std::string& path, const std::string& config_json, PluginHost& host) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  try {
    const ArchiveReader archive(path);
    return archive.status() == "finished" && asked_for(archive.text("/config"), host) == asked_for(config_json, host);
  } catch (const Error&) {
    return false;  // cut off or of another version: it is made anew
  }
}

std::string other_run(const std::string& path, const std::string& config_json, PluginHost& host) {
  using nlohmann::json;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  std::string status, text;
  try {
    const ArchiveReader archive(path);
    status = archive.status();
    text = archive.text("/config");
  } catch (const Error&) {
    return {};
  }
  const json there = asked_for(text, host), here = asked_for(config_json, host);
  if (there == here || !there.is_object() || !here.is_object()) return {};
  const auto flat = [](const json& object) { return object.flatten().get<json::object_t>(); };
  const json::object_t before = flat(there), now = flat(here);
  const auto value_in = [](const json::object_t& object, const std::string& key) {
    const auto found = object.find(key);
    return found == object.end() || found->second.is_null() ? std::string("none") : found->second.dump();
  };
  std::set<std::string> keys;
  for (const json::object_t* object : {&before, &now}) {
    for (const auto& [key, value] : *object) keys.insert(key);
  }
  std::string differences;
  for (const std::string& key : keys) {
    const std::string old_value = value_in(before, key), new_value = value_in(now, key);
    if (old_value == new_value) continue;
    differences += (differences.empty() ? "" : ", ") + key.substr(1) + " " + old_value + " (here " + new_value + ")";
  }
  return differences.empty() ? "" : "a " + status + " run with " + differences;
}

}  // namespace consist::launch
