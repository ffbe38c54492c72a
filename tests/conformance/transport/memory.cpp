#include "tests/conformance/transport/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace consist::testing {
namespace {

class HostMemory final : public Memory {
 public:
  void* allocate(std::size_t bytes) override {
    void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void release(void* memory) noexcept override { std::free(memory); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  NativeQueue queue() const override { return nullptr; }
  void finish(Communicator& group) override { group.check(); }
};

}  // namespace

std::unique_ptr<Memory> make_memory(const std::string& kind, int local_rank) {
  if (kind == "cuda") return make_cuda_memory(local_rank);
  return std::make_unique<HostMemory>();
}

int ranks_with_memory(const std::string& kind, int wanted, std::string& reason) {
  return std::min(wanted, kind == "cuda" ? cuda_devices(reason) : std::numeric_limits<int>::max());
}

}  // namespace consist::testing
