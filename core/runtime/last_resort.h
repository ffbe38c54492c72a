// The end of a process whose job has failed and whose own thread cannot leave.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "consist/export.h"
#include "consist/job.h"

namespace consist {

/// A rank that loses another one leaves by an exception. It cannot while its thread waits inside a driver or a file system: a
/// GPU's queue that is full of work that waits for the dead rank lets nobody in. As long as this object lives, a thread watches
/// the job; where the rank is still here `patience` after the job has failed, that thread gives the reason to `farewell`, reports
/// it and ends the process with the status of a rank that lost another one.
class CONSIST_API LastResort {
 public:
  static constexpr std::chrono::milliseconds default_patience{5000};
  using Farewell = std::function<void(const std::string& reason)>;
  using End = std::function<void()>;

  /// `job` outlives this. `farewell` runs on the watching thread, beside whatever the others do. `end` does not return, but in
  /// tests.
  LastResort(Job& job, Farewell farewell, std::chrono::milliseconds patience = default_patience, End end = end_process);
  ~LastResort();
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

 private:
  static void end_process();
  void watch();
  /// Whether the rank has left within that time.
  bool left_within(std::chrono::milliseconds time);

  Job& job_;
  const Farewell farewell_;
  const std::chrono::milliseconds patience_;
  const End end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool left_ = false;
  std::thread thread_;
};

}  // namespace consist
