// Ends a process that cannot leave its job by an exception, after it has reported the reason.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "consist/export.h"
#include "core/job/job.h"

namespace consist {

/// As long as this object lives:
/// - A plugin that ends the process (on_plugin_fault) fails the job with its message, which `farewell` gets.
/// - A rank that loses another one leaves by an exception. It cannot while its thread waits inside a driver or a file system:
///   for example for a GPU's queue that is full of work that waits for the dead rank. A thread watches the job. If the process
///   still runs `patience` after the job has failed, that thread passes the reason to `farewell`, reports it and ends the process
///   with the status of a rank that lost another one.
/// At most one instance; tests may have several, of which the newest handles plugin faults.
class CONSIST_API LastResort {
 public:
  static constexpr std::chrono::milliseconds default_patience{5000};
  using Farewell = std::function<void(const std::string& reason)>;
  using End = std::function<void()>;

  /// `job` outlives this. `farewell` runs on the watching thread or the one that the plugin ends the process on, beside whatever
  /// the others do. `end` does not return, but in tests.
  LastResort(JoinedJob& job, Farewell farewell, std::chrono::milliseconds patience = default_patience, End end = end_process);
  ~LastResort();
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

 private:
  static void end_process();
  void watch();
  void plugin_ended_process(const std::string& message);
  /// Waits for at most `time`. True if the rank has left by then.
  bool left_within(std::chrono::milliseconds time);

  JoinedJob& job_;
  const Farewell farewell_;
  const std::chrono::milliseconds patience_;
  const End end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool left_ = false;
  std::thread thread_;
};

}  // namespace consist
