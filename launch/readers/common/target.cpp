#include "launch/readers/common/target.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::readers {

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
  if (source.command_line_first) return note(key, value, given + " is given and goes before the file");
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
  config.notes.push_back(source.format + " " + printable(key) + " " + shown(value) + ": " + what);
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
  config.notes.push_back(source.format + " " + from + ": " + name + " " + (is_given ? known->second + " is given" : text));
}

void Target::state_strategies(const std::string& key, const std::vector<StrategyChoice>& strategies) {
  const bool is_given = context.given("strategy");
  if (!is_given) {
    config.strategies = strategies;
    stated.insert("strategy");
  }
  config.notes.push_back(source.format + " " + key + ": --strategy " + text_of(strategies) +
                         (is_given ? "; --strategy " + text_of(config.strategies) + " is given and goes before the file" : ""));
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

void Target::note_defaults() {
  if (defaults_.empty()) return;
  std::string list;
  for (const std::string& entry : defaults_) list += (list.empty() ? "" : ", ") + entry;
  config.notes.push_back(source.format + " keys that are absent have " + source.trainer + "'s defaults: " + list);
}

}  // namespace consist::readers
