// A kernel that is tried: its operands lie between bytes that nobody may touch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/kernel.h"
#include "tests/conformance/parts/operands.h"

namespace consist::testing {

/// Memory of a device with guard bytes on both sides.
class GuardedMemory {
 public:
  GuardedMemory(Device& device, std::int64_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const noexcept { return static_cast<char*>(memory_) + guard; }
  void write(const std::vector<char>& bytes);
  /// Sets all bytes and the guards.
  void fill(char byte);
  std::vector<char> read() const;
  /// Bytes of the guards that are no longer as fill() left them: "byte 12 behind its end"; empty if there are none.
  std::string damage() const;

 private:
  static constexpr std::int64_t guard = 4096;
  Device& device_;
  std::int64_t bytes_;
  char filled_ = 0;
  void* memory_ = nullptr;
};

/// The effects of one launch.
struct Launched {
  Operands outputs;                   ///< those that are updated in place, too
  std::vector<std::string> mischief;  ///< what it touched that it may not: "it wrote byte 3 behind the end of output 0"
  std::int64_t allocations = 0;       ///< of the host's memory, while launch() ran
};

/// One kernel of one instruction, which may be launched again and again.
class Trial {
 public:
  /// Takes a device that is open. `request`'s buffers are of the operands' types. Throws what the kernel throws.
  Trial(Device& device, std::unique_ptr<Kernel> kernel, const Op& op, const Types& inputs, const Types& outputs);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Outputs, workspace and the bytes around all operands are `before` in front of the launch.
  Launched launch(const Operands& inputs, char before);

 private:
  class Counting;
  struct Place {
    std::optional<TensorType> type;
    GuardedMemory* memory = nullptr;
    bool updated = false;  ///< an input that an output updates in place; an output that does
  };
  Place& place(const std::optional<TensorType>& type, std::vector<Place>& places);
  std::vector<std::string> mischief(const Operands& inputs) const;

  Device& device_;
  std::vector<std::unique_ptr<GuardedMemory>> memories_;
  std::vector<Place> inputs_, outputs_;
  GuardedMemory* workspace_ = nullptr;
  std::unique_ptr<Counting> kernel_;
  std::unique_ptr<Executable> executable_;
};

/// The kernel of an instruction on the device, as a run would get it; throws Error if there is none. `origins` as KernelRequest
/// has them.
std::unique_ptr<Kernel> kernel_on(Device& device, const std::string& kind, const Op& op, const Types& inputs,
                                  const Types& outputs, const Attributes& attributes, std::span<const Origin> input_origins = {},
                                  std::span<const Origin> output_origins = {});
/// Buffers without memory, for requests.
std::vector<Buffer> described(const Types& types);

}  // namespace consist::testing
