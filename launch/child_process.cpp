#include "launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "consist/error.h"

namespace consist::launch {
namespace {

/// Splits what arrives into lines; a carriage return ends one, too.
void read_lines(int fd, const std::function<void(const std::string&)>& on_line) {
  std::string line;
  for (char buffer[4096];;) {
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

int run_child(const std::vector<std::string>& arguments, const std::function<void(const std::string&)>& on_line) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError(std::string("cannot make a pipe: ") + std::strerror(errno));
  std::vector<char*> argv{const_cast<char*>("consist")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    throw SystemError(std::string("cannot start a process: ") + std::strerror(errno));
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
  read_lines(ends[0], on_line);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace consist::launch
