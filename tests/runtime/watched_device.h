// A device that passes everything on to another one and watches: what happens inside of a step, and which bytes of the arena
// launches use.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "consist/device.h"

namespace consist::test {

/// Calls and memory that one rank's device saw. Counts of steps are of all executables together.
struct Seen {
  std::int64_t allocations = 0;  ///< calls of allocate()
  std::int64_t arena_bytes = 0;  ///< of the largest allocation of device memory
  std::int64_t used_bytes =
      0;  ///< from the arena's start to the end of the last byte that a launch reads, writes or has as its workspace
  bool outside = false;  ///< a launch uses memory that is not in the arena
  std::int64_t runs = 0, waits = 0;
  std::atomic<std::int64_t> calls_inside{0};  ///< of any member of the device between run() and the end of wait()
};

class WatchedDevice final : public Device {
 public:
  WatchedDevice(std::shared_ptr<Device> device, Seen& seen) : device_(std::move(device)), seen_(seen) {}

  void open(int local_rank, int local_ranks) override { device_->open(local_rank, local_ranks); }
  DeviceInfo info() const override { return device_->info(); }
  void* allocate(MemorySpace space, std::int64_t bytes) override {
    note();
    ++seen_.allocations;
    void* memory = device_->allocate(space, bytes);
    if (space == MemorySpace::device && bytes > seen_.arena_bytes) {
      seen_.arena_bytes = bytes;
      arena_ = static_cast<char*>(memory);
    }
    return memory;
  }
  void release(MemorySpace space, void* memory) noexcept override {
    note();
    device_->release(space, memory);
  }
  void upload(void* to, const void* host, std::int64_t bytes) override {
    note();
    device_->upload(to, host, bytes);
  }
  void download(void* host, const void* from, std::int64_t bytes) override {
    note();
    device_->download(host, from, bytes);
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    note();
    return device_->make_kernel(request);
  }
  std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool profile) override {
    note();
    for (const Launch& launch : launches) {
      for (const auto* buffers : {&launch.inputs, &launch.outputs}) {
        for (const Buffer& buffer : *buffers) {
          if (!buffer.absent()) use(buffer.data, buffer.shape.elements() * static_cast<std::int64_t>(size_of(buffer.dtype)));
        }
      }
      if (launch.workspace != nullptr) use(launch.workspace, launch.kernel->workspace_bytes());
    }
    return std::make_unique<Watched>(device_->prepare(std::move(launches), profile), *this);
  }
  DeviceCounters counters() const override { return device_->counters(); }
  double measure_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    note();
    return device_->measure_matmul(dtype, m, n, k);
  }

 private:
  class Watched final : public Executable {
   public:
    Watched(std::unique_ptr<Executable> executable, WatchedDevice& owner) : executable_(std::move(executable)), owner_(owner) {}
    void run() override {
      ++owner_.seen_.runs;
      owner_.inside_ = true;
      executable_->run();
    }
    void wait() override {
      ++owner_.seen_.waits;
      executable_->wait();
      owner_.inside_ = false;
    }
    std::int32_t position() const noexcept override { return executable_->position(); }
    std::vector<LaunchTime> launch_times() const override { return executable_->launch_times(); }

   private:
    std::unique_ptr<Executable> executable_;
    WatchedDevice& owner_;
  };

  void note() noexcept {
    if (inside_) ++seen_.calls_inside;
  }
  void use(const void* data, std::int64_t bytes) {
    const std::ptrdiff_t first = static_cast<const char*>(data) - arena_;
    if (first < 0 || first + bytes > seen_.arena_bytes) seen_.outside = true;
    seen_.used_bytes = std::max<std::int64_t>(seen_.used_bytes, first + bytes);
  }

  std::shared_ptr<Device> device_;
  Seen& seen_;
  char* arena_ = nullptr;
  std::atomic<bool> inside_{false};
};

}  // namespace consist::test
