// Files as options name them.
#pragma once

#include <string>
#include <vector>

namespace consist::packing {

/// The files that `items` name; a folder stands for the regular files in it, in the order of their names (hidden ones left out).
/// Throws UsageError, beginning with `what` ("--text.files"), if something does not exist or a folder is empty.
std::vector<std::string> list_files(const std::vector<std::string>& items, const std::string& what);

/// The same for an option's value, with commas between the items.
std::vector<std::string> list_files(const std::string& items, const std::string& what);

bool file_exists(const std::string& path);

/// A file or folder that ships with Consist, such as "text/tokenizer.json": <prefix>/share/consist/datasets/..., the prefix being
/// that of the running executable. Throws SystemError if it is not there.
std::string shipped_path(const std::string& name);

/// "1 file", "3 files".
std::string count_of(long long count, const std::string& noun);

}  // namespace consist::packing
