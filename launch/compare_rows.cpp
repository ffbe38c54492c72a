#include "launch/compare_rows.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/archive/reader.h"
#include "core/program/printable.h"
#include "core/runtime/metrics.h"
#include "core/runtime/traffic.h"

namespace consist::launch {

const std::vector<std::string> listed_options{"model", "strategy",     "transport", "precision",    "ranks",     "device",
                                              "batch", "global-batch", "sequence",  "accumulation", "recompute", "deepspeed-set"};

namespace {

std::vector<std::string> split(const std::string& option, const std::string& list) {
  std::vector<std::string> values;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    values.push_back(list.substr(begin, end - begin));
    if (values.back().empty()) throw UsageError("--" + option + " '" + list + "' has an empty entry");
    begin = end + 1;
  }
  return values;
}

/// "tp-sp=nvlink+ddp=socket" and "swiglu+rms_norm" as train takes them.
std::string for_train(const std::string& option, std::string value) {
  if (option == "transport" || option == "recompute") std::replace(value.begin(), value.end(), '+', ',');
  return value;
}

/// A listed option: its values as train takes them, and how table and file names call it.
struct Listed {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  // shown, for train
};

Listed read_list(const std::string& option, const std::string& text) {
  Listed listed{option, {}};
  if (option != "deepspeed-set") {
    for (const std::string& value : split(option, text)) listed.values.emplace_back(value, for_train(option, value));
    return listed;
  }
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals), values = text.substr(std::min(equals + 1, text.size()));
  listed.name = key.substr(key.rfind('.') + 1);
  if (values.starts_with('[')) return {listed.name, {{values, text}}};  // a JSON array has commas of its own
  for (const std::string& value : split(option, values)) listed.values.emplace_back(value, key + "=" + value);
  return listed;
}

/// Whether a value says by itself what it is of.
bool speaks_for_itself(const std::string& option) {
  return option == "model" || option == "strategy" || option == "transport" || option == "precision" || option == "device";
}

/// A value as part of a file name.
std::string plain(std::string value) {
  if (value.find('/') != std::string::npos)
    value = std::filesystem::path(value).filename().empty() ? "folder" : std::filesystem::path(value).filename().string();
  for (char& c : value) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '+' && c != '=') c = '_';
  }
  return value;
}

/// Runs that shared a folder would find each other's checkpoints there, and replace each other's files.
void give_own_places(CompareRow& row) {
  using std::filesystem::path;
  const auto folder = [&](const path& given) { return given / row.label; };
  const auto file = [&](const path& given) {
    return given.parent_path() / (given.stem().string() + "-" + row.label + given.extension().string());
  };
  for (std::size_t i = 0; i < row.arguments.size(); ++i) {
    for (const std::string option : {"--checkpoint", "--export", "--trace"}) {
      const auto own = [&](const std::string& given) { return (option == "--trace" ? file(given) : folder(given)).string(); };
      std::string& argument = row.arguments[i];
      if (argument == option && i + 1 < row.arguments.size()) {
        row.arguments[i + 1] = own(row.arguments[i + 1]);
      } else if (argument.starts_with(option + "=")) {
        argument = option + "=" + own(argument.substr(option.size() + 1));
      }
    }
  }
}

}  // namespace

std::vector<CompareRow> expand_rows(const std::vector<std::string>& arguments) {
  std::vector<CompareRow> rows(1);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string option =
        argument.starts_with("--") ? argument.substr(2, equals == std::string::npos ? equals : equals - 2) : "";
    if (std::find(listed_options.begin(), listed_options.end(), option) == listed_options.end()) {
      for (CompareRow& row : rows) row.arguments.push_back(argument);
      continue;
    }
    if (equals == std::string::npos && i + 1 == arguments.size()) throw UsageError("--" + option + " needs a value");
    const Listed listed = read_list(option, equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1));
    std::vector<CompareRow> expanded;
    for (const CompareRow& row : rows) {
      for (const auto& [shown, value] : listed.values) {
        expanded.push_back(row);
        expanded.back().arguments.insert(expanded.back().arguments.end(), {"--" + option, value});
        if (listed.values.size() > 1 || option == "model") expanded.back().varied.emplace_back(listed.name, shown);
      }
    }
    rows = std::move(expanded);
  }
  for (CompareRow& row : rows) {
    for (const auto& [option, value] : row.varied) {
      const std::string name = speaks_for_itself(option) ? "" : option == "recompute" ? "recompute-" : option;
      row.label += (row.label.empty() ? "" : "_") + name + plain(value);
    }
    if (row.label.empty()) row.label = "run";
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (rows[i].label == rows[j].label) throw UsageError("the make-up '" + rows[i].label + "' is listed twice");
    }
  }
  if (rows.size() > 1) {
    for (CompareRow& row : rows) give_own_places(row);
  }
  return rows;
}

void remove_options_of(const std::string& owner, CompareRow& row) {
  std::vector<std::string> kept;
  const std::string prefix = "--" + owner + ".";
  for (std::size_t i = 0; i < row.arguments.size(); ++i) {
    if (!row.arguments[i].starts_with(prefix)) {
      kept.push_back(row.arguments[i]);
      continue;
    }
    const bool has_value = row.arguments[i].find('=') == std::string::npos && i + 1 < row.arguments.size() &&
                           !row.arguments[i + 1].starts_with("--");
    if (has_value) ++i;
  }
  row.arguments = std::move(kept);
}

CompareOutcome read_outcome(const std::string& path) {
  const ArchiveReader archive(path);
  CompareOutcome outcome{.status = archive.status(), .reason = printable(archive.reason())};
  const std::vector<double> seconds = archive.column("seconds"), tokens = archive.column("tokens"), loss = archive.column("loss");
  const Steady steady = steady_state(seconds);
  if (steady.steps == 0) return outcome;
  outcome.step_seconds = steady.median_seconds;
  outcome.tokens_per_second = tokens.back() / steady.median_seconds;
  outcome.low = tokens.back() / steady.high_seconds;
  outcome.high = tokens.back() / steady.low_seconds;
  outcome.final_loss = loss.back();
  const nlohmann::json result = nlohmann::json::parse(archive.text("/result"), nullptr, false);
  if (result.is_object()) {
    outcome.planned_bytes = result.value("planned_bytes", 0.0);
    outcome.measured_bytes = result.value("measured_peak_bytes", 0.0);
    outcome.share_of_bound = result.contains("share_of_bound") && result["share_of_bound"].is_number()
                                 ? result["share_of_bound"].get<double>()
                                 : std::numeric_limits<double>::quiet_NaN();
  }
  if (const auto sent = sent_per_step(archive.text("/comm"))) {
    outcome.bytes_sent_per_step = sent->bytes;
    outcome.sent_is_counted = sent->counted;
  }
  for (const ArchiveEvent& event : archive.events()) {
    if (event.kind == "advice") outcome.advice.push_back(event.text);
  }
  const nlohmann::json program = nlohmann::json::parse(archive.text("/program"), nullptr, false);
  if (program.is_object()) {
    outcome.planned_host_bytes = program.value("planned_host_bytes", 0.0);
    for (const auto& c : program.value("collectives", nlohmann::json::array())) outcome.collectives += c.value("count", 0.0);
  }
  return outcome;
}

bool is_done(const std::string& path, const std::string& config_json) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  try {
    const ArchiveReader archive(path);
    return archive.status() == "finished" && archive.text("/config") == config_json;
  } catch (const Error&) {
    return false;  // cut off or of another version: it is made anew
  }
}

}  // namespace consist::launch
