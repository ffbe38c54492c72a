// Memory that collectives work on: the host's, or that of a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "consist/transport.h"

namespace consist::testing {

/// One per rank, used by its thread alone.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual NativeQueue queue() const = 0;
  /// Waits for what was enqueued, then asks the communicator what went wrong, as a device does after a step.
  virtual void finish(Communicator& group) = 0;
};

/// "cpu" or "cuda"; rank `local_rank` takes the GPU of that number.
std::unique_ptr<Memory> make_memory(const std::string& kind, int local_rank);
/// Ranks that can have memory of that kind here, at most `wanted`; `reason` says why it is 0.
int ranks_with_memory(const std::string& kind, int wanted, std::string& reason);

/// In cuda_memory.cpp, or without_cuda.cpp where the build found no CUDA.
std::unique_ptr<Memory> make_cuda_memory(int device);
int cuda_devices(std::string& reason);

/// Memory that `memory` allocates; the destructor releases it.
class Block {
 public:
  Block(Memory& memory, std::size_t bytes) : memory_(memory), data_(memory.allocate(bytes)) {}
  ~Block() { memory_.release(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  Memory& memory_;
  void* data_;
};

}  // namespace consist::testing
