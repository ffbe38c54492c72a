// The terminal of consist watch: a screen beside the shell's, keys without return, its size, and signals that end the command.
#pragma once

#include <termios.h>

#include <csignal>
#include <string>
#include <vector>

namespace consist::launch {

/// While it lives, SIGINT, SIGTERM, SIGHUP and SIGWINCH reach the process only within wait(), which returns for them.
class WatchSignals {
 public:
  WatchSignals();
  ~WatchSignals();
  WatchSignals(const WatchSignals&) = delete;
  WatchSignals& operator=(const WatchSignals&) = delete;

  /// Returns after `seconds`, for a key if `keys`, and for a signal. What was typed; empty otherwise.
  std::string wait(double seconds, bool keys);
  /// The number of the signal that asked for the end, 0: none.
  int asked_to_end() const;

 private:
  sigset_t before_{};
  struct sigaction actions_[4]{};
  bool input_ended_ = false;
};

/// Takes the terminal of standard output: its alternate screen, without a cursor, and without the echo of keys where standard
/// input is a terminal. The destructor gives it back as it was.
class TerminalScreen {
 public:
  TerminalScreen();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  bool has_keys() const noexcept { return has_keys_; }
  void draw(const std::vector<std::string>& lines);

 private:
  termios before_{};
  bool has_keys_ = false;
};

}  // namespace consist::launch
