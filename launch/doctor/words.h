// Words that several checks use.
#pragma once

#include <string>

namespace consist::doctor {

inline constexpr const char* no_gpu = "there is no NVIDIA GPU";

/// "1 GPU", "8 GPUs".
inline std::string number_of(int count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

/// Adds one of several findings to a line.
inline void append(std::string& list, const std::string& text) {
  list += (list.empty() ? "" : "; ") + text;
}

}  // namespace consist::doctor
