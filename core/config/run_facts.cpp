#include "core/config/run_facts.h"

#include <algorithm>

#include "consist/error.h"
#include "core/base/split.h"
#include "core/config/option_value.h"

namespace consist {
namespace {

constexpr std::string_view beside_stages = " beside stages";

std::string_view without_mark(std::string_view entry) {
  if (entry.ends_with(beside_stages)) entry.remove_suffix(beside_stages.size());
  return entry;
}

/// Adds what an entry of OptionSpec::tunable stands for, but divisors that are there already.
void add_tunable(std::vector<std::string>& values, std::string_view entry, const RunFacts& facts) {
  if (entry != "divisors(layers)") {
    values.emplace_back(without_mark(entry));
    return;
  }
  for (std::int64_t divisor = 2; divisor * facts.stages <= facts.layers; ++divisor) {
    const std::string text = std::to_string(divisor);
    if (facts.layers % divisor == 0 && std::find(values.begin(), values.end(), text) == values.end()) values.push_back(text);
  }
}

}  // namespace

std::string default_of(const OptionSpec& spec, const RunFacts& facts) {
  if (facts.stages > 1 && *spec.tunable != '\0') {
    for (const std::string_view entry : split(spec.tunable, '|')) {
      if (entry.ends_with(beside_stages)) return std::string(without_mark(entry));
    }
  }
  return spec.fallback;
}

std::vector<std::string> tunable_values(const OptionSpec& spec, const std::string& said, const RunFacts& facts) {
  std::vector<std::string> values, legal;
  if (*spec.tunable == '\0') return values;
  for (const std::string_view entry : split(spec.tunable, '|')) add_tunable(values, entry, facts);
  for (const std::string& value : values) {
    legal.push_back(legal_value(spec, value, "a tunable value of " + said));
    if (std::count(legal.begin(), legal.end(), legal.back()) > 1)
      throw UsageError("the tunable values of " + said + " name '" + value + "' twice");
  }
  const auto find = [&](const std::string& value) {
    return std::find(legal.begin(), legal.end(), legal_value(spec, value, "the default of " + said));
  };
  if (find(spec.fallback) == legal.end())
    throw UsageError("the tunable values of " + said + " are '" + spec.tunable + "', without its default, '" + spec.fallback + "'");
  const auto place = find(default_of(spec, facts)) - legal.begin();
  std::rotate(values.begin(), values.begin() + place, values.begin() + place + 1);
  return values;
}

std::string value_of(std::span<const OptionSpec> table, const std::map<std::string, std::string>& given, std::string_view name,
                     const RunFacts& facts) {
  std::map<std::string, std::string> known = given;
  known.merge(defaults_by_facts(table, given, facts));
  return value_of(table, known, name);
}

std::map<std::string, std::string> defaults_by_facts(std::span<const OptionSpec> table,
                                                     const std::map<std::string, std::string>& given, const RunFacts& facts) {
  std::map<std::string, std::string> defaults;
  for (const OptionSpec& spec : table) {
    const std::string value = default_of(spec, facts);
    if (value != spec.fallback && !given.contains(spec.name)) defaults[spec.name] = value;
  }
  return defaults;
}

}  // namespace consist
