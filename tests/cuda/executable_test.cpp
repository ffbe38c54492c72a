// Steps on streams, on a GPU; skipped where there is none.
#include "plugins/devices/cuda/executable.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "plugins/devices/cuda/check.h"

namespace consist::cuda {
namespace {

using namespace std::chrono_literals;

/// Keeps its stream waiting, as a collective does whose peer is gone, until it is let go.
class Stuck final : public Kernel {
 public:
  void launch(std::span<const Buffer>, std::span<const Buffer>, void*, NativeQueue queue) override {
    cuda::check(cudaLaunchHostFunc(static_cast<cudaStream_t>(queue), &wait, &let_go), "cudaLaunchHostFunc");
  }
  std::atomic<bool> let_go{false};

 private:
  static void wait(void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load()) usleep(100);
  }
};

/// Short work of the GPU.
class Work final : public Kernel {
 public:
  Work() { cuda::check(cudaMalloc(&memory_, 4), "cudaMalloc"); }
  ~Work() override { cudaFree(memory_); }
  void launch(std::span<const Buffer>, std::span<const Buffer>, void*, NativeQueue queue) override {
    cuda::check(cudaMemsetAsync(memory_, 0, 4, static_cast<cudaStream_t>(queue)), "cudaMemsetAsync");
    ++launched;
  }
  std::atomic<int> launched{0};

 private:
  void* memory_ = nullptr;
};

TEST(CudaExecutable, AStuckStreamLeavesTheDriverToOthers) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "there is no NVIDIA GPU";
  void* word = nullptr;
  check(cudaMalloc(&word, 4), "cudaMalloc");
  cudaStream_t watchdog = nullptr;
  check(cudaStreamCreateWithFlags(&watchdog, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  constexpr int many = 5000;  // more than a stream's queue holds
  for (const Queue stuck_queue : {Queue::communication(0), Queue::compute()}) {
    Stuck stuck;
    Work work;
    std::vector<Launch> launches(many);
    launches[0] = {.kernel = &stuck, .queue = stuck_queue, .label = "stuck"};
    for (int i = 1; i < many; ++i) {
      launches[static_cast<std::size_t>(i)] = {.kernel = &work, .queue = i % 8 == 0 ? Queue::communication(0) : Queue::compute()};
    }
    launches[8].waits = {1};
    launches[9].waits = {stuck_queue == Queue::compute() ? 8 : 0};
    CudaExecutable executable(std::move(launches), GraphChoice::never, false, 64);
    std::future<void> step = std::async(std::launch::async, [&] {
      executable.run();
      executable.wait();
    });
    std::this_thread::sleep_for(500ms);
    EXPECT_LT(work.launched, many - 1) << "the host was not kept from filling the queue";
    // What a watchdog does to let the stream go on.
    std::future<void> other = std::async(std::launch::async, [&] {
      check(cudaMemsetAsync(word, 0, 4, watchdog), "cudaMemsetAsync");
      check(cudaStreamSynchronize(watchdog), "cudaStreamSynchronize");
    });
    EXPECT_EQ(other.wait_for(5s), std::future_status::ready) << "a call of another thread waits for the stuck stream";
    stuck.let_go = true;
    other.get();
    step.get();
    EXPECT_EQ(work.launched, many - 1);
  }
  cudaStreamDestroy(watchdog);
  cudaFree(word);
}

}  // namespace
}  // namespace consist::cuda
