#include "consist/rdma.h"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace consist {
namespace {

namespace fs = std::filesystem;

/// By name; none where the folder cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::vector<RdmaDevice> rdma_devices(const fs::path& folder) {
  std::vector<RdmaDevice> devices;
  for (const std::string& name : names_in(folder)) {
    std::error_code none;
    RdmaDevice device{name, fs::read_symlink(folder / name / "device/driver", none).filename().string(), {}};
    for (const std::string& number : names_in(folder / name / "ports")) {
      const fs::path port = folder / name / "ports" / number;
      const std::string state = line_of(port / "state");  // "4: ACTIVE"
      const std::size_t colon = state.find(": ");
      device.ports.push_back({name + ", port " + number, colon == std::string::npos ? state : state.substr(colon + 2),
                              line_of(port / "rate"), line_of(port / "link_layer")});
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace consist
