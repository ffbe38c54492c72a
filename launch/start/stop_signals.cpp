#include "launch/start/stop_signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "consist/error.h"
#include "core/base/monotonic_ns.h"
#include "core/base/system_error.h"
#include "core/plugin/plugin_faults.h"
#include "launch/cli/exit_status.h"

namespace consist::launch {
namespace {

// Variables of the signal handler: lock-free, and alive as long as the process.
StopRequest stop;
std::atomic<std::int64_t> first_signal_ns{0};
std::atomic<int> wake_fd{-1};

extern "C" void on_signal(int signal) {
  const int error = errno;
  const std::int64_t now = monotonic_ns();
  if (stop.request()) {
    first_signal_ns = now;
    const auto number = static_cast<unsigned char>(signal);
    const int fd = wake_fd.load();
    if (fd >= 0 && write(fd, &number, 1) != 1) _exit(128 + signal);
  } else if (signal != SIGHUP && std::chrono::nanoseconds(now - first_signal_ns.load()) > same_wish) {
    _exit(128 + signal);
  }
  errno = error;
}

std::string name_of_signal(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

void say(const std::string& text) {
  // On a terminal the line of progress may be open.
  const std::string line = (isatty(STDERR_FILENO) == 1 ? "\nconsist: " : "consist: ") + text + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // stderr is closed
}

}  // namespace

bool hangup_is_ignored() noexcept {
  struct sigaction found {};
  return sigaction(SIGHUP, nullptr, &found) == 0 && found.sa_handler == SIG_IGN;
}

StopSignals::StopSignals(bool speaks) : speaks_(speaks) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot watch for signals: " + system_error_text(errno));
  wake_fd = ends[1];
  thread_ = std::thread([this, source = network::Socket(ends[0])] {
    unsigned char signal = 0;
    ssize_t got = 0;
    while ((got = read(source.fd(), &signal, 1)) < 0 && errno == EINTR) {
    }
    if (got == 1 && signal != 0) heed(signal);
  });

  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&action.sa_mask, signal);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  if (!hangup_is_ignored()) sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = SIG_IGN;
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  const int fd = wake_fd.exchange(-1);
  const unsigned char nothing = 0;
  if (write(fd, &nothing, 1) < 0 && errno != EPIPE) std::abort();  // EPIPE: a signal has ended the thread already
  thread_.join();
  close(fd);
}

StopRequest& StopSignals::request() noexcept {
  return stop;
}

void StopSignals::set_job(JoinedJob* job) {
  const std::lock_guard lock(mutex_);
  job_ = job;
}

void StopSignals::heed(int signal) {
  if (stop.training()) {
    plugins_must_hurry();
    if (speaks_)
      say(name_of_signal(signal) + ": the run ends after this step; a second signal ends it at once, without a checkpoint");
    return;
  }
  if (speaks_) say("ended by " + name_of_signal(signal) + " before the first step; nothing was trained");
  {
    const std::lock_guard lock(mutex_);
    if (job_ != nullptr) job_->fail(name_of_signal(signal) + " ended it before the first step");
  }
  // At once, and not by a request: loading may take minutes, and nothing of it is worth waiting for.
  _exit(exit_stopped);
}

}  // namespace consist::launch
