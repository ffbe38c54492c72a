// Runs this executable as a child and reads what it says.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace consist::launch {

/// Starts /proc/self/exe with `arguments`, hands each line of its standard output and error to `on_line` as it comes, and waits
/// for the end. Returns the exit status, 128 + n for signal n. Signals to the terminal's foreground reach the child by
/// themselves; the system kills it if this process dies. Throws SystemError if it cannot be started.
int run_child(const std::vector<std::string>& arguments, const std::function<void(const std::string& line)>& on_line);

}  // namespace consist::launch
