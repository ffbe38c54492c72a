#include "launch/compare/places.h"

namespace consist::launch {

std::string place_of(const std::string& option, const std::filesystem::path& given, const std::string& label) {
  if (option == "--trace")
    return (given.parent_path() / (given.stem().string() + "-" + label + given.extension().string())).string();
  return (given / label).string();
}

RunConfig config_in_place(RunConfig config, const std::string& label) {
  if (label.empty()) return config;
  if (!config.checkpoint.empty()) config.checkpoint = place_of("--checkpoint", config.checkpoint, label);
  if (!config.export_folder.empty()) config.export_folder = place_of("--export", config.export_folder, label);
  if (!config.trace.empty()) config.trace = place_of("--trace", config.trace, label);
  return config;
}

}  // namespace consist::launch
