// A device that has nothing and does nothing, for tests that need one of which they ask little.
#pragma once

#include <memory>
#include <vector>

#include "consist/device.h"

namespace consist::test {

class IdleDevice : public Device {
 public:
  void open(int, int) override {}
  DeviceInfo info() const override { return {.kind = "none"}; }
  void* allocate(MemorySpace, std::int64_t) override { return nullptr; }
  void release(MemorySpace, void*) noexcept override {}
  void upload(void*, const void*, std::int64_t) override {}
  void download(void*, const void*, std::int64_t) override {}
  std::unique_ptr<Kernel> make_kernel(const KernelRequest&) override { return nullptr; }
  std::unique_ptr<Executable> prepare(std::vector<Launch>, bool) override { return nullptr; }
  DeviceCounters counters() const override { return {}; }
  double measure_matmul(DType, std::int64_t, std::int64_t, std::int64_t) override { return 0; }
};

}  // namespace consist::test
