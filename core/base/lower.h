// ASCII in lower case, as names are compared.
#pragma once

#include <string>
#include <string_view>

namespace consist {

/// Bytes that are no ASCII letters stay.
inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace consist
