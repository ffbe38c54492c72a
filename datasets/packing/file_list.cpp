#include "datasets/packing/file_list.h"

#include <algorithm>
#include <filesystem>

#include "consist/error.h"

namespace consist::packing {

namespace fs = std::filesystem;

std::vector<std::string> list_files(const std::string& files, const std::string& option) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin <= files.size();) {
    const std::size_t end = std::min(files.find(',', begin), files.size());
    const std::string item = files.substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) throw UsageError("--" + option + " has an empty name in '" + files + "'");
    std::error_code error;
    if (!fs::exists(item, error)) throw UsageError("--" + option + ": there is no file or folder " + item);
    if (!fs::is_directory(item, error)) {
      found.push_back(item);
      continue;
    }
    std::vector<std::string> inside;
    for (const fs::directory_entry& entry : fs::directory_iterator(item, error)) {
      if (entry.is_regular_file(error) && entry.path().filename().string()[0] != '.') inside.push_back(entry.path().string());
    }
    if (error) throw SystemError("--" + option + ": the folder " + item + " cannot be read: " + error.message());
    if (inside.empty()) throw UsageError("--" + option + ": the folder " + item + " has no files");
    std::sort(inside.begin(), inside.end());
    found.insert(found.end(), inside.begin(), inside.end());
  }
  return found;
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string shipped_path(const std::string& name) {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  const fs::path path = executable.parent_path().parent_path() / "share" / "consist" / "datasets" / name;
  if (!fs::exists(path, error))
    throw SystemError("the installation lacks " + path.string() + ", which ships with Consist; install it again");
  return path.string();
}

std::string count_of(long long count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace consist::packing
