#include "core/config/option_value.h"

#include <algorithm>
#include <cmath>

#include "consist/error.h"
#include "core/base/number.h"
#include "core/base/split.h"
#include "core/config/run_facts.h"

namespace consist {
namespace {

/// A range such as "1..", "0..1" or "0..<1".
struct Range {
  std::string_view least, most;  // empty: without that end
  bool below = false;            // the upper end is not legal itself

  explicit Range(std::string_view text) {
    const std::size_t dots = std::min(text.find(".."), text.size());
    least = text.substr(0, dots);
    most = text.substr(std::min(dots + 2, text.size()));
    below = most.starts_with('<');
    if (below) most.remove_prefix(1);
  }
  template <typename T>
  bool holds(T value) const {
    double end = 0;
    if (parse_number(least, end) && static_cast<double>(value) < end) return false;
    return !parse_number(most, end) || (below ? static_cast<double>(value) < end : static_cast<double>(value) <= end);
  }
  std::string text() const {
    const std::string first(least), last(most);
    if (most.empty()) return least.empty() ? "" : "at least " + first;
    if (least.empty()) return (below ? "below " : "at most ") + last;
    return below ? "at least " + first + " and below " + last : "from " + first + " to " + last;
  }
};

const char* kind_text(OptionKind kind) {
  switch (kind) {
    case OptionKind::flag:
      return "true or false";
    case OptionKind::integer:
      return "a whole number of 64 bits";
    case OptionKind::real:
      return "a finite number";
    case OptionKind::bytes:
      return "a number of bytes such as 1000, 25M or 512Ki";
    default:
      return "";
  }
}

}  // namespace

bool is_number(OptionKind kind) noexcept {
  return kind == OptionKind::integer || kind == OptionKind::real || kind == OptionKind::bytes;
}

std::vector<std::string> choices_of(const OptionSpec& spec) {
  const std::vector<std::string_view> parts = split(spec.choices, '|');
  return {parts.begin(), parts.end()};
}

std::string legal_text(const OptionSpec& spec) {
  if (spec.kind == OptionKind::text) return "any text";
  if (spec.kind == OptionKind::choice) {
    std::string list;
    for (const std::string& choice : choices_of(spec)) list += (list.empty() ? "one of " : ", ") + choice;
    return list;
  }
  const std::string range = is_number(spec.kind) ? Range(spec.choices).text() : "";
  return kind_text(spec.kind) + (range.empty() ? "" : ", " + range);
}

std::string legal_value(const OptionSpec& spec, std::string_view value, const std::string& said) {
  const auto refuse = [&](const std::string& legal) {
    throw UsageError(said + " is '" + std::string(value) + "'; it must be " + legal);
  };
  const auto check_range = [&](auto number) {
    if (*spec.choices == '\0') return;
    const Range range(spec.choices);
    if (!range.holds(number)) refuse(range.text());
  };
  switch (spec.kind) {
    case OptionKind::flag:
      if (value == "true" || value == "1" || value == "yes" || value == "on") return "true";
      if (value == "false" || value == "0" || value == "no" || value == "off") return "false";
      refuse(legal_text(spec));
      break;
    case OptionKind::integer: {
      std::int64_t number = 0;
      if (!parse_number(value, number)) refuse(legal_text(spec));
      check_range(number);
      return std::to_string(number);
    }
    case OptionKind::real: {
      double number = 0;
      if (!parse_number(value, number) || !std::isfinite(number)) refuse(legal_text(spec));
      check_range(number);
      break;
    }
    case OptionKind::bytes: {
      std::int64_t number = 0;
      try {
        number = parse_bytes(value);
      } catch (const UsageError&) {
        refuse(legal_text(spec));
      }
      check_range(number);
      return std::to_string(number);
    }
    case OptionKind::text:
      break;
    case OptionKind::choice: {
      const std::vector<std::string> choices = choices_of(spec);
      if (std::find(choices.begin(), choices.end(), value) == choices.end()) refuse(legal_text(spec));
      break;
    }
  }
  return std::string(value);
}

std::vector<std::string> tunable_values(const OptionSpec& spec, const std::string& said) {
  return tunable_values(spec, said, RunFacts());
}

std::string value_of(std::span<const OptionSpec> table, const std::map<std::string, std::string>& given, std::string_view name) {
  const auto spec = std::find_if(table.begin(), table.end(), [&](const OptionSpec& s) { return s.name == name; });
  if (spec == table.end()) return {};
  const auto found = given.find(spec->name);
  Options options;  // which writes "yes" and "on" as "true"
  if (found == given.end()) {
    options.set_fallback(*spec);
  } else {
    options.set(*spec, found->second);
  }
  return options.all().begin()->second;
}

bool OptionNeed::is_met_by(std::string_view value) const {
  return option.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

OptionNeed need_of(const OptionSpec& spec) {
  const std::string_view text = spec.needs;
  if (text.empty()) return {};
  const std::size_t equals = std::min(text.find('='), text.size());
  OptionNeed need{std::string(text.substr(0, equals)), {}};
  for (const std::string_view value : split(text.substr(std::min(equals + 1, text.size())), '|')) need.values.emplace_back(value);
  return need;
}

}  // namespace consist
