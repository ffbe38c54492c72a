// A tree as YAML, for people and for kubectl.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace consist::launch {

/// Texts are in quotes, those of several lines block literals.
std::string yaml_text(const nlohmann::ordered_json& tree);

}  // namespace consist::launch
