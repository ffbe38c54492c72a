// A program with a terminal of its own, as a person would start it: it can be watched, signalled and killed while it runs.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern char** environ;

namespace consist::test {

/// Used from one thread at a time. Killed, if it still runs, by the destructor.
class TerminalProcess {
 public:
  using Clock = std::chrono::steady_clock;

  /// Runs words[0] with the other words as arguments; its stdin, stdout and stderr are the terminal. `variables` are added to the
  /// environment. `inherited` is a descriptor that the program keeps under the same number, or -1; `columns` is the terminal's
  /// width, or 0: it does not say.
  explicit TerminalProcess(const std::vector<std::string>& words, const std::map<std::string, std::string>& variables = {},
                           int inherited = -1, unsigned short columns = 0) {
    terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0) throw std::runtime_error("no pseudo-terminal");
    const winsize size{.ws_row = 24, .ws_col = columns};
    if (columns > 0 && ::ioctl(terminal_, TIOCSWINSZ, &size) != 0) throw std::runtime_error("no size of the pseudo-terminal");
    const std::string name = ::ptsname(terminal_);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::vector<std::string> texts;
    for (const auto& [variable, value] : variables) texts.push_back(variable + "=" + value);
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      ::setsid();
      const int end = ::open(name.c_str(), O_RDWR | O_NOCTTY);
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(end, fd);
      ::close(end);
      if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
      ::execve(arguments[0], arguments.data(), environment.data());
      ::_exit(127);
    }
  }
  TerminalProcess(TerminalProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        terminal_(std::exchange(other.terminal_, -1)),
        status_(other.status_),
        ended_at_(other.ended_at_),
        output_(std::move(other.output_)) {}
  ~TerminalProcess() {
    if (pid_ > 0 && status_ < 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (terminal_ >= 0) ::close(terminal_);
  }

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  /// Presses keys.
  void type(const std::string& keys) const {
    if (::write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) throw std::runtime_error("cannot type");
  }
  /// Changes the terminal's size, of which the program is told as by a window that is drawn larger.
  void resize(unsigned short columns, unsigned short rows) const {
    const winsize size{.ws_row = rows, .ws_col = columns};
    if (::ioctl(terminal_, TIOCSWINSZ, &size) != 0) throw std::runtime_error("no size of the pseudo-terminal");
    ::kill(pid_, SIGWINCH);  // it is no session's foreground for the kernel to tell
  }

  /// Reads what is there for up to `wait` and looks whether the program has ended; true if it has.
  bool poll(std::chrono::milliseconds wait) {
    pollfd entry{terminal_, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(wait.count())) > 0) read_some();
    if (status_ >= 0) return true;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
    ended_at_ = Clock::now();
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    while (read_some()) {
    }
    return true;
  }
  /// Polls until it ends; throws std::runtime_error with the output after `limit`.
  int wait(std::chrono::seconds limit) {
    for (const auto end = Clock::now() + limit; !poll(std::chrono::milliseconds(20));) {
      if (Clock::now() > end) throw std::runtime_error("no end after " + std::to_string(limit.count()) + " s:\n" + output_);
    }
    return status_;
  }
  /// Polls until `text` is in the output; throws if the program ends before, or after `limit`.
  void wait_for(const std::string& text, std::chrono::seconds limit) {
    for (const auto end = Clock::now() + limit; output_.find(text) == std::string::npos;) {
      if (poll(std::chrono::milliseconds(20)) && output_.find(text) == std::string::npos)
        throw std::runtime_error("it ended:\n" + output_);
      if (Clock::now() > end)
        throw std::runtime_error("no '" + text + "' after " + std::to_string(limit.count()) + " s:\n" + output_);
    }
  }

  int status() const noexcept { return status_; }  ///< as a shell shows it, 128 + signal included; -1: not known to have ended
  Clock::time_point ended_at() const noexcept { return ended_at_; }
  const std::string& output() const noexcept { return output_; }  ///< lines end in "\r\n"

 private:
  bool read_some() {
    pollfd entry{terminal_, POLLIN, 0};
    char block[4096];
    if (::poll(&entry, 1, 0) <= 0) return false;
    const ssize_t got = ::read(terminal_, block, sizeof block);  // EIO: nobody holds the other end any more
    if (got > 0) output_.append(block, static_cast<std::size_t>(got));
    return got > 0;
  }

  pid_t pid_ = -1;
  int terminal_ = -1;
  int status_ = -1;
  Clock::time_point ended_at_{};
  std::string output_;
};

}  // namespace consist::test
