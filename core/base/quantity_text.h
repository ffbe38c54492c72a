// Shares and times for people, beside the quantities of consist/text.h.
#pragma once

#include <string>

#include "consist/text.h"

namespace consist {

/// "12%" of a fraction of 0.12, with a fixed number of decimals.
inline std::string percent_text(double fraction, int decimals = 0) {
  return fixed_text(100 * fraction, decimals) + "%";
}

/// "12.3 ms".
inline std::string milliseconds_text(double seconds, int decimals = 1) {
  return fixed_text(seconds * 1e3, decimals) + " ms";
}

}  // namespace consist
