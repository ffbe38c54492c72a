#include "launch/start/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/socket.h"
#include "core/base/system_error.h"
#include "launch/cli/exit_status.h"
#include "launch/start/rank_process.h"
#include "launch/start/stop_signals.h"

namespace consist::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int max_ranks = 1024;
constexpr std::size_t token_bytes = 32;
constexpr milliseconds time_after_sigterm{5000};
// Ranks that make the same mistake each say so themselves, about at once.
constexpr milliseconds time_to_fail_alike{300};
// A terminal, a shell and a parent may each pass on the same wish.
constexpr milliseconds same_wish{500};

/// Blocks the launcher's signals for this thread and makes them readable; undone at the end.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
    // A signal that is blocked is queued even if it is ignored, as nohup has it: then it is none of this program's business.
    if (!hangup_is_ignored()) sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, &before_) != 0) fail();
    source_ = network::Socket(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!source_) fail();
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

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

class Launcher {
 public:
  Launcher(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options)
      : options_(options), listener_(network::listen_on("127.0.0.1", 0)) {
    signal(SIGPIPE,
           SIG_IGN);  // output without a reader (`| head`) ends neither this process nor, by inheriting it, the ranks
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw SystemError("cannot make a pipe: " + system_error_text(errno));
    joined_ = network::Socket(ends[0]);
    const network::Socket joined(ends[1]);
    const LocalJob job{ranks, network::random_hex(token_bytes), network::local_endpoint(listener_).port, listener_.fd(),
                       joined.fd()};
    try {
      for (int rank = 0; rank < ranks; ++rank) processes_.push_back(start_rank(job, rank, arguments, options.all_output));
    } catch (...) {
      send_to_all(SIGKILL);
      throw;
    }
    listener_.close();
  }

  int run() {
    while (any_running()) {
      wait_for_news();
      for (int signal; (signal = signals_.next()) != 0;) {
        if (signal != SIGCHLD) pass_on(signal);
      }
      pass_output_on();
      reap();
      escalate();
    }
    pass_output_on();
    return status_;
  }

 private:
  bool any_running() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const RankProcess& process) { return process.running; });
  }

  void wait_for_news() {
    std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
    for (const RankProcess& process : processes_) {
      for (const RankOutput* output : {&process.output, &process.errors}) {
        if (output->is_open()) entries.push_back({output->fd(), POLLIN, 0});
      }
    }
    const int wait = deadline_ ? network::milliseconds_until(*deadline_, milliseconds(60'000)) : 60'000;
    poll(entries.data(), entries.size(), wait);
  }

  void pass_output_on() {
    for (RankProcess& process : processes_) {
      process.output.pass_on();
      process.errors.pass_on();
    }
  }

  /// Who has said that the job has formed.
  void note_joined() {
    std::int32_t rank = 0;
    while (read(joined_.fd(), &rank, sizeof rank) == sizeof rank) {
      if (rank >= 0 && static_cast<std::size_t>(rank) < processes_.size())
        processes_[static_cast<std::size_t>(rank)].joined = true;
    }
  }

  void reap() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      RankProcess& process = processes_[rank];
      int status = 0;
      if (!process.running || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
      process.running = false;
      note_joined();  // what it said before its end
      const int result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (WIFSIGNALED(status) && !killing_) {
        std::fprintf(stderr, "consist launch: rank %zu (process %d) was ended by signal %d (%s)\n", rank, process.pid,
                     WTERMSIG(status), strsignal(WTERMSIG(status)));
      }
      if (result == 0) continue;
      // After a signal, ranks end with a status of their own choice, and others may still be saving.
      if (status_ == 0 && signals_seen_ == 0) {
        // Before the job has formed no other process notices, and there is no work to save.
        formed_ = process.joined;
        deadline_ = Clock::now() + (formed_ ? options_.grace_after_failure : time_to_fail_alike);
        failed_rank_ = rank;
      }
      if (status_ == 0 || status_ == exit_peer_failed) status_ = result;
    }
  }

  /// The first signal goes to the ranks as it came, for their orderly end; a repeated signal asks for haste, except that of
  /// a terminal that is gone.
  void pass_on(int signal) {
    const auto now = Clock::now();
    if (signals_seen_ > 0 && (signal == SIGHUP || now - first_signal_ < same_wish)) return;
    if (signals_seen_ == 0) first_signal_ = now;
    ++signals_seen_;
    if (signals_seen_ == 1) {
      send_to_all(signal);
      deadline_ = Clock::now() + options_.grace_after_signal;
    } else {
      next_ = signals_seen_ == 2 ? SIGTERM : SIGKILL;
      deadline_ = Clock::now();
    }
  }

  void escalate() {
    if (!deadline_ || Clock::now() < *deadline_ || !any_running()) return;
    if (!formed_ && !killing_) {
      std::fprintf(stderr, "consist launch: rank %zu ended before all ranks had joined the job; ending the others\n",
                   failed_rank_);
    }
    for (std::size_t rank = 0; rank < processes_.size() && formed_; ++rank) {
      if (processes_[rank].running) {
        std::fprintf(stderr, "consist launch: rank %zu does not end by itself; sending it %s\n", rank,
                     next_ == SIGTERM ? "SIGTERM" : "SIGKILL");
      }
    }
    killing_ = true;
    send_to_all(next_);
    send_to_all(SIGCONT);  // a rank that was stopped could not act on anything but SIGKILL
    next_ = SIGKILL;
    deadline_ = Clock::now() + time_after_sigterm;
  }

  void send_to_all(int signal) {
    for (const RankProcess& process : processes_) {
      if (process.running) kill(-process.pid, signal);
    }
  }

  const LaunchOptions options_;
  Signals signals_;
  network::Socket listener_;
  network::Socket joined_;  // what LocalJob::joined ends in
  std::vector<RankProcess> processes_;
  std::optional<Clock::time_point> deadline_;  // when the ranks that are left get the signal next_
  int next_ = SIGTERM;
  bool killing_ = false;
  bool formed_ = true;  // false: the first rank that failed had not joined
  std::size_t failed_rank_ = 0;
  int signals_seen_ = 0;
  Clock::time_point first_signal_{};
  int status_ = 0;
};

}  // namespace

int launch_local(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options) {
  if (ranks < 1 || ranks > max_ranks) {
    throw UsageError("a local job has 1 to " + std::to_string(max_ranks) + " ranks; asked for were " + std::to_string(ranks));
  }
  return Launcher(ranks, arguments, options).run();
}

}  // namespace consist::launch
