// Quantities as text for people.
#pragma once

#include <cstdint>
#include <string>

#include "consist/export.h"

namespace consist {

/// "1.5 GiB", "12.0 MiB", "300 B".
CONSIST_API std::string bytes_text(std::int64_t bytes);
/// Three significant digits with an SI prefix: "12.3 k", "1.20 M", "950".
CONSIST_API std::string si_text(double value);
/// A fixed number of decimals.
CONSIST_API std::string fixed_text(double value, int decimals);
/// "1:02:03", "4:05", or "12 s".
CONSIST_API std::string duration_text(double seconds);

}  // namespace consist
