// consist probe-plugin FILE: prints why the plugin cannot work on this machine, nothing if it can. Started by `consist plugins`.
#include <cstdio>

#include "consist/error.h"
#include "core/plugin/host.h"
#include "launch/commands/commands.h"

namespace consist::commands {

int probe_plugin(const Arguments& arguments) {
  if (arguments.size() != 1) throw UsageError("consist probe-plugin needs one file");
  try {
    std::puts(consist::probe_plugin(arguments[0]).c_str());
  } catch (const Error& error) {
    std::puts(error.what());
  }
  return 0;
}

}  // namespace consist::commands
