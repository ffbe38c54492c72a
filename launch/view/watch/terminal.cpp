#include "launch/view/watch/terminal.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>

namespace consist::launch {
namespace {

constexpr std::array<int, 4> signals{SIGINT, SIGTERM, SIGHUP, SIGWINCH};
volatile std::sig_atomic_t ending_signal = 0;

void note(int signal) {
  if (signal != SIGWINCH) ending_signal = signal;
}

void put(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR && errno != EAGAIN) return;  // the terminal is gone; SIGHUP will say so
    if (written > 0) done += static_cast<std::size_t>(written);
  }
}

}  // namespace

WatchSignals::WatchSignals() {
  ending_signal = 0;
  sigset_t blocked;
  sigemptyset(&blocked);
  for (std::size_t i = 0; i < signals.size(); ++i) {
    sigaddset(&blocked, signals[i]);
    struct sigaction action {};
    action.sa_handler = note;
    ::sigaction(signals[i], &action, &actions_[i]);
  }
  ::sigprocmask(SIG_BLOCK, &blocked, &before_);
}

WatchSignals::~WatchSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &actions_[i], nullptr);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int WatchSignals::asked_to_end() const {
  return ending_signal;
}

std::string WatchSignals::wait(double seconds, bool keys) {
  const bool reads = keys && !input_ended_;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  timespec time{};
  time.tv_sec = static_cast<std::time_t>(seconds);
  time.tv_nsec = static_cast<long>(1e9 * (seconds - std::floor(seconds)));
  sigset_t within = before_;
  for (const int signal : signals) sigdelset(&within, signal);
  const int ready = ::ppoll(&input, reads ? 1 : 0, &time, &within);
  if (ready <= 0 || !reads) return {};
  std::array<char, 64> typed{};
  const ssize_t got = ::read(STDIN_FILENO, typed.data(), typed.size());
  if (got <= 0) {
    input_ended_ = true;
    return {};
  }
  return {typed.data(), static_cast<std::size_t>(got)};
}

TerminalScreen::TerminalScreen() {
  has_keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
  if (has_keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // the shell would find the terminal as it is now
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  put("\033[?1049h\033[?25l");
}

TerminalScreen::~TerminalScreen() {
  put("\033[?25h\033[?1049l");
  if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void TerminalScreen::draw(const std::vector<std::string>& lines) {
  std::string text = "\033[H";
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + "\033[K";
  put(text + "\033[J");
}

}  // namespace consist::launch
