// The machine as checks see it. Tests replace it by a made-up one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/child_output.h"
#include "core/job/environment.h"
#include "core/plugin/host.h"

namespace consist::doctor {

/// A plugin of this build.
struct PluginState {
  std::string kind, name;
  bool with_cuda = false;
  Availability found;
};

/// A file system.
struct Space {
  std::int64_t bytes = 0;
  std::int64_t free_bytes = 0;  ///< for an ordinary user
  bool writable = false;
};

struct Machine {
  std::filesystem::path root = "/";  ///< proc, sys and dev are below
  std::string host;                  ///< its name
  int processors = 1;                ///< that this process may be scheduled on
  GetEnvironment environment;
  /// Runs a program; nothing if it is not there.
  std::function<std::optional<ChildOutput>(const std::vector<std::string>& words)> run;
  std::function<std::vector<PluginState>()> plugins;
  std::function<std::optional<Space>(const std::string& folder)> space;
  // Each returns why it does not work, and nothing where it does.
  std::function<std::string(const std::string& host)> resolve_problem;
  std::function<std::string(std::uint16_t port)> listen_problem;
  std::function<std::string()> loopback_problem;
  std::function<std::optional<bool>()> clock_is_synchronized;

  /// The text of a file below the root, without its last line's end; nothing if it cannot be read.
  std::optional<std::string> read(const std::string& path) const;
  /// Names of what is in a folder below the root, in order.
  std::vector<std::string> names_in(const std::string& path) const;
  bool has(const std::string& path) const;
  /// The value of an environment variable; nothing if it is not set.
  std::optional<std::string> variable(const char* name) const { return environment(name); }
};

/// The machine that this process runs on. `plugins` as --plugin gives them.
Machine this_machine(std::vector<std::string> plugins);

}  // namespace consist::doctor
