#include "core/plugin/plugin_watchdog.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/plugin/plugin_faults.h"

namespace consist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds time_to_stop{5};

/// A thread's innermost call. Written by that thread alone, in this order; read by the watchdog.
struct Shown {
  Shown() noexcept;
  ~Shown();
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  std::atomic<const char*> function{nullptr};
  std::atomic<const PluginIdentity*> plugin{nullptr};
  std::atomic<int> timeouts{0};  ///< that the call may take; 0: any time, or there is none
  std::atomic<std::uint64_t> changes{0};
  std::uint64_t seen_changes = 0;  ///< by the watchdog, and since when
  Clock::time_point seen_since;
};

// When a stop was asked for, and since when the run waits for plugins.
std::atomic<Clock::rep> stop_asked{0}, awaited_since{0};
std::atomic<int> awaiting{0};

/// Since when plugins are to hurry; nothing if they need not.
std::optional<Clock::time_point> hurried_since() noexcept {
  const Clock::rep asked = stop_asked, awaited = awaited_since;
  if (asked == 0 || awaiting == 0) return std::nullopt;
  return Clock::time_point(Clock::duration(std::max(asked, awaited)));
}

class Watchdog {
 public:
  /// For the process's life.
  static Watchdog& get() {
    static auto* const watchdog = new Watchdog;
    return *watchdog;
  }
  void add(Shown& thread) {
    const std::lock_guard lock(mutex_);
    threads_.push_back(&thread);
  }
  void remove(Shown& thread) {
    const std::lock_guard lock(mutex_);
    std::erase(threads_, &thread);
  }

 private:
  Watchdog() : timeout_(plugin_timeout()) {
    // Signals are for the threads that the command has made to take them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void run() {
    for (;;) {
      std::this_thread::sleep_for(std::min<Clock::duration>(timeout_ / 4, std::chrono::seconds(1)));
      const std::lock_guard lock(mutex_);
      for (Shown* thread : threads_) look_at(*thread);
    }
  }

  void look_at(Shown& thread) const {
    const Clock::time_point now = Clock::now();
    if (const std::uint64_t changes = thread.changes.load(std::memory_order_acquire); changes != thread.seen_changes) {
      thread.seen_changes = changes;
      thread.seen_since = now;
      return;
    }
    const int timeouts = thread.timeouts;
    if (timeouts == 0) return;
    const Clock::duration taken = now - thread.seen_since, limit = timeout_ * timeouts;
    if (taken >= limit) end_after_hang(*thread.plugin, thread.function, limit, false);
    const auto since = hurried_since();
    if (since && taken >= time_to_stop && now - *since >= time_to_stop)
      end_after_hang(*thread.plugin, thread.function, taken, true);
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::vector<Shown*> threads_;
};

Shown::Shown() noexcept {
  try {
    Watchdog::get().add(*this);
  } catch (...) {
    // Where no thread can be started nobody watches; a timeout that is none is refused where plugins are looked for.
  }
}

Shown::~Shown() {
  try {
    Watchdog::get().remove(*this);
  } catch (...) {
    // It was not added either.
  }
}

int timeouts_of(const PluginCall* call) noexcept {
  constexpr int long_work = 24;
  if (call == nullptr || call->limit() == PluginCall::Limit::none) return 0;
  return call->limit() == PluginCall::Limit::long_work ? long_work : 1;
}

}  // namespace

void show_innermost(const PluginCall* call) noexcept {
  thread_local Shown shown;
  shown.timeouts.store(0, std::memory_order_relaxed);
  if (call != nullptr) {
    shown.function.store(call->function(), std::memory_order_relaxed);
    shown.plugin.store(&call->plugin(), std::memory_order_relaxed);
  }
  shown.timeouts.store(timeouts_of(call), std::memory_order_release);
  shown.changes.store(shown.changes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void plugins_must_hurry() noexcept {
  stop_asked = Clock::now().time_since_epoch().count();
}

PluginsAwaited::PluginsAwaited() noexcept {
  if (awaiting.fetch_add(1) == 0) awaited_since = Clock::now().time_since_epoch().count();
}

PluginsAwaited::~PluginsAwaited() {
  --awaiting;
}

}  // namespace consist
