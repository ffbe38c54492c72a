// Hugging Face's config.json.
#pragma once

#include <string>
#include <string_view>

#include "models/decoder/decoder.h"

namespace consist::decoder {

/// What a family expects of fields that its files may leave out.
struct Family {
  bool qkv_bias = false;
  bool qk_norm = false;
};

/// Reads a config.json. Fields that do not change the computation are ignored; one that does and is not understood is a DataError by name.
Config parse_config_json(std::string_view json, const Family& family);

/// The config.json that transformers loads the model from.
std::string to_config_json(const Config& config);

}  // namespace consist::decoder
