#include "core/plugin/plugin_watchdog.h"

#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/plugin/plugin_faults.h"

namespace consist {
namespace {

using Clock = std::chrono::steady_clock;

class Watchdog {
 public:
  Watchdog() : limit_(plugin_timeout()) {
    // Signals are for the threads that the command has made to take them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { run(); }).detach();  // to the end of the process, as this object
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  void add(const PluginCall& call, PluginCall::Limit limit) {
    constexpr int long_work = 24;
    const std::chrono::milliseconds time = limit == PluginCall::Limit::long_work ? limit_ * long_work : limit_;
    const std::lock_guard lock(mutex_);
    calls_.push_back({&call, Clock::now() + time, time});
  }
  void remove(const PluginCall& call) {
    const std::lock_guard lock(mutex_);
    // The innermost of its thread, and mostly of all threads: near the end.
    const auto at = std::find_if(calls_.rbegin(), calls_.rend(), [&](const Watched& w) { return w.call == &call; });
    if (at != calls_.rend()) calls_.erase(std::next(at).base());
  }

 private:
  struct Watched {
    const PluginCall* call;
    Clock::time_point deadline;
    std::chrono::milliseconds limit;
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      // No limit is shorter than the time between two looks: no need to be woken by a call.
      wake_.wait_for(lock, std::min<Clock::duration>(limit_ / 4, std::chrono::seconds(1)));
      for (const Watched& watched : calls_) {
        if (Clock::now() >= watched.deadline)
          end_after_hang(*watched.call, watched.limit);  // with the lock: the call cannot end meanwhile
      }
    }
  }

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Watched> calls_;
};

Watchdog& watchdog() {
  static auto* const the_watchdog = new Watchdog;
  return *the_watchdog;
}

}  // namespace

bool watch(const PluginCall& call, PluginCall::Limit limit) noexcept {
  try {
    watchdog().add(call, limit);
    return true;
  } catch (...) {
    return false;
  }
}

void unwatch(const PluginCall& call) noexcept {
  watchdog().remove(call);
}

}  // namespace consist
