#include "core/training/step_reader.h"

#include "consist/error.h"
#include "core/plugin/plugin_faults.h"

namespace consist {

StepReader::StepReader(Batches& batches, std::int64_t first, std::int64_t end)
    : batches_(batches), end_(end), read_(first), taken_(first - 1) {
  if (first >= end) return;
  for (StepTokens& slot : slots_) slot = batches.room();
  thread_ = std::thread([this] { serve(); });
}

StepReader::~StepReader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  const PluginsAwaited awaited;
  if (thread_.joinable()) thread_.join();
}

const StepTokens& StepReader::take(std::int64_t step) {
  std::unique_lock lock(mutex_);
  if (step != taken_ + 1 || step >= end_) throw ProgramError("a step's tokens are taken out of order");
  taken_ = step;
  changed_.notify_all();
  const PluginsAwaited awaited;
  changed_.wait(lock, [&] { return read_ > step || failure_; });
  if (read_ <= step) std::rethrow_exception(failure_);
  return slots_[step % 2];
}

void StepReader::serve() {
  std::unique_lock lock(mutex_);
  while (read_ < end_) {
    // The slot of `read_` holds step `read_` - 2, which is in use until the step behind it is asked for.
    changed_.wait(lock, [this] { return stop_ || read_ <= taken_ + 1; });
    if (stop_) return;
    const std::int64_t step = read_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      batches_.read_step(step, slots_[step % 2], stop_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
    } else {
      ++read_;
    }
    changed_.notify_all();
    if (failure) return;
  }
}

}  // namespace consist
