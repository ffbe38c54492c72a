// Files as options name them.
#pragma once

#include <string>
#include <vector>

namespace consist::packing {

/// `files` is a list with commas between its items; a folder stands for the regular files in it, in the order of their names
/// (hidden ones left out). Throws UsageError, naming `option`, if something does not exist or a folder is empty.
std::vector<std::string> list_files(const std::string& files, const std::string& option);

bool file_exists(const std::string& path);

/// A file or folder that ships with Consist, such as "text/tokenizer.json": <prefix>/share/consist/datasets/..., the prefix being
/// that of the running executable. Throws SystemError if it is not there.
std::string shipped_path(const std::string& name);

/// "1 file", "3 files".
std::string count_of(long long count, const std::string& noun);

}  // namespace consist::packing
