#include "core/state/resume_checks.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "consist/json_input.h"
#include "core/config/dataset_choices.h"

namespace consist {
namespace {

using nlohmann::json;

/// Returns the options that determine which tokens a step reads, besides the global batch.
json data_of(const json& config) {
  const std::string dataset = config.value("dataset", "");
  const json options = config.value("plugin_options", json::object());
  json data = {{"dataset", dataset}, {"sequence", config.value("sequence", 0)}, {"seed", config.value("seed", 0)}};
  const std::vector<DatasetChoice> parts = parse_datasets(dataset);
  if (parts.size() == 1) {
    data["options"] = options.value(dataset, json::object());
    return data;
  }
  data["options"] = json::object();
  for (const DatasetChoice& part : parts) {
    for (const std::string& owner : {part.name, part.plugin}) {
      if (options.contains(owner)) data["options"][owner] = options[owner];
    }
  }
  return data;
}

/// Leaves out the option that checkpoints of version 1 do not have.
json without_split(json config) {
  const auto options = config.find("plugin_options");
  if (options == config.end() || !options->is_object()) return config;
  for (auto owner = options->begin(); owner != options->end();) {
    const bool stated = owner->is_object() && owner->erase(split_option) > 0;
    owner = stated && owner->empty() ? options->erase(owner) : std::next(owner);
  }
  return config;
}

/// "'a'", "'a' and 'b'", "'a' and 3 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text = "'" + names.front() + "'";
  if (names.size() == 2) text += " and '" + names.back() + "'";
  if (names.size() > 2) text += " and " + std::to_string(names.size() - 1) + " more";
  return text;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// The learning-rate settings of a configuration.
struct ScheduleOfRun {
  std::string name;
  std::map<std::string, std::string> options;  ///< that were given
  double peak = 0;
  std::int64_t steps = 1;

