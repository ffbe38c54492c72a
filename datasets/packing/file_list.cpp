#include "datasets/packing/file_list.h"

#include <algorithm>
#include <filesystem>

#include "consist/error.h"

namespace consist::packing {

namespace fs = std::filesystem;

std::vector<std::string> list_files(const std::vector<std::string>& items, const std::string& what) {
  std::vector<std::string> found;
  for (const std::string& item : items) {
    if (item.empty()) throw UsageError(what + ": a name is empty");
    std::error_code error;
    if (!fs::exists(item, error)) throw UsageError(what + ": there is no file or folder " + item);
    if (!fs::is_directory(item, error)) {
      found.push_back(item);
      continue;
    }
    std::vector<std::string> inside;
    for (fs::directory_iterator entry(item, error), end; !error && entry != end; entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_regular_file(ignored) && entry->path().filename().string()[0] != '.')
        inside.push_back(entry->path().string());
    }
    if (error) throw SystemError(what + ": the folder " + item + " cannot be read: " + error.message());
    if (inside.empty()) throw UsageError(what + ": the folder " + item + " has no files");
    std::sort(inside.begin(), inside.end());
    found.insert(found.end(), inside.begin(), inside.end());
  }
  return found;
}

std::vector<std::string> list_files(const std::string& items, const std::string& what) {
  std::vector<std::string> split;
  for (std::size_t begin = 0; begin <= items.size();) {
    const std::size_t end = std::min(items.find(',', begin), items.size());
    split.push_back(items.substr(begin, end - begin));
    begin = end + 1;
  }
  return list_files(split, what);
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
