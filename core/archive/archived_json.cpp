#include "core/archive/archived_json.h"

#include "core/base/option_name.h"

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

nlohmann::json archived_config(std::string_view text) {
  using nlohmann::json;
  json config = archived_json(text);
  if (!config.is_object()) return config;
  for (const char* key : {"plugin_options", "chosen_options"}) {
    const auto owners = config.find(key);
    if (owners == config.end() || !owners->is_object()) continue;
    for (auto& options : *owners) {
      if (!options.is_object()) continue;
      json spelled = json::object();
      for (const auto& [option, value] : options.items()) spelled[with_dashes(option)] = value;
      options = std::move(spelled);
    }
  }
  return config;
}

}  // namespace consist
