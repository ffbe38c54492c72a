// The wish that a run should end early.
#pragma once

#include <atomic>

namespace consist {

/// Between whoever receives signals and the run that they are meant for. Lock-free: request() may be called by a signal handler.
class StopRequest {
 public:
  /// False if it was requested before.
  bool request() noexcept { return (state_.fetch_or(requested_bit) & requested_bit) == 0; }
  bool requested() const noexcept { return (state_.load() & requested_bit) != 0; }

  /// The run says that from now on there is something to save, and that it asks requested() after every step. False: the request
  /// came before; then the run is not to begin, and training() stays false.
  bool begin_training() noexcept {
    unsigned none = 0;
    return state_.compare_exchange_strong(none, training_bit);
  }
  bool training() const noexcept { return (state_.load() & training_bit) != 0; }

 private:
  static constexpr unsigned requested_bit = 1;
  static constexpr unsigned training_bit = 2;
  std::atomic<unsigned> state_{0};
  static_assert(std::atomic<unsigned>::is_always_lock_free);
};

}  // namespace consist
