#include "core/plugin/plugin_watchdog.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/plugin/plugin_faults.h"

namespace consist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds time_to_stop{5};

/// The call of limit many_calls that a thread is in. Written by that thread alone. Never freed: a thread that comes later takes
/// over what one that has ended leaves.
struct Shown {
  std::atomic<std::uint64_t> changes{0};
  std::atomic<const PluginIdentity*> plugin{nullptr};  // null: none
  std::atomic<const char*> function{nullptr};
  std::atomic<bool> taken{true};
  // The watchdog's own: the number of changes that it saw last, and since when.
  std::uint64_t seen_changes = 0;
  Clock::time_point seen_since;
};

// --- When a stop was asked for, and since when the run waits for plugins.

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
    calls_.push_back({&call, Clock::now(), time});
  }
  void remove(const PluginCall& call) {
    const std::lock_guard lock(mutex_);
    // The innermost of its thread, and mostly of all threads: near the end.
    const auto at = std::find_if(calls_.rbegin(), calls_.rend(), [&](const Watched& w) { return w.call == &call; });
    if (at != calls_.rend()) calls_.erase(std::next(at).base());
  }
  Shown* room_for_thread() {
    const std::lock_guard lock(mutex_);
    for (const auto& shown : shown_) {
      if (!shown->taken.exchange(true)) return shown.get();
    }
    shown_.push_back(std::make_unique<Shown>());
    return shown_.back().get();
  }

 private:
  struct Watched {
    const PluginCall* call;
    Clock::time_point begin;
    std::chrono::milliseconds limit;
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      // No limit is shorter than the time between two looks: no need to be woken by a call.
      wake_.wait_for(lock, std::min<Clock::duration>(limit_ / 4, std::chrono::seconds(1)));
      const Clock::time_point now = Clock::now();
      // With the lock: none of these calls can end meanwhile.
      for (const Watched& watched : calls_)
        judge(watched.call->plugin(), watched.call->function(), now - watched.begin, watched.limit);
      for (const auto& shown : shown_) look_at(*shown, now);
    }
  }

  void look_at(Shown& shown, Clock::time_point now) const {
    const PluginIdentity* plugin = shown.plugin.load(std::memory_order_acquire);
    const char* function = shown.function.load(std::memory_order_relaxed);
    const std::uint64_t changes = shown.changes.load(std::memory_order_acquire);
    if (plugin == nullptr || changes != shown.seen_changes) {
      shown.seen_changes = changes;
      shown.seen_since = now;
    } else {
      judge(*plugin, function, now - shown.seen_since, limit_);
    }
  }

  static void judge(const PluginIdentity& plugin, const char* function, Clock::duration taken, std::chrono::milliseconds limit) {
    if (taken >= limit) end_after_hang(plugin, function, limit, false);
    const auto since = hurried_since();
    if (since && taken >= time_to_stop && Clock::now() - *since >= time_to_stop) end_after_hang(plugin, function, taken, true);
  }

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Watched> calls_;
  std::vector<std::unique_ptr<Shown>> shown_;
};

Watchdog& watchdog() {
  static auto* const the_watchdog = new Watchdog;
  return *the_watchdog;
}

// Looked at in every launch: without a constructor, and where the thread finds it without a call.
thread_local Shown* shown __attribute__((tls_model("initial-exec"))) = nullptr;

/// Gives the thread's entry back when the thread ends.
struct Return {
  ~Return() {
    if (shown == nullptr) return;
    shown->plugin = nullptr;
    shown->taken = false;
    shown = nullptr;
  }
};

/// Null if there is no watchdog.
Shown* of_this_thread() noexcept {
  if (shown != nullptr) return shown;
  try {
    shown = watchdog().room_for_thread();
    static thread_local Return at_the_end;
    static_cast<void>(at_the_end);
  } catch (...) {
    shown = nullptr;
  }
  return shown;
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

void show_innermost(const PluginCall* call) noexcept {
  Shown* const own = of_this_thread();
  if (own == nullptr) return;
  if (call != nullptr) own->function.store(call->function(), std::memory_order_relaxed);
  own->plugin.store(call == nullptr ? nullptr : &call->plugin(), std::memory_order_release);
  own->changes.store(own->changes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
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
