#include "core/archive/archived_json.h"

namespace consist {

bool is_shallow(std::string_view text) noexcept {
  constexpr int most_depth = 32;
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if ((c == '{' || c == '[') && ++depth > most_depth) return false;
    if (c == '}' || c == ']') --depth;
  }
  return true;
}

}  // namespace consist
