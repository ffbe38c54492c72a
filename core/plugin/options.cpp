#include "consist/options.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "consist/error.h"

namespace consist {
namespace {

struct Suffix {
  std::string_view text;
  std::int64_t factor;
};
constexpr Suffix suffixes[] = {{"Ki", 1LL << 10}, {"Mi", 1LL << 20}, {"Gi", 1LL << 30}, {"Ti", 1LL << 40},
                               {"k", 1000},       {"M", 1000000},    {"G", 1000000000}, {"T", 1000000000000}};

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool is_number(const OptionSpec& spec) {
  return spec.kind == OptionKind::integer || spec.kind == OptionKind::real || spec.kind == OptionKind::bytes;
}

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
  bool holds(double value) const {
    double end = 0;
    if (parse_number(least, end) && value < end) return false;
    return !parse_number(most, end) || (below ? value < end : value <= end);
  }
  std::string text() const {
    const std::string first(least), last(most);
    if (most.empty()) return "at least " + first;
    if (least.empty()) return (below ? "below " : "at most ") + last;
    return below ? "at least " + first + " and below " + last : "from " + first + " to " + last;
  }
};

std::vector<std::string_view> choices_of(const OptionSpec& spec) {
  std::vector<std::string_view> choices;
  const std::string_view all = spec.choices;
  for (std::size_t begin = 0; begin <= all.size();) {
    const std::size_t end = std::min(all.find('|', begin), all.size());
    choices.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  std::string_view number = text;
  std::int64_t factor = 1;
  for (const Suffix& suffix : suffixes) {
    if (!text.ends_with(suffix.text)) continue;
    number.remove_suffix(suffix.text.size());
    factor = suffix.factor;
    break;
  }
  std::int64_t value = 0;
  if (!parse_number(number, value) || value < 0 || value > std::numeric_limits<std::int64_t>::max() / factor) {
    throw UsageError("'" + std::string(text) +
                     "' is no number of bytes; write for example 1000, 25M or 512Ki (k, M, G, T; Ki, Mi, Gi, Ti)");
  }
  return value * factor;
}

void Options::set(const OptionSpec& spec, std::string_view value) {
  const std::string option = "--" + owner_ + "." + spec.name;
  auto refuse = [&](const std::string& legal) -> void {
    throw UsageError(option + " is '" + std::string(value) + "'; it must be " + legal);
  };
  const auto within_range = [&](double number) {
    const Range range(spec.choices);
    if (*spec.choices != '\0' && !range.holds(number)) refuse(range.text());
  };
  std::string stored(value);
  switch (spec.kind) {
    case OptionKind::flag:
      if (value == "true" || value == "1" || value == "yes" || value == "on") {
        stored = "true";
      } else if (value == "false" || value == "0" || value == "no" || value == "off") {
        stored = "false";
      } else {
        refuse("true or false");
      }
      break;
    case OptionKind::integer: {
      std::int64_t number = 0;
      if (!parse_number(value, number)) refuse("an integer of 64 bits");
      within_range(static_cast<double>(number));
      stored = std::to_string(number);
      break;
    }
    case OptionKind::real: {
      double number = 0;
      if (!parse_number(value, number) || !std::isfinite(number)) refuse("a finite number");
      within_range(number);
      break;
    }
    case OptionKind::bytes:
      try {
        stored = std::to_string(parse_bytes(value));
      } catch (const UsageError&) {
        refuse("a number of bytes such as 1000, 25M or 512Ki");
      }
      within_range(std::stod(stored));
      break;
    case OptionKind::text:
      break;
    case OptionKind::choice: {
      bool legal = false;
      std::string list;
      for (std::string_view choice : choices_of(spec)) {
        legal |= choice == value;
        list += (list.empty() ? "" : ", ") + std::string(choice);
      }
      if (!legal) refuse("one of " + list);
      break;
    }
  }
  values_[spec.name] = std::move(stored);
}

void Options::set_fallback(const OptionSpec& spec) {
  if (is_number(spec) && *spec.fallback == '\0') {
    values_[spec.name].clear();
  } else {
    set(spec, spec.fallback);
  }
}

const std::string& Options::raw(std::string_view name) const {
  auto value = values_.find(name);
  if (value == values_.end())
    throw Error("plugin '" + owner_ + "' reads the option '" + std::string(name) + "', which is not in its table");
  return value->second;
}

bool Options::flag(std::string_view name) const {
  const std::string& value = raw(name);
  if (value != "true" && value != "false")
    throw Error("option '" + std::string(name) + "' of plugin '" + owner_ + "' is no flag");
  return value == "true";
}

std::int64_t Options::integer(std::string_view name) const {
  std::int64_t value = 0;
  if (!parse_number(raw(name), value)) throw Error("option '" + std::string(name) + "' of plugin '" + owner_ + "' is no integer");
  return value;
}

double Options::real(std::string_view name) const {
  double value = 0;
  if (!parse_number(raw(name), value)) throw Error("option '" + std::string(name) + "' of plugin '" + owner_ + "' is no number");
  return value;
}

const std::string& Options::text(std::string_view name) const {
  return raw(name);
}

}  // namespace consist
