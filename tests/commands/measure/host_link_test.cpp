// Rates between host and device: of copies that take a known time, and on devices that cannot copy.
#include "launch/measure/host_link.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "consist/error.h"
#include "tests/lone_job.h"

namespace consist::launch {
namespace {

/// Copies take so many milliseconds each; in both directions at once, so much longer.
struct Speed {
  int to_device = 1, from_device = 1;
  double both = 1;
};

class SlowCopies final : public Executable {
 public:
  SlowCopies(const std::vector<Launch>& launches, const Speed& speed) {
    double in = 0, out = 0;
    for (const Launch& launch : launches) {
      EXPECT_NE(launch.inputs.at(0).space, launch.outputs.at(0).space);
      (launch.queue == Queue::host_to_device() ? in : out) +=
          launch.queue == Queue::host_to_device() ? speed.to_device : speed.from_device;
    }
    milliseconds_ = std::max(in, out) * (in > 0 && out > 0 ? speed.both : 1);
  }
  void run() override {}
  void wait() override { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds_)); }
  std::int32_t position() const noexcept override { return -1; }

 private:
  double milliseconds_ = 0;
};

class NothingCopied final : public Kernel {
 public:
  void launch(std::span<const Buffer> /*in*/, std::span<const Buffer> /*out*/, void* /*workspace*/,
              NativeQueue /*queue*/) override {}
};

class CopyingDevice final : public Device {
 public:
  explicit CopyingDevice(Speed speed, bool pins = true) : speed_(speed), pins_(pins) {}
  void open(int /*local_rank*/, int /*local_ranks*/) override {}
  DeviceInfo info() const override { return {.kind = "test"}; }
  void* allocate(MemorySpace space, std::int64_t bytes) override {
    if (space == MemorySpace::host && !pins_) throw SystemError("no memory can be pinned");
    ++held;
    return std::malloc(static_cast<std::size_t>(bytes));  // never touched
  }
  void release(MemorySpace /*space*/, void* memory) noexcept override {
    --held;
    std::free(memory);
  }
  void upload(void* /*to*/, const void* /*host*/, std::int64_t /*bytes*/) override {}
  void download(void* /*host*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    EXPECT_EQ(request.op, "copy");
    return std::make_unique<NothingCopied>();
  }
  std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool /*profile*/) override {
    return std::make_unique<SlowCopies>(launches, speed_);
  }
  DeviceCounters counters() const override { return {}; }
  double measure_matmul(DType /*dtype*/, std::int64_t /*m*/, std::int64_t /*n*/, std::int64_t /*k*/) override { return 0; }

  int held = 0;

 private:
  Speed speed_;
  bool pins_;
};

TEST(HostLink, IsMeasuredByDirectionAndInBoth) {
  test::LoneJob job;
  CopyingDevice device({.to_device = 5, .from_device = 10, .both = 2});
  const HostLink link = measure_host_link(job, device);
  EXPECT_EQ(link.problem, "");
  EXPECT_NEAR(link.alone[0] / link.alone[1], 2, 0.6);
  EXPECT_NEAR(link.shared[0] / link.alone[0], 1, 0.4) << "there is one rank";
  EXPECT_NEAR(link.alone[0] / ((64 << 20) / 5e-3), 1, 0.4);
  EXPECT_NEAR(link.both, 0.5, 0.2);
  EXPECT_EQ(device.held, 0);
}

TEST(HostLink, SaysWhyItIsNotMeasured) {
  test::LoneJob job;
  CopyingDevice device({}, false);
  EXPECT_EQ(measure_host_link(job, device).problem, "no memory can be pinned");
  EXPECT_EQ(device.held, 0);
}

}  // namespace
}  // namespace consist::launch
