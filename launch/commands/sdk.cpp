// consist sdk: the folders of this installation that plugins are built with.
#include <cstdio>
#include <filesystem>
#include <string>

#include "consist/error.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

namespace fs = std::filesystem;

constexpr RunOption sdk_options[] = {
    a_switch("prefix", "the installation's folder, for CMAKE_PREFIX_PATH; what is printed without an option"),
    a_switch("cmake", "the folder of the CMake package, for Consist_DIR"),
    a_switch("include", "the folder of the public headers"),
};

int sdk(const CommandLine& line) {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const fs::path cmake = prefix / "lib" / "cmake" / "Consist", include = prefix / "include";
  if (!fs::exists(cmake / "ConsistConfig.cmake") || !fs::exists(include / "consist" / "plugin.h"))
    throw UsageError("there is no SDK around this executable: " + prefix.string() +
                     " lacks include/consist or lib/cmake/Consist. A build folder has none: run cmake --install BUILD --prefix "
                     "FOLDER, then FOLDER/bin/consist sdk. Debian's package libconsist-dev has it, and so has the wheel");
  const int asked = line.flag("prefix") + line.flag("cmake") + line.flag("include");
  if (asked > 1) throw UsageError("--prefix, --cmake and --include are given together; leave all but one out");
  std::printf("%s\n", (line.flag("cmake") ? cmake : line.flag("include") ? include : prefix).c_str());
  return 0;
}

}  // namespace

constinit const Command sdk_command{
    .name = "sdk",
    .summary = "print where the headers and the CMake package for plugins are",
    .usage = "[--prefix | --cmake | --include]",
    .about = "Prints a folder of this installation, with which plugins are built elsewhere (docs/plugins.md).\n",
    .own = sdk_options,
    .example = "cmake -B build -DCMAKE_PREFIX_PATH=$(consist sdk)\n",
    .run = sdk};

}  // namespace consist::commands
