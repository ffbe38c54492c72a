// The SDK: what an installed Consist has for those who write parts of their own.
#pragma once

#include <filesystem>

namespace consist::launch {

/// The folder of the installation that this executable belongs to: include/consist, lib/cmake/Consist and share/consist/examples
/// lie in it. Throws UsageError if there is none, as in a build folder, and says how to make one.
std::filesystem::path sdk_folder();

}  // namespace consist::launch
