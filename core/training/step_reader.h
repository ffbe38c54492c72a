// Reads the tokens of the next step while a step runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "consist/export.h"
#include "core/training/batches.h"

namespace consist {

/// A thread that is at most one step ahead of the step in use, so that it holds two steps' tokens. Used from the trainer's
/// thread.
class CONSIST_API StepReader {
 public:
  /// Begins to read step `first` at once, and ends behind step `end` - 1. `batches` must outlive it.
  StepReader(Batches& batches, std::int64_t first, std::int64_t end);
  /// Waits for the sequence that is being read, not for the rest of its step.
  ~StepReader();
  StepReader(const StepReader&) = delete;
  StepReader& operator=(const StepReader&) = delete;

  /// The tokens of `step`, valid until the next call; waits until they are read. Steps are taken in order, each once. Throws
  /// what Batches::read_step threw for that step; nothing can be taken afterwards.
  const StepTokens& take(std::int64_t step);

 private:
  void serve();

  Batches& batches_;
  const std::int64_t end_;
  StepTokens slots_[2];  // of even and odd steps
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t read_;           // steps before it are read
  std::int64_t taken_;          // the newest step that was asked for
  std::exception_ptr failure_;  // of step `read_`
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace consist
