// Runs launches on streams: one per queue; after a first step, where that is faster, as one CUDA graph.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "consist/device.h"
#include "plugins/devices/cuda/graph_choice.h"

namespace consist::cuda {

/// The first run() enqueues launch by launch (libraries set themselves up then). Where the step becomes a graph (graph_choice.h)
/// and is not profiled, the second one records it, and all later ones start it. Waits between queues are events.
class CudaExecutable final : public Executable {
 public:
  /// `launch_seconds`: what one costs the host.
  CudaExecutable(std::vector<Launch> launches, GraphChoice graphs, double launch_seconds, bool profile);
  ~CudaExecutable() override;

  void run() override;
  void wait() override;
  /// The newest launch on a communication queue that began, as the GPU itself wrote it; -1 between runs.
  std::int32_t position() const noexcept override;
  std::vector<LaunchTime> launch_times() const override;

 private:
  struct Lane {
    cudaStream_t stream = nullptr;
    cudaEvent_t joined = nullptr;  ///< behind its last launch
    bool used = false;
  };
  struct Timing {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  void enqueue();
  void record_graph();
  Lane& lane_of(const Launch& launch) { return lanes_[queues_.number_of(launch.queue)]; }

  std::vector<Launch> launches_;
  std::vector<Kernel*> kernels_;     ///< each once
  QueueTable queues_;
  std::vector<Lane> lanes_;          ///< by number of the queue
  std::vector<cudaEvent_t> events_;  ///< by launch; null where no other queue waits for it
  std::vector<Timing> timings_;
  cudaEvent_t begun_ = nullptr;
  cudaStream_t main_ = nullptr;  ///< the compute queue's
  cudaGraphExec_t graph_ = nullptr;
  bool graphs_, profile_;
  std::int64_t runs_ = 0;
  std::int32_t* position_ = nullptr;  ///< pinned, written by the GPU
};

}  // namespace consist::cuda
