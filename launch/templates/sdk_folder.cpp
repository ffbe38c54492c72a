#include "launch/templates/sdk_folder.h"

#include "consist/error.h"

namespace consist::launch {

namespace fs = std::filesystem;

fs::path sdk_folder() {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  if (!fs::exists(prefix / "lib/cmake/Consist/ConsistConfig.cmake") || !fs::exists(prefix / "include/consist/plugin.h"))
    throw UsageError("there is no SDK around this executable: " + prefix.string() +
                     " lacks include/consist or lib/cmake/Consist. A build folder has none: run cmake --install BUILD --prefix "
                     "FOLDER, then FOLDER/bin/consist sdk. Debian's package libconsist-dev has it, and so has the wheel");
  return prefix;
}

}  // namespace consist::launch
