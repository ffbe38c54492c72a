// Runs launches on threads: one per queue that has any.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "consist/device.h"

namespace consist::cpu {

/// Each queue's thread runs its launches in order and waits for those of other queues by futex; nothing is allocated in a step.
/// When a launch throws, the other queues skip what they have not started, and wait() rethrows the first failure.
class CpuExecutable final : public Executable {
 public:
  /// `threads`: OpenMP threads of the compute queue; the other queues have one thread each.
  CpuExecutable(std::vector<Launch> launches, int threads, bool profile);
  ~CpuExecutable() override;

  void run() override;
  void wait() override;
  /// -1 between runs.
  std::int32_t position() const noexcept override { return position_.load(std::memory_order_relaxed); }
  std::vector<LaunchTime> launch_times() const override { return times_; }

 private:
  struct Lane {
    Queue queue;
    std::vector<std::int32_t> launches;
    std::thread thread;
  };
  void serve(Lane& lane, int threads);
  void run_lane(Lane& lane, std::uint32_t generation);
  void launch(std::int32_t index);

  std::vector<Launch> launches_;
  std::vector<bool> awaited_;  // some launch of another queue waits for it
  bool profile_;
  std::vector<LaunchTime> times_;
  std::chrono::steady_clock::time_point began_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> finished_;  // by launch: the generation in which it finished
  std::atomic<std::uint32_t> generation_{0};                // the step that lanes should run
  std::atomic<std::uint32_t> lanes_done_{0};                // lanes that finished it
  std::atomic<bool> quit_{false}, failed_{false};
  std::atomic<std::int32_t> position_{-1};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace consist::cpu
