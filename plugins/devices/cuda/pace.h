// Keeps the host from running too far ahead of a stream.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

namespace consist::cuda {

/// A launch on a stream whose queue is full (1,024 entries) waits inside the driver, and nobody else's calls get in meanwhile. If
/// the stream waits for a rank that has died, nobody could let it go on any more: this rank would hang until it is killed. So the
/// host waits outside of the driver, before the queue is full. Used from one thread.
class Pace {
 public:
  /// Between `launches` and twice as many may be ahead. `stream` must outlive this.
  Pace(cudaStream_t stream, int launches);
  ~Pace();
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  /// Before each launch on the stream. Throws SystemError.
  void keep();

 private:
  cudaStream_t stream_;
  int launches_;
  std::int64_t count_ = 0;
  std::array<cudaEvent_t, 2> behind_{};  ///< the last two times that so many launches were complete
};

}  // namespace consist::cuda
