// Signals that a launcher reads where it waits.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "consist/error.h"
#include "consist/socket.h"
#include "core/base/system_error.h"
#include "launch/start/stop_signals.h"

namespace consist::launch {

/// Blocks the launcher's signals for this thread and makes them readable; undone at the end.
class LauncherSignals {
 public:
  LauncherSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
    // A signal that is blocked is queued even if it is ignored, as nohup has it: then it is none of this program's business.
    if (!hangup_is_ignored()) sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, &before_) != 0) fail();
    source_ = network::Socket(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!source_) fail();
  }
  ~LauncherSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  int fd() const noexcept { return source_.fd(); }
  /// The next signal that came, or 0.
  int next() const {
    signalfd_siginfo info{};
    return read(source_.fd(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  [[noreturn]] static void fail() { throw SystemError("cannot watch for signals: " + system_error_text(errno)); }
  sigset_t before_{};
  network::Socket source_;
};

}  // namespace consist::launch
