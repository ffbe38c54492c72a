// Numbers as whole texts.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace consist {

/// True if the whole text is a number of that type, which `value` then is; in any locale. `base...` is that of whole numbers,
/// where it is not 10.
template <typename T, typename... Base>
bool parse_number(std::string_view text, T& value, Base... base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace consist
