#include "launch/import/common/target.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::readers {
namespace {

/// The end of what is said of a key whose option the command line gives.
constexpr const char* goes_before = " is given and goes before the file";

}  // namespace

bool is_auto(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>() == "auto";
}

std::string as_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<std::int64_t>(value));
  // The fewest digits that are read as the same number.
  for (int digits = 6;; digits = 17) {
    std::ostringstream text;
    text.precision(digits);
    text << value;
    if (digits == 17 || std::stod(text.str()) == value) return text.str();
  }
}
std::string as_text(std::int64_t value) {
  return std::to_string(value);
}
std::string as_text(std::uint64_t value) {
  return std::to_string(value);
}
std::string as_text(int value) {
  return std::to_string(value);
}
std::string as_text(bool value) {
  return value ? "on" : "off";
}
std::string as_text(const std::string& value) {
  return value;
}
void Target::refuse(const std::string& key, const std::string& why) const {
  throw UsageError(where() + printable(key) + " " + why);
}

void Target::attempt(const std::function<void()>& step) {
  try {
    step();
  } catch (const UsageError& refusal) {
    const std::string text = refusal.what();
    refusals_.push_back(text.starts_with(where()) ? text.substr(where().size()) : text);
  }
}

void Target::throw_refusals() const {
  if (refusals_.empty()) return;
  std::string text = where();
  if (refusals_.size() > 1) text += std::to_string(refusals_.size()) + " things are not done here:";
  for (const std::string& refusal : refusals_) text += (refusals_.size() > 1 ? "\n  " : "") + refusal;
  throw UsageError(text);
}

void Target::refuse_other(const std::string& key, const Json& value, const std::string& given) {
  if (source.command_line_first) return note(key, value, given + goes_before);
  refuse(key, "is " + shown(value) + ", but " + given + " is given; leave one of them out");
}

void Target::state_real(const std::string& key, const Json& value, const std::string& option, double& target) {
  if (is_auto(value)) {
    resolve(key, value, option, target);
    stated.insert(option);
  } else {
    state(key, value, option, target, number(key, value));
  }
}

void Target::note(const std::string& key, const Json& value, const std::string& what) {
  const Fate fate = what.starts_with("no effect") ? Fate::without_effect
                    : what.ends_with(goes_before) ? Fate::behind_command_line
                                                  : Fate::honoured;
  fates_[printable(key)] = fate;
  detail(printable(key) + " " + shown(value) + ": " + what);
}

void Target::detail(const std::string& text) {
  details_.push_back(source.format + " " + text);
}

void Target::differs(const std::string& text) {
  config.notes.push_back(source.format + " " + text);
}

double Target::number(const std::string& key, const Json& value) const {
  if (!value.is_number()) refuse(key, "is " + shown(value) + "; it must be a number or \"auto\"");
  return value.get<double>();
}

std::int64_t Target::whole(const std::string& key, const Json& value, std::int64_t least, std::int64_t most) const {
  const double read = number(key, value);  // of integers beyond 2^53 the nearest, which is out of any range here as well
  if (read != std::floor(read) || read < static_cast<double>(least) || read > static_cast<double>(most)) {
    refuse(key,
           "is " + shown(value) + "; it must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<std::int64_t>(read);
}

bool Target::truth(const std::string& key, const Json& value) const {
  if (!value.is_boolean()) refuse(key, "is " + shown(value) + "; it must be true, false or \"auto\"");
  return value.get<bool>();
}

void Target::state_plugin(const std::string& key, const Json& value, const std::string& plugin, const std::string& option,
                          const std::string& text) {
  const std::string name = "--" + plugin + "." + option;
  const auto [known, is_new] = config.plugin_options[plugin].emplace(option, text);
  if (!is_new && known->second != text && !stated_of_plugins_.contains(name))
    return refuse_other(key, value, name + " " + known->second);
  known->second = text;
  stated_of_plugins_.insert(name);
  note(key, value, name + " " + text);
}

void Target::derive_plugin(const std::string& from, const std::string& plugin, const std::string& option,
                           const std::string& text) {
  const std::string name = "--" + plugin + "." + option;
  const auto [known, is_new] = config.plugin_options[plugin].emplace(option, text);
  const bool is_given = !is_new && !stated_of_plugins_.contains(name);
  if (!is_given) {
    known->second = text;
    stated_of_plugins_.insert(name);
  }
  detail(from + ": " + name + " " + (is_given ? known->second + " is given" : text));
}

void Target::state_strategies(const std::string& key, const std::vector<StrategyChoice>& strategies) {
  const bool is_given = context.given("strategy");
  if (!is_given) {
    config.strategies = strategies;
    stated.insert("strategy");
  }
  const std::string asked = key + ": --strategy " + text_of(strategies);
  if (!is_given) return detail(asked);
  differs(asked + "; --strategy " + text_of(config.strategies) + goes_before);
}

void Target::keep_plugin(const std::string& key, const Json& value, const std::string& plugin, const std::string& option) {
  const auto given = config.plugin_options.find(plugin);
  const bool is_given = given != config.plugin_options.end() && given->second.contains(option);
  note(key, value, "--" + plugin + "." + option + (is_given ? " " + given->second.at(option) : " as it is without the file"));
}

void Target::absent_plugin(const std::string& key, const std::string& plugin, const std::string& option,
                           const std::string& fallback) {
  if (!config.plugin_options[plugin].emplace(option, fallback).second) return;
  stated_of_plugins_.insert("--" + plugin + "." + option);
  defaults_.push_back("--" + plugin + "." + option + " " + fallback + " (" + key + ")");
}

std::string Target::keys_of(Fate fate) const {
  std::string keys;
  for (const auto& [key, of_key] : fates_) {
    if (of_key == fate) keys += (keys.empty() ? "" : ", ") + key;
  }
  return keys;
}

void Target::summarize() {
  std::string defaults;
  for (const std::string& entry : defaults_) defaults += (defaults.empty() ? "" : ", ") + entry;
  if (!defaults.empty()) detail("keys that are absent have " + source.trainer + "'s defaults: " + defaults);
  std::vector<std::string> lines = details_;
  if (!context.each_key) {
    const auto honoured =
        std::count_if(fates_.begin(), fates_.end(), [](const auto& of_key) { return of_key.second == Fate::honoured; });
    std::string line = source.option + " " + printable(source.path) + ", of " + source.trainer + ": " + std::to_string(honoured) +
                       (honoured == 1 ? " key is taken over" : " keys are taken over");
    if (!defaults_.empty())
      line +=
          ", " + std::to_string(defaults_.size()) + (defaults_.size() == 1 ? " option has" : " options have") + " its defaults";
    lines = {line + "; --from-notes says what became of each key"};
    const std::string ignored = keys_of(Fate::without_effect), replaced = keys_of(Fate::behind_command_line);
    if (!ignored.empty()) lines.push_back(source.format + " keys without effect here: " + ignored);
    if (!replaced.empty()) lines.push_back(source.format + " keys behind what the command line gives: " + replaced);
  }
  config.notes.insert(config.notes.begin() + static_cast<std::ptrdiff_t>(first_note_), lines.begin(), lines.end());
}

}  // namespace consist::readers
