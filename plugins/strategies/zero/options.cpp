#include "plugins/strategies/zero/options.h"

#include <cmath>

#include "consist/error.h"

namespace consist::zero {

std::int64_t elements(const Options& options, const char* strategy, std::string_view name, std::int64_t least) {
  const double value = options.real(name);
  constexpr double most = 1e15;  // counts below are exact as a double
  if (value < static_cast<double>(least) || value > most || value != std::floor(value)) {
    throw UsageError("--" + std::string(strategy) + "." + std::string(name) +
                     " counts elements; it must be a whole number from " + std::to_string(least) + " to 1e15");
  }
  return static_cast<std::int64_t>(value);
}

}  // namespace consist::zero
