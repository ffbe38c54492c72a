// Finds the rest of Consist for a conformance program: in the build, or in the installation that it is of.
#pragma once

#include <filesystem>
#include <string>

#include "core/plugin/host.h"

namespace consist::testing {

/// The executable `consist`.
inline std::string consist_program() {
  return (executable_folder() / "consist").string();
}

/// A folder with a tiny model in Hugging Face's format, one of those that tests/conformance/CMakeLists.txt installs:
/// "qwen3-tied".
inline std::string tiny_model(const std::string& name) {
  const std::filesystem::path installed = executable_folder().parent_path() / "share/consist/conformance";
  std::error_code ignored;
  return std::filesystem::exists(installed, ignored) ? (installed / name).string()
                                                     : CONSIST_SOURCE_DIR "/tests/golden/hf/" + name;
}

}  // namespace consist::testing
