// consist sdk: the folders of this installation that plugins are built with.
#include <cstdio>
#include <filesystem>
#include <string>

#include "consist/error.h"
#include "launch/commands/commands.h"
#include "launch/templates/sdk_folder.h"

namespace consist::commands {
namespace {

namespace fs = std::filesystem;

constexpr RunOption sdk_options[] = {
    a_switch("prefix", "the installation's folder, for CMAKE_PREFIX_PATH; what is printed without an option"),
    a_switch("cmake", "the folder of the CMake package, for Consist_DIR"),
    a_switch("include", "the folder of the public headers"),
};

int sdk(const CommandLine& line) {
  const fs::path prefix = launch::sdk_folder();
  const int asked = line.flag("prefix") + line.flag("cmake") + line.flag("include");
  if (asked > 1) throw UsageError("--prefix, --cmake and --include are given together; leave all but one out");
  std::printf("%s\n", (line.flag("cmake")     ? prefix / "lib" / "cmake" / "Consist"
                       : line.flag("include") ? prefix / "include"
                                              : prefix)
                          .c_str());
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
