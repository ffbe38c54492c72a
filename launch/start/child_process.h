// Runs this executable as a child and reads what it says.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace consist::launch {

/// Starts /proc/self/exe with `arguments`, hands each line of its standard output and error to `on_line` as it comes, and waits
/// for the end. Returns the exit status, 128 + n for signal n. When `signal`, if given, becomes the number of a signal (by a
/// signal handler of this process, say), the child gets that signal, and the wait goes on; the child takes what the terminal's
/// foreground gets besides for the same wish (see stop_signals.h). The system ends the child with SIGTERM if this process dies.
/// Throws SystemError if it cannot be started.
int run_child(const std::vector<std::string>& arguments, const std::function<void(const std::string& line)>& on_line,
              const std::atomic<int>* signal = nullptr);

}  // namespace consist::launch
