// Asks a plugin whether it can work here, in a child process: a plugin that crashes or hangs cannot hurt the listing.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace consist {

/// Runs `<this executable> probe-plugin FILE`; returns the reason it prints (empty: available), or what went wrong with the child.
std::string probe_in_child(const std::filesystem::path& file, std::chrono::milliseconds timeout);

}  // namespace consist
