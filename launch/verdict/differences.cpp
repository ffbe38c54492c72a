#include "launch/verdict/differences.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "consist/text.h"
#include "core/base/split.h"

namespace consist::launch {
namespace {

constexpr double uneven_clock = 1.02, uneven_load = 1.05;  ///< the larger over the smaller that is worth a word

const std::vector<std::string> all{"speed", "memory", "loss", "energy"}, timed{"speed", "energy"}, trained{"loss"};

/// "text" and "text/files" of the dataset "text=0.7+jsonl=0.3".
bool is_of_data(const std::string& name, const std::string& datasets) {
  if (name == "dataset") return true;
  const std::string owner = name.substr(0, name.find('/'));
  if (owner == name) return false;
  for (const std::string_view part : split(datasets, '+')) {
    if (part.substr(0, part.find('=')) == owner) return true;
  }
  return false;
}

/// Kind and consequences of a condition of the environment.
Difference of_environment(const std::string& name, bool on_processor) {
  if (name == "name of the device" || name == "device_kind") return {.kind = "machine", .prevents = timed};
  if (name == "usable_cores" || name == "processor")
    return {.kind = "machine", .prevents = on_processor ? timed : std::vector<std::string>{}};
  if (name.starts_with("versions/") || name.starts_with("plugins/") || name == "consist" || name == "system")
    return {.kind = "versions", .prevents = {}};
  return {.kind = "machine", .prevents = {}};
}

Difference of_configuration(const std::string& name, const SideRun& a, const SideRun& b) {
  if (name == "model")
    return {.kind = "model", .prevents = a.parameters == b.parameters && a.parameters > 0 ? std::vector<std::string>{} : all};
  if (name == "sequence") return {.kind = "sizes", .prevents = all};
  if (is_of_data(name, a.dataset) || is_of_data(name, b.dataset)) return {.kind = "data", .prevents = trained};
  if (name == "from_scratch") return {.kind = "data", .prevents = trained};
  if (name == "loss") return {.kind = "training", .prevents = trained};
  if (name == "seed") return {.kind = "data", .prevents = {}};  // judged by the seeds of the runs
  if (name == "steps" || name == "epochs") {
    const bool constant = a.schedule == "constant" && b.schedule == "constant";
    return {.kind = "training", .prevents = constant ? std::vector<std::string>{} : trained};
  }
  if (name.starts_with("chosen_options/")) return {.kind = "measurement", .prevents = {}};  // by the device, at the start
  if (name == "profile" || name == "observe")
    return {.kind = "measurement", .prevents = name == "profile" ? timed : std::vector<std::string>{}};
  return {.kind = "option", .prevents = {}};
}

/// Mean over the runs of what is known; NaN of nothing.
template <typename Get>
double mean_of(const Side& side, Get get) {
  double sum = 0;
  int count = 0;
  for (const SideRun& run : side.runs) {
    if (std::isnan(get(run))) continue;
    sum += get(run);
    ++count;
  }
  return count == 0 ? unknown : sum / count;
}

bool uneven(double a, double b, double limit) {
  return a > 0 && b > 0 && std::max(a / b, b / a) > limit;
}

void add_measured(const Side& a, const Side& b, std::vector<Difference>& differences) {
  const SideRun &first_a = a.runs.front(), &first_b = b.runs.front();
  if (first_a.outcome.step_tokens != first_b.outcome.step_tokens)
    differences.push_back({"tokens per step", "tokens per step", std::to_string(first_a.outcome.step_tokens),
                           std::to_string(first_b.outcome.step_tokens), trained});
  const auto clock = [](const SideRun& run) { return run.outcome.clock; };
  if (const double in_a = mean_of(a, clock), in_b = mean_of(b, clock); uneven(in_a, in_b, uneven_clock))
    differences.push_back({"clock", "mean clock of the device", si_text(in_a) + "Hz", si_text(in_b) + "Hz", {}});
  const auto load = [](const SideRun& run) { return run.expert_load; };
  if (const double in_a = mean_of(a, load), in_b = mean_of(b, load); uneven(in_a, in_b, uneven_load))
    differences.push_back({"experts", "load of the most chosen expert", fixed_text(in_a, 2), fixed_text(in_b, 2), {}});
}

/// Differences of configuration and environment, of the first run of each side.
std::vector<Difference> stated(const Side& a, const Side& b) {
  const SideRun &first_a = a.runs.front(), &first_b = b.runs.front();
  const std::vector<std::pair<std::string, CompareOutcome>> rows{{"A", row_of(a)}, {"B", row_of(b)}};
  std::set<std::string> of_machine;
  bool on_processor = false;
  for (const Condition& condition : differences_of(rows, false)) {
    of_machine.insert(condition.name);
    on_processor = on_processor || condition.name == "name of the device";
  }
  on_processor = on_processor || std::isnan(first_a.outcome.clock);
  std::vector<Difference> differences;
  for (const Condition& condition : differences_of(rows, true)) {
    Difference difference = of_machine.contains(condition.name) ? of_environment(condition.name, on_processor)
                                                                : of_configuration(condition.name, first_a, first_b);
    difference.name = condition.name;
    for (const auto& [value, labels] : condition.values) (labels.front() == "A" ? difference.a : difference.b) = value;
    differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace

std::vector<Difference> differences_between(const Side& a, const Side& b) {
  std::vector<Difference> differences = stated(a, b);
  add_measured(a, b, differences);
  const auto rank = [](const Difference& d) { return !d.prevents.empty() ? 0 : d.kind != "option" ? 1 : 2; };
  std::stable_sort(differences.begin(), differences.end(),
                   [&](const Difference& x, const Difference& y) { return rank(x) < rank(y); });
  return differences;
}

std::string prevented_by(const std::vector<Difference>& differences, const std::string& quantity) {
  std::string names;
  for (const Difference& difference : differences) {
    if (std::find(difference.prevents.begin(), difference.prevents.end(), quantity) == difference.prevents.end()) continue;
    names += (names.empty() ? "" : ", ") + difference.name;
  }
  return names;
}

}  // namespace consist::launch
