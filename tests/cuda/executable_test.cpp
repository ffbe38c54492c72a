// Steps on streams, on a GPU; skipped where there is none.
#include "plugins/devices/cuda/executable.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "plugins/devices/cuda/check.h"

namespace consist::cuda {
namespace {

/// Keeps its stream waiting until it is let go.
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

TEST(CudaExecutable, PositionNamesTheCommunicationThatRunsAndNothingBetweenRuns) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "there is no NVIDIA GPU";
  Stuck stuck;
  std::vector<Launch> launches(2);
  for (Launch& launch : launches) launch = {.kernel = &stuck, .queue = Queue::communication(0), .label = "stuck"};
  CudaExecutable executable(std::move(launches), GraphChoice::never, 2.5e-6, false);
  EXPECT_EQ(executable.position(), -1);
  for (int run = 0; run < 2; ++run) {
    stuck.let_go = false;
    executable.run();
    for (int i = 0; i < 1000 && executable.position() < 0; ++i) usleep(1000);
    EXPECT_EQ(executable.position(), 0);
    stuck.let_go = true;
    executable.wait();
    EXPECT_EQ(executable.position(), -1);
  }
}

}  // namespace
}  // namespace consist::cuda