  explicit ScheduleOfRun(const json& config) {
    const auto text = [](const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
    if (const auto found = config.find("schedule"); found != config.end()) name = text(*found);
    if (const auto found = config.find("learning_rate"); found != config.end() && found->is_number()) peak = found->get<double>();
    if (const auto found = config.find("steps"); found != config.end() && found->is_number_integer())
      steps = std::max<std::int64_t>(found->get<std::int64_t>(), 1);
    const json all = config.contains("plugin_options") ? config["plugin_options"] : json::object();
    if (!all.is_object() || !all.contains(name) || !all[name].is_object()) return;
    for (const auto& [option, value] : all[name].items()) options[option] = text(value);
  }
  std::string without_steps() const {
    std::string all = "--schedule " + name;
    for (const auto& [option, value] : options) all += " --" + name + "." + option + " " + value;
    return all + " --learning-rate " + number_text(peak);
  }
};

}  // namespace

std::vector<std::string> datasets_split_by_sequences(const CheckpointState& saved, const std::string& path) {
  std::vector<std::string> names;
  if (saved.version > 1) return names;
  const json config = parse_json(saved.config, path + ": its configuration");
  if (!config.is_object()) throw DataError(path + ": its configuration is no JSON object");
  const json options = config.value("plugin_options", json::object());
  for (const DatasetChoice& part : parse_datasets(config.value("dataset", ""))) {
    if (part.plugin != "jsonl" && part.plugin != "parquet") continue;
    const auto has_files = [&](const std::string& owner) {
      return options.contains(owner) && options[owner].value("eval-files", "") != "";
    };
    if (!has_files(part.name) && !has_files(part.plugin)) names.push_back(part.name);
  }
  return names;
}

void check_same_data(const CheckpointState& saved, const std::string& path, const RunConfig& config,
                     std::int64_t sequences_per_step) {
  const json then = parse_json(saved.config, path + ": its configuration");
  if (!then.is_object()) throw DataError(path + ": its configuration is no JSON object");
  const json asked = json::parse(config.to_json());
  const json before = data_of(then), now = data_of(saved.version > 1 ? asked : without_split(asked));
  if (before != now) {
    throw UsageError("--resume: " + path + " was trained on " + shown(before, 2000) + ", this run asks for " + shown(now, 2000) +
                     "; give the same options, or another --checkpoint folder");
  }
  for (const std::string& dataset : datasets_split_by_sequences(saved, path)) {
    const auto options = options_of_owner(config, dataset);
    const auto split = options.find(split_option);
    if (split == options.end() || split->second != split_by_sequences)
      throw UsageError(
          "--resume: " + path + " was saved by an earlier version, which kept sequences of '" + dataset +
          "' for evaluation instead of whole rows, so that its epochs have another order; go on as it began with --" + dataset +
          "." + split_option + " " + split_by_sequences + ", or train anew with another --checkpoint folder");
  }
  if (saved.data_position != saved.step * sequences_per_step) {
    throw UsageError("--resume: " + path + " has read " + std::to_string(saved.data_position) + " sequences in " +
                     std::to_string(saved.step) + " steps, this run would have read " +
                     std::to_string(saved.step * sequences_per_step) +
                     "; choose --batch, --accumulation and --ranks so that a step has as many sequences as before");
  }
}

namespace {

/// The first number of steps done in [first, end) at which the schedules give different rates; `end` if there is none. Of very long
/// runs a difference is looked for at places that lie apart, and then between the last two of them.
std::int64_t first_difference(const std::function<double(std::int64_t)>& before, const std::function<double(std::int64_t)>& now,
                              std::int64_t first, std::int64_t end) {
  constexpr std::int64_t most_places = 100'000;
  const std::int64_t stride = std::max<std::int64_t>((end - first) / most_places, 1);
  for (std::int64_t at = first; at < end; at += stride) {
    if (before(at) == now(at)) continue;
    std::int64_t earliest = std::max(at - stride + 1, first);
    while (before(earliest) == now(earliest)) ++earliest;
    return earliest;
  }
  return end;
}

}  // namespace

std::string schedule_change(const CheckpointState& saved, const std::string& path, const RunConfig& config,
                            const Schedule& schedule, PluginHost& host) {
  const ScheduleOfRun before(parse_json(saved.config, path + ": its configuration")), now(json::parse(config.to_json()));
  const auto rate_now = [&](std::int64_t done) { return schedule.rate(done, config.steps, config.learning_rate); };
  const auto of_step = [](std::int64_t done) { return "step " + std::to_string(done + 1) + " has the learning rate "; };
  std::string effect = of_step(saved.step) + number_text(rate_now(saved.step));
  try {
    const auto earlier = host.make<Schedule>("schedule", before.name, before.options);
    const auto rate_before = [&](std::int64_t done) { return earlier->rate(done, before.steps, before.peak); };
    const std::int64_t end = std::max(std::min(before.steps, config.steps), saved.step + 1),
                       differs = first_difference(rate_before, rate_now, saved.step, end);
    if (differs == end && before.without_steps() == now.without_steps()) return "";
    if (differs < end)
      effect = of_step(differs) + number_text(rate_now(differs)) + " instead of " + number_text(rate_before(differs)) +
               (differs > saved.step ? ", and none before it has another one" : "");
  } catch (const Error&) {
    // A schedule that is not there any more, or had other options.
  }
  return "--resume: " + path + " was trained with " + before.without_steps() + " --steps " + std::to_string(before.steps) +
         ", this run with " + now.without_steps() + " --steps " + std::to_string(now.steps) + ": " + effect;
}

namespace {

/// A plugin of a configuration with its options, as on the command line; empty where it is the one called `none`.
std::string part_text(const json& config, const std::string& kind, const char* none) {
  const std::string name = config.value(kind, none);
  if (name == none) return "";
  std::string text = "--" + kind + " " + name;
  if (const json options = config.value("plugin_options", json::object()); options.contains(name)) {
    for (const auto& [option, value] : options[name].items())
      text += " --" + name + "." + option + " " + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace

void check_same_trained(const CheckpointState& saved, const std::string& path, const RunConfig& config) {
  const json then = parse_json(saved.config, path + ": its configuration"), now = json::parse(config.to_json());
  const bool same_loss = then.value("loss", next_token) == now.value("loss", next_token);
  const auto text = [&](const json& of) {
    const std::string frozen = of.value("freeze", ""), trained = of.value("train_only", ""),
                      adapter = part_text(of, "adapter", no_adapter), loss = part_text(of, "loss", same_loss ? next_token : "");
    const std::string blocks = of.value("frozen_weights", "none");
    const std::string kept = blocks == "none" ? "" : " --frozen-weights " + blocks;
    const std::string what = adapter + (adapter.empty() || loss.empty() ? "" : " ") + loss;
    if (!what.empty()) return (frozen.empty() ? what : what + " --freeze '" + frozen + "'") + kept;
    return (!frozen.empty()    ? "--freeze '" + frozen + "'"
            : !trained.empty() ? "--train-only '" + trained + "'"
                               : "no parameter frozen") +
           kept;
  };
  if (text(then) == text(now)) return;
  throw UsageError("--resume: " + path + " was trained with " + text(then) + ", this run asks for " + text(now) +
                   ", and the checkpoint has the optimizer's states of what was trained alone; give the same, or --export the model "
                   "and train that anew");
}

std::string stored_name(const TrainingState::Value& value, int rank) {
  return value.kind == StateKind::per_rank ? value.name + "@" + std::to_string(rank) : value.name;
}

void check_names(const TensorParts& saved, const std::vector<std::vector<std::string>>& parameters, const TrainingState& state,
                 int ranks, bool has_stages, const std::string& path) {
  std::set<std::string> known, own;
  std::vector<std::string> missing, unknown;
  for (const TrainingState::Value& value : state.values()) {
    if (value.kind == StateKind::per_rank) own.insert(value.name);  // under other names, which are looked for where they are read
  }
  for (const std::vector<std::string>& parameter : parameters) {
    for (const std::string& name : parameter) {
      if (own.contains(name)) continue;
      known.insert(name);
      if (!saved.has(name)) missing.push_back(name);
    }
  }
  for (const TrainingState::Value& value : state.values()) {
    for (int rank = 0; rank < (value.kind == StateKind::per_rank ? ranks : 1); ++rank) known.insert(stored_name(value, rank));
  }
  for (const std::string& name : saved.names()) {
    if (known.contains(name)) continue;
    const std::string& kind = saved.kind(name);
    const bool discardable = kind == kind_text(StateKind::discardable) || name.ends_with("_history");  // older ones state no kind
    const bool of_another_stage = has_stages && !kind.empty();
    if (!discardable && !of_another_stage) unknown.push_back(name);
  }
  if (!missing.empty())
    throw DataError(path + " lacks tensors that this run needs: " + listed(missing) +
                    "; resume with the model and the optimizer that were trained");
  if (!unknown.empty()) {
    throw DataError(path + " holds tensors that this run has no place for: " + listed(unknown) +
                    "; resume with the model, optimizer, strategy and precision that were trained");
  }
}

}  // namespace consist
