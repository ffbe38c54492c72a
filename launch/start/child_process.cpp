#include "launch/start/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    throw SystemError("cannot start a process: " + system_error_text(errno));
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
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
