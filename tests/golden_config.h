// The config.json of a golden model (a folder of tests/golden/hf) with some fields replaced.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace consist::test {

/// Kinds of layers are listed one by one in these files: with another number of layers and no list of their own, none are named.
inline nlohmann::json golden_config(const std::string& golden, const nlohmann::json& changes = nlohmann::json::object()) {
  std::ifstream file(std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/" + golden + "/config.json");
  nlohmann::json config = nlohmann::json::parse(file);
  if (changes.contains("num_hidden_layers")) config.erase("layer_types");
  config.update(changes);
  return config;
}

}  // namespace consist::test
