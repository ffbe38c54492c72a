// Has a collective on the device made no progress? Costs an event per collective, or two 4-byte writes per collective of a
// captured graph, which is replayed without this process hearing of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <utility>

#include "plugins/transports/nccl/driver.h"

namespace consist::nccl {

class StallDetector {
 public:
  /// With the group's context current. Throws SystemError.
  explicit StallDetector(const Driver& driver);
  ~StallDetector();  ///< with the context current
  StallDetector(const StallDetector&) = delete;
  StallDetector& operator=(const StallDetector&) = delete;

  /// Around the enqueuing of a collective, by the thread that owns the communicator.
  void before(CUstream stream);
  void after(CUstream stream);

  /// The current state. `busy`: a collective has been enqueued or entered and has not finished. `progress` grows whenever one
  /// finishes or is enqueued.
  struct State {
    bool busy = false;
    std::uint64_t progress = 0;
  };
  /// By the watchdog, every now and then.
  State look();

 private:
  static constexpr std::uint32_t taken = 0xFFFFFFFFU;  // the watchdog has seen the last departure
  /// Words and their values, at most two, as one node of the graph.
  void write(CUstream stream, std::initializer_list<std::pair<int, std::uint32_t>> values);

  const Driver& driver_;
  std::mutex mutex_;  // event_ and the counters
  CUevent event_ = nullptr;
  bool recorded_ = false;
  std::uint64_t progress_ = 0;
  bool capturing_ = false;      // the collective between before() and after()
  std::uint32_t captured_ = 0;  // collectives in graphs so far; their numbers in words_
  /// Host memory that graphs write: the number of the collective that has been entered (0: none), and of the one that was left
  /// last.
  std::atomic<std::uint32_t>* words_ = nullptr;
  CUdeviceptr device_words_ = 0;
};

}  // namespace consist::nccl
