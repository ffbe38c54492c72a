#include "launch/verdict/side.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "consist/text.h"
#include "core/archive/archived_json.h"
#include "core/archive/comparison.h"
#include "core/archive/reader.h"
#include "core/base/split.h"
#include "core/record/metrics.h"

namespace consist::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* ending = ".h5";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Archives of runs in a folder, in the order of their names.
std::vector<std::string> archives_in(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ending && is_file(entry->path()) && !is_comparison(entry->path().string()))
      found.push_back(entry->path().string());
  }
  if (error) throw SystemError("cannot read the folder " + folder.string() + ": " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

/// The repeats of a row, by the names that compare gives them, from the second on.
std::vector<std::string> repeats_of(const std::string& row) {
  std::vector<std::string> found;
  for (int repeat = 2; is_file(row + ".repeat" + std::to_string(repeat) + ending); ++repeat)
    found.push_back(row + ".repeat" + std::to_string(repeat) + ending);
  return found;
}

void add_archives(const std::string& name, std::vector<std::string>& archives, std::vector<std::string>& notes) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) {
    const std::vector<std::string> found = archives_in(name);
    if (found.empty()) throw UsageError("the folder " + name + " holds no archive of a run (FILE.h5)");
    archives.insert(archives.end(), found.begin(), found.end());
    return;
  }
  if (!is_file(name) && is_file(name + ending)) {
    archives.push_back(name + ending);
    const std::vector<std::string> repeats = repeats_of(name);
    archives.insert(archives.end(), repeats.begin(), repeats.end());
    return;
  }
  if (!fs::exists(name, ignored))
    throw UsageError("there is no '" + name +
                     "': a side is an archive, a folder of archives, a row of compare's folder (runs/compare/ROW), or several "
                     "of these joined by commas");
  if (const auto linked = linked_archives(name); !linked.empty()) {
    for (const auto& [label, archive] : linked) archives.push_back(archive);
    return;
  }
  archives.push_back(name);
  const std::string row = fs::path(name).replace_extension().string();
  if (const auto repeats = repeats_of(row); !repeats.empty())
    notes.push_back(std::to_string(repeats.size()) + " more runs of " + name + " lie beside it; " + row + " takes all of them");
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

double number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

SideRun read_side_run(const std::string& path) {
  SideRun run{.outcome = read_outcome(path)};
  if (run.outcome.status != "finished")
    throw UsageError("the run of " + path + " is " + run.outcome.status +
                     (run.outcome.reason.empty() ? "" : " (" + run.outcome.reason + ")") +
                     "; a verdict takes runs that finished");
  const ArchiveReader archive(path);
  const std::vector<double> seconds = archive.column("seconds"), power = archive.column_if_any("device_power"),
                            load = archive.column_if_any("expert_load");
  const Steady steady = steady_state(seconds);
  if (steady.steps == 0) throw UsageError("the run of " + path + " has no steps to judge");
  const auto is_positive = [](double value) { return value > 0 && std::isfinite(value); };
  if (!std::all_of(seconds.begin(), seconds.end(), is_positive) || !is_positive(run.outcome.tokens_per_second) ||
      run.outcome.step_tokens <= 0)
    throw UsageError("the run of " + path + " has steps without a time or tokens; it cannot be judged");
  const double began = run.outcome.ended - run.outcome.total_seconds;
  run.speed = {.value = run.outcome.tokens_per_second, .began = began};
  run.energy = {.value = run.outcome.joules, .began = began};
  double loads = 0;
  for (auto i = static_cast<std::size_t>(steady.first_step - 1); i < seconds.size(); ++i) {
    run.speed.steps.push_back(seconds[i]);
    if (i < power.size() && power[i] > 0) run.energy.steps.push_back(seconds[i] * power[i]);
    if (i < load.size()) loads += load[i] / static_cast<double>(steady.steps);
  }
  if (!load.empty()) run.expert_load = loads;
  run.step = archive.column("step");
  run.loss = archive.column("loss");
  run.step.resize(std::min(run.step.size(), run.loss.size()));
  run.loss.resize(run.step.size());
  const json config = archived_config(archive.text("/config"));
  run.seed = text_of(config, "seed");
  run.schedule = text_of(config, "schedule");
  run.dataset = text_of(config, "dataset");
  run.steps = number_of(config, "steps");
  run.parameters = number_of(archived_object(archive.text("/program")), "parameters");
  return run;
}

/// Throws UsageError where the runs are not repeats of one configuration.
void check_repeats(const Side& side) {
  std::vector<std::pair<std::string, CompareOutcome>> rows;
  for (const SideRun& run : side.runs) rows.emplace_back(run.outcome.archive, row_of(run.outcome));
  std::set<std::string> conditions;
  for (const Condition& condition : differences_of(rows, false)) conditions.insert(condition.name);
  for (const Condition& condition : differences_of(rows, true)) {
    if (condition.name == "seed" || condition.name.starts_with("chosen_options") || conditions.contains(condition.name)) continue;
    std::string values;
    for (const auto& [value, archives] : condition.values)
      values += (values.empty() ? "" : "; ") + value + " (" + fs::path(archives.front()).filename().string() + ")";
    throw UsageError("'" + side.name + "' names runs of several configurations: " + condition.name + " is " + values +
                     ". A side is one configuration: name the row, as in runs/compare/ROW, or its archives joined by commas");
  }
}

}  // namespace

std::vector<std::string> archives_of_side(const std::string& given, std::vector<std::string>& notes) {
  std::vector<std::string> archives;
  for (const std::string_view name : split(given, ',')) add_archives(std::string(name), archives, notes);
  std::vector<std::string> once;  // a file may be named twice, as in a folder and by itself
  std::set<fs::path> seen;
  for (const std::string& archive : archives) {
    std::error_code ignored;
    if (seen.insert(fs::weakly_canonical(archive, ignored)).second) once.push_back(archive);
  }
  return once;
}

Side read_side(const std::string& given) {
  std::vector<std::string> notes;
  Side side = read_side(given, archives_of_side(given, notes));
  side.notes = std::move(notes);
  return side;
}

Side read_side(const std::string& name, const std::vector<std::string>& archives) {
  Side side{.name = name};
  for (const std::string& archive : archives) side.runs.push_back(of_archive(archive, [&] { return read_side_run(archive); }));
  check_repeats(side);
  return side;
}

CompareOutcome row_of(const Side& side) {
  CompareOutcome row{.status = "finished", .reason = {}, .disturbance = {}};
  std::vector<double> rates;
  for (const SideRun& run : side.runs) {
    row.runs.push_back(run.outcome);
    rates.push_back(run.speed.value);
  }
  row.speed = interval_of(rates);
  row.step_tokens = row.runs.front().step_tokens;
  return row;
}

std::vector<Condition> differences_of(const std::vector<std::pair<std::string, CompareOutcome>>& named, bool configurations) {
  std::vector<CompareRow> rows;
  std::vector<CompareOutcome> outcomes;
  for (const auto& [label, outcome] : named) {
    rows.push_back({.varied = {}, .arguments = {}, .label = label});
    outcomes.push_back(outcome);
    outcomes.back().same_program_as = outcomes.size() - 1;
  }
  return conditions_of(rows, outcomes, configurations);
}

}  // namespace consist::launch
