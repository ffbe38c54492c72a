#include "consist/options.h"

#include <limits>

#include "consist/error.h"
#include "core/base/number.h"
#include "core/config/option_value.h"

namespace consist {
namespace {

struct Suffix {
  std::string_view text;
  std::int64_t factor;
};
constexpr Suffix suffixes[] = {{"Ki", 1LL << 10}, {"Mi", 1LL << 20}, {"Gi", 1LL << 30}, {"Ti", 1LL << 40},
                               {"k", 1000},       {"M", 1000000},    {"G", 1000000000}, {"T", 1000000000000}};

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
  values_[spec.name] = legal_value(spec, value, "--" + owner_ + "." + spec.name);
}

void Options::set_fallback(const OptionSpec& spec) {
  if (is_number(spec.kind) && *spec.fallback == '\0') {
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
