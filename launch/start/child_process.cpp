#include "launch/start/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "consist/error.h"
#include "core/base/system_error.h"

namespace consist::launch {
namespace {

/// Delay after which a signal is passed on that came just before the wait for output began, and so does not end it.
constexpr int look_again_ms = 200;

/// Passes on what this process was asked to do, once per signal.
class PassedOn {
 public:
  PassedOn(pid_t child, const std::atomic<int>* signal) : child_(child), signal_(signal) {}
  void pass_on() {
    const int asked = signal_ == nullptr ? 0 : signal_->load();
    if (asked == 0 || asked == passed_) return;
    passed_ = asked;
    kill(child_, asked);
  }

 private:
  const pid_t child_;
  const std::atomic<int>* signal_;
  int passed_ = 0;
};

/// Signals that ask for an end, held back from this thread while it starts a child. Between fork and exec the child has the
/// handlers of this process: they would note the signal in memory that exec throws away, and nobody would ask again.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t asks;
    sigemptyset(&asks);
    for (const int signal : numbers_) sigaddset(&asks, signal);
    pthread_sigmask(SIG_BLOCK, &asks, &before_);
  }
  ~HeldSignals() { release(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  void release() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  /// In the child: a signal that came since the fork ends it, as one after exec would. Signals that are ignored stay so.
  void release_in_child() {
    for (const int signal : numbers_) {
      struct sigaction found {};
      if (sigaction(signal, nullptr, &found) == 0 && found.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
    }
    release();
  }

 private:
  static constexpr std::array numbers_{SIGINT, SIGTERM, SIGHUP};
  sigset_t before_{};
};

/// Splits what arrives into lines; a carriage return ends one, too.
void read_lines(int fd, PassedOn& signals, const std::function<void(const std::string&)>& on_line) {
  std::string line;
  for (char buffer[4096];;) {
    signals.pass_on();
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, look_again_ms) <= 0) continue;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] != '\n' && buffer[i] != '\r') {
        line += buffer[i];
        continue;
      }
      if (!line.empty()) on_line(line);
      line.clear();
    }
  }
  if (!line.empty()) on_line(line);
}

}  // namespace

int run_child(const std::vector<std::string>& arguments, const std::function<void(const std::string&)>& on_line,
              const std::atomic<int>* signal) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe: " + system_error_text(errno));
  std::vector<char*> argv{const_cast<char*>("consist")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  HeldSignals held;
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    throw SystemError("cannot start a process: " + system_error_text(errno));
  }
  if (child == 0) {
    held.release_in_child();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  held.release();
  close(ends[1]);
  PassedOn signals(child, signal);
  read_lines(ends[0], signals, on_line);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace consist::launch
