// The place of this rank in its work, for the job's reports about ranks that died or are stuck.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "consist/export.h"
#include "consist/job.h"
#include "core/job/progress.h"
#include "core/state/training_state.h"

namespace consist {

/// As long as it lives, the job can ask. `job` and `state` must outlive it.
class CONSIST_API RunProgress {
 public:
  RunProgress(Job& job, TrainingState& state, std::int64_t first_step);
  ~RunProgress();
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  /// By the trainer's thread, before it begins that.
  void begin(Activity activity, std::int64_t step, std::int64_t round = 0) noexcept;

 private:
  std::string text() const;

  Job& job_;
  TrainingState& state_;
  std::atomic<std::uint64_t> at_;  // step, round and activity in one, since the job's thread reads it at any moment
};

}  // namespace consist
