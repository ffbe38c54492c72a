// Work that goes on beside the thread that has begun it.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <utility>

namespace consist {

/// One piece of work at a time, on a thread of its own. Used from one thread. The destructor waits for the end of the work.
class BackgroundWork {
 public:
  /// Throws what earlier work threw, for whose end it waits.
  void begin(std::function<void()> work) {
    finish();
    running_ = std::async(std::launch::async, std::move(work));
  }
  /// Waits for the end of the work, if there is any, and throws what it threw.
  void finish() {
    if (running_.valid()) running_.get();
  }
  /// True until the work has ended; false without work.
  bool is_running() const { return running_.valid() && running_.wait_for(std::chrono::seconds(0)) != std::future_status::ready; }
  /// Throws what the work threw, if it has ended; does not wait.
  void check() {
    if (running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) running_.get();
  }
  /// Waits for the end of the work and returns what it threw; null: nothing.
  std::exception_ptr settle() noexcept {
    try {
      finish();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

 private:
  std::future<void> running_;
};

}  // namespace consist
