#include "consist/text.h"

#include <cmath>
#include <cstdio>

namespace consist {

std::string fixed_text(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  const char* unit = "";
  double value = static_cast<double>(bytes);
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    value /= 1024.0;
    unit = next;
    if (value < 1024.0) break;
  }
  return fixed_text(value, value < 100 ? 1 : 0) + " " + unit;
}

std::string si_text(double value) {
  const char* prefix = "";
  for (const char* next : {" k", " M", " G", " T", " P"}) {
    if (std::abs(value) < 1000.0) break;
    value /= 1000.0;
    prefix = next;
  }
  const double size = std::abs(value);
  return fixed_text(value, size < 10 ? 2 : size < 100 ? 1 : 0) + prefix;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  char text[64];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  } else if (whole >= 60) {
    std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  }
  return text;
}

}  // namespace consist
