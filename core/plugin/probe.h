// Asks a plugin whether it can work here, in a child process: a plugin that crashes or hangs cannot hurt the listing.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/plugin/host.h"

namespace consist {

/// Begins the line that `consist probe-plugin` prints last: the reason follows, nothing if the part can work. Plugins may print
/// before it.
inline constexpr std::string_view probe_works = "consist-probe: loaded: ", probe_refused = "consist-probe: not loaded: ";

/// Runs `consist probe-plugin FILE`, that of the installation which this library is of, and returns what it found, or what went
/// wrong with the child. Returns within `timeout`. Throws SystemError if no process can be started.
Availability probe_in_child(const std::filesystem::path& file, std::chrono::milliseconds timeout);

}  // namespace consist
