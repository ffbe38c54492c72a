// Signals that ask a command for its end while others work for it: noted, and passed on by the command itself.
#pragma once

#include <atomic>
#include <string>

namespace consist::launch {

struct NotedSignals {
  std::atomic<int> number{0};  ///< of the last one; 0: none came
  std::atomic<int> wishes{0};  ///< how often an end was asked for: what comes within half a second is one wish
};

/// Always the same object. Nothing is noted before note_signals().
const NotedSignals& noted_signals();
/// Notes SIGINT, SIGTERM and, unless nohup has it ignored, SIGHUP from here on.
const NotedSignals& note_signals();

/// "SIGINT (Ctrl-C)".
std::string signal_text(int signal);

}  // namespace consist::launch
