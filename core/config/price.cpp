#include "core/config/price.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "consist/error.h"
#include "core/base/lower.h"
#include "core/base/number.h"
#include "core/base/split.h"

namespace consist {
Price::Price(const std::string& text) {
  if (text.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw UsageError("--price is '" + text + "'; " + why +
                     ". Write the price of a GPU and hour, 2.5, or one for each machine, h200=2.5,a100=1.2");
  };
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    const bool named = equals != std::string_view::npos;
    const std::string name = lower(named ? part.substr(0, equals) : std::string_view());
    const std::string_view number = named ? part.substr(equals + 1) : part;
    double value = 0;
    if (!parse_number(number, value) || !std::isfinite(value) || value < 0)
      refuse("'" + std::string(number) + "' is no number from 0 on");
    if (named && name.empty()) refuse("a name is missing before '='");
    if (!named && text.find(',') != std::string::npos) refuse("in a list each price needs its machine");
    if (std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == name; }))
      refuse("'" + name + "' stands there twice");
    entries_.emplace_back(name, value);
  }
}

std::optional<double> Price::of(std::string_view machine, std::string_view device) const {
  const std::string planned_for = lower(machine), name = lower(device);
  for (const auto& [entry, price] : entries_) {
    if (entry.empty() || entry == planned_for) return price;
  }
  for (const auto& [entry, price] : entries_) {
    if (name.find(entry) != std::string::npos) return price;
  }
  return std::nullopt;
}

}  // namespace consist
