#include "core/config/optimizer_rules.h"

#include <charconv>
#include <optional>

#include "consist/error.h"
#include "core/base/number.h"
#include "core/base/split.h"
#include "core/program/name_patterns.h"

namespace consist {
namespace {

constexpr const char* rules_option = "--optimizer-rules";
constexpr double most_of_a_rule = 1e6;

[[noreturn]] void refuse_rule(std::string_view rule, const std::string& why) {
  throw UsageError(std::string(rules_option) + " '" + std::string(rule) + "': " + why + "; write for example " + rules_option +
                   " 'lm_head*:lr-factor=0.1;*proj.weight:optimizer=muon,weight-decay=0'");
}

double number_in(std::string_view rule, std::string_view key, std::string_view value) {
  double number = 0;
  if (!parse_number(value, number) || !(number >= 0 && number <= most_of_a_rule))
    refuse_rule(rule, std::string(key) + " is '" + std::string(value) + "', which is no number from 0 to 1000000");
  return number;
}

void set_key(OptimizerRule& parsed, std::string_view rule, std::string_view setting) {
  const std::size_t equals = setting.find('=');
  const std::string_view key = setting.substr(0, equals),
                         value = equals == std::string_view::npos ? std::string_view() : setting.substr(equals + 1);
  if (value.empty()) refuse_rule(rule, "'" + std::string(setting) + "' has no value");
  if (key == "lr-factor") {
    parsed.rate_factor = number_in(rule, key, value);
  } else if (key == "weight-decay") {
    parsed.weight_decay = number_in(rule, key, value);
  } else if (key == "optimizer") {
    parsed.optimizer = value;
  } else {
    refuse_rule(rule, "there is no '" + std::string(key) + "', but lr-factor (of --learning-rate), weight-decay and optimizer");
  }
}

/// As few digits as give the same number again.
std::string shortest_text(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

}  // namespace

std::vector<OptimizerRule> parse_optimizer_rules(const std::string& text) {
  std::vector<OptimizerRule> rules;
  if (text.empty()) return rules;
  for (const std::string_view rule : split(text, ';')) {
    const std::size_t colon = rule.find(':');
    if (colon == 0 || colon == std::string_view::npos || colon + 1 == rule.size())
      refuse_rule(rule, "a rule is patterns of names, a colon, and what holds for them");
    OptimizerRule parsed{.patterns = parse_patterns(rules_option, std::string(rule.substr(0, colon)))};
    for (const std::string_view setting : split(rule.substr(colon + 1), ',')) set_key(parsed, rule, setting);
    rules.push_back(std::move(parsed));
  }
  return rules;
}

std::string text_of(const std::vector<OptimizerRule>& rules) {
  std::string text;
  for (const OptimizerRule& rule : rules) {
    std::string settings;
    const auto add = [&](const char* key, const std::string& value) {
      settings += (settings.empty() ? "" : ",") + std::string(key) + "=" + value;
    };
    if (!rule.optimizer.empty()) add("optimizer", rule.optimizer);
    if (rule.weight_decay) add("weight-decay", shortest_text(*rule.weight_decay));
    if (rule.rate_factor != 1 || settings.empty()) add("lr-factor", shortest_text(rule.rate_factor));
    text += (text.empty() ? "" : ";") + patterns_text(rule.patterns) + ":" + settings;
  }
  return text;
}

}  // namespace consist
