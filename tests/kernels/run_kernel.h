// Runs one kernel of any device on given values, in memory that shows what the kernel must not do.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "consist/device.h"
#include "tests/kernels/host_tensor.h"

namespace consist::test {

using reference::Value;
using reference::Values;

/// Memory of a device between two guards, filled with a pattern that reads as NaN in f32 and bf16.
class GuardedMemory {
 public:
  GuardedMemory(Device& device, std::int64_t bytes)
      : device_(device), bytes_(bytes), memory_(static_cast<char*>(device.allocate(MemorySpace::device, bytes + 2 * kGuard))) {
    poison();
  }
  ~GuardedMemory() { device_.release(MemorySpace::device, memory_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const { return memory_ + kGuard; }  // aligned as allocate() aligns
  void poison() {
    const std::vector<std::uint8_t> pattern(static_cast<std::size_t>(bytes_ + 2 * kGuard), kPoison);
    device_.upload(memory_, pattern.data(), bytes_ + 2 * kGuard);
  }
  bool intact() const {
    std::uint8_t guards[2 * kGuard];
    device_.download(guards, memory_, kGuard);
    device_.download(guards + kGuard, memory_ + kGuard + bytes_, kGuard);
    for (const std::uint8_t byte : guards) {
      if (byte != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  static constexpr std::uint8_t kPoison = 0xff;
  Device& device_;
  std::int64_t bytes_;
  char* memory_;
};

enum class Repeated { same_bits, within_rounding };

/// Runs the op's kernel twice, as steps of the device (the second one is a replay where the device records steps), and returns
/// its outputs: types as the op infers them, updates in place as the op says. Memory around the tensors and the scratch, and all
/// inputs that are not updated, must stay as they are; both runs must give the same bits unless `repeated` says otherwise.
inline HostTensors run_kernel(Device& device, const std::string& op_name, const HostTensors& inputs, const Attributes& attributes,
                              Repeated repeated = Repeated::same_bits) {
  const Op& op = registry().get(op_name);
  Types types;
  for (const auto& tensor : inputs) {
    types.push_back(tensor ? std::optional(TensorType{tensor->dtype, tensor->shape}) : std::nullopt);
  }
  const Types out_types = op.infer(types, attributes);

  std::vector<std::unique_ptr<GuardedMemory>> memories;
  const auto buffer_for = [&](const std::optional<TensorType>& type) {
    if (!type) return Buffer{nullptr, DType::u8, Shape{0}};
    memories.push_back(
        std::make_unique<GuardedMemory>(device, type->shape.elements() * static_cast<std::int64_t>(size_of(type->dtype))));
    return Buffer{memories.back()->data(), type->dtype, type->shape};
  };
  std::vector<Buffer> in, out;
  for (const auto& type : types) in.push_back(buffer_for(type));
  std::vector<bool> updated(in.size(), false);
  for (std::size_t i = 0; i < out_types.size(); ++i) {
    const int place = op.updates_in_place(static_cast<int>(i));
    const bool in_place =
        place >= 0 && static_cast<std::size_t>(place) < in.size() && !in[static_cast<std::size_t>(place)].absent();
    out.push_back(in_place ? in[static_cast<std::size_t>(place)] : buffer_for(out_types[i]));
    if (in_place) updated[static_cast<std::size_t>(place)] = true;
  }
  const auto without_data = [](std::vector<Buffer> buffers) {
    for (Buffer& buffer : buffers) buffer.data = nullptr;
    return buffers;
  };
  const std::vector<Buffer> in_request = without_data(in), out_request = without_data(out);
  const std::unique_ptr<Kernel> kernel = device.make_kernel({op_name, in_request, out_request, attributes});
  if (!kernel) {
    ADD_FAILURE() << "the device has no kernel for " << op_name;
    return {};
  }
  GuardedMemory workspace(device, kernel->workspace_bytes());
  Launch launch;
  launch.kernel = kernel.get();
  launch.inputs = in;
  launch.outputs = out;
  launch.workspace = workspace.data();
  launch.label = op_name;
  const std::unique_ptr<Executable> step = device.prepare({launch}, false);

  std::vector<HostTensors> results;
  for (int repetition = 0; repetition < 2; ++repetition) {
    for (const auto& memory : memories) memory->poison();
    workspace.poison();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) device.upload(in[i].data, inputs[i]->bytes.data(), static_cast<std::int64_t>(inputs[i]->bytes.size()));
    }
    step->run();
    step->wait();

    EXPECT_TRUE(workspace.intact()) << op_name << " writes beyond its workspace";
    for (const auto& memory : memories) EXPECT_TRUE(memory->intact()) << op_name << " writes beyond a tensor";
    const auto downloaded = [&](const Buffer& buffer) {
      HostTensor tensor(buffer.dtype, buffer.shape);
      device.download(tensor.bytes.data(), buffer.data, static_cast<std::int64_t>(tensor.bytes.size()));
      return tensor;
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || updated[i]) continue;
      EXPECT_TRUE(downloaded(in[i]).bytes == inputs[i]->bytes) << op_name << " changes input " << i;
    }
    HostTensors made;
    for (std::size_t i = 0; i < out.size(); ++i) made.push_back(out_types[i] ? std::optional(downloaded(out[i])) : std::nullopt);
    results.push_back(std::move(made));
  }
  for (std::size_t i = 0; repeated == Repeated::same_bits && i < results[0].size(); ++i) {
    if (!results[0][i]) continue;
    EXPECT_TRUE(results[0][i]->bytes == results[1][i]->bytes) << op_name << " gives different bits when run again, output " << i;
  }
  return results[1];
}

inline Values run_kernel(Device& device, const std::string& op, const Values& inputs, const Attributes& attributes,
                         Repeated repeated = Repeated::same_bits) {
  HostTensors in;
  for (const auto& value : inputs) in.push_back(value ? std::optional(to_host(*value)) : std::nullopt);
  Values out;
  for (const auto& tensor : run_kernel(device, op, in, attributes, repeated)) {
    out.push_back(tensor ? std::optional(to_value(*tensor)) : std::nullopt);
  }
  return out;
}

/// Each element within `tolerance` of the reference, relative to it and to the root mean square of the tensor.
inline void expect_close(const std::optional<Value>& found, const Value& expected, double tolerance, const std::string& what) {
  ASSERT_TRUE(found.has_value()) << what;
  ASSERT_EQ(found->shape, expected.shape) << what;
  double squares = 0;
  for (const double x : expected.data) squares += x * x;
  const double rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(expected.data.size(), 1)));
  double worst = 0;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double error = std::abs(found->data[i] - expected.data[i]);
    const double limit = tolerance * (rms + std::abs(expected.data[i])) + std::numeric_limits<float>::min();
    worst = std::max(worst, error / (rms + std::abs(expected.data[i]) + std::numeric_limits<float>::min()));
    ASSERT_LE(error, limit) << what << "[" << i << "] is " << found->data[i] << ", expected " << expected.data[i] << " (rms "
                            << rms << ")";
  }
  if (std::getenv("CONSIST_TEST_ERRORS") != nullptr) std::printf("%-40s worst %.2e of %.1e\n", what.c_str(), worst, tolerance);
}

}  // namespace consist::test
