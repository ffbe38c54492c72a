// Runs one kernel of any device on given values, in memory that shows what the kernel must not do.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

/// All memory of one launch, in one piece of a device's memory: tensors and scratch between guards, all of it filled with a
/// pattern that reads as NaN in f32 and bf16, and moved at once.
class GuardedMemory {
 public:
  explicit GuardedMemory(Device& device) : device_(device) {}
  ~GuardedMemory() {
    if (memory_ != nullptr) device_.release(MemorySpace::device, memory_);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  /// Reserves a part and returns its number; before allocate().
  std::size_t reserve(std::int64_t bytes) {
    parts_.push_back({size_, bytes});
    size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
    return parts_.size() - 1;
  }
  void allocate() {
    memory_ = static_cast<std::uint8_t*>(device_.allocate(MemorySpace::device, size_));
    image_.resize(static_cast<std::size_t>(size_));
  }
  void* on_device(std::size_t part) const { return memory_ + parts_[part].offset; }
  std::uint8_t* image(std::size_t part) { return image_.data() + parts_[part].offset; }

  void poison() { std::fill(image_.begin(), image_.end(), kPoison); }
  void upload() { device_.upload(memory_, image_.data(), size_); }
  void download() { device_.download(image_.data(), memory_, size_); }
  /// Whether nothing was written between the parts and before the first.
  bool intact() const {
    std::int64_t free = 0;
    for (const Part& part : parts_) {
      if (!poisoned(free, part.offset)) return false;
      free = part.offset + part.bytes;
    }
    return poisoned(free, size_);
  }

 private:
  struct Part {
    std::int64_t offset, bytes;
  };
  bool poisoned(std::int64_t first, std::int64_t last) const {
    return std::all_of(image_.begin() + first, image_.begin() + last, [](std::uint8_t byte) { return byte == kPoison; });
  }
  static constexpr std::int64_t kAlignment = 256;
  static constexpr std::uint8_t kPoison = 0xff;
  Device& device_;
  std::vector<Part> parts_;
  std::int64_t size_ = kAlignment;
  std::uint8_t* memory_ = nullptr;
  std::vector<std::uint8_t> image_;
};

/// What a rank holds of the tensors where that is not all.
struct LocalParts {
  std::vector<Origin> inputs, outputs;  ///< where they begin in the logical tensors; empty: all at 0
  Types output_types;                   ///< empty: what the op infers from the inputs
};

enum class Repeated { same_bits, within_rounding };

/// Runs the op's kernel twice, as steps of the device (the second one is a replay where the device records steps), and returns
/// its outputs: types as the op infers them, updates in place as the op says. Memory around the tensors and the scratch, and all
/// inputs that are not updated, must stay as they are; both runs must give the same bits unless `repeated` says otherwise.
inline HostTensors run_kernel(Device& device, const std::string& op_name, const HostTensors& inputs, const Attributes& attributes,
                              Repeated repeated = Repeated::same_bits, const LocalParts& parts = {}) {
  const Op& op = registry().get(op_name);
  Types types;
  for (const auto& tensor : inputs) {
    types.push_back(tensor ? std::optional(TensorType{tensor->dtype, tensor->shape}) : std::nullopt);
  }
  const Types out_types = parts.output_types.empty() ? op.infer(types, attributes) : parts.output_types;

  const Buffer absent{nullptr, DType::u8, Shape{0}};
  const auto buffers_of = [&](const Types& all) {
    std::vector<Buffer> buffers;
    for (const auto& type : all) buffers.push_back(type ? Buffer{nullptr, type->dtype, type->shape} : absent);
    return buffers;
  };
  std::vector<Buffer> in = buffers_of(types), out = buffers_of(out_types);
  const std::unique_ptr<Kernel> kernel = device.make_kernel({op_name, in, out, attributes, parts.inputs, parts.outputs});
  if (!kernel) {
    ADD_FAILURE() << "the device has no kernel for " << op_name;
    return {};
  }

  GuardedMemory memory(device);
  const auto reserve = [&](const std::optional<TensorType>& type) {
    return type ? memory.reserve(type->shape.elements() * static_cast<std::int64_t>(size_of(type->dtype))) : std::size_t{0};
  };
  std::vector<std::size_t> in_parts, out_parts;
  std::vector<bool> updated(in.size(), false);
  for (const auto& type : types) in_parts.push_back(reserve(type));
  for (std::size_t i = 0; i < out_types.size(); ++i) {
    const int place = op.updates_in_place(static_cast<int>(i));
    const bool in_place =
        place >= 0 && static_cast<std::size_t>(place) < in.size() && !in[static_cast<std::size_t>(place)].absent();
    out_parts.push_back(in_place ? in_parts[static_cast<std::size_t>(place)] : reserve(out_types[i]));
    if (in_place) updated[static_cast<std::size_t>(place)] = true;
  }
  const std::size_t workspace = memory.reserve(kernel->workspace_bytes());
  memory.allocate();
  for (std::size_t i = 0; i < in.size(); ++i) in[i].data = types[i] ? memory.on_device(in_parts[i]) : nullptr;
  for (std::size_t i = 0; i < out.size(); ++i) out[i].data = out_types[i] ? memory.on_device(out_parts[i]) : nullptr;

  Launch launch;
  launch.kernel = kernel.get();
  launch.inputs = in;
  launch.outputs = out;
  launch.workspace = memory.on_device(workspace);
  launch.label = op_name;
  const std::unique_ptr<Executable> step = device.prepare({launch}, false);

  std::vector<HostTensors> results;
  for (int repetition = 0; repetition < 2; ++repetition) {
    memory.poison();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) std::copy(inputs[i]->bytes.begin(), inputs[i]->bytes.end(), memory.image(in_parts[i]));
    }
    memory.upload();
    step->run();
    step->wait();
    memory.download();

    EXPECT_TRUE(memory.intact()) << op_name << " writes beyond a tensor or its workspace";
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || updated[i]) continue;
      EXPECT_TRUE(std::equal(inputs[i]->bytes.begin(), inputs[i]->bytes.end(), memory.image(in_parts[i])))
          << op_name << " changes input " << i;
    }
    HostTensors made;
    for (std::size_t i = 0; i < out.size(); ++i) {
      made.emplace_back(std::nullopt);
      if (!out_types[i]) continue;
      made.back().emplace(out_types[i]->dtype, out_types[i]->shape);
      std::copy_n(memory.image(out_parts[i]), made.back()->bytes.size(), made.back()->bytes.data());
    }
    results.push_back(std::move(made));
  }
  for (std::size_t i = 0; repeated == Repeated::same_bits && i < results[0].size(); ++i) {
    if (!results[0][i]) continue;
    EXPECT_TRUE(results[0][i]->bytes == results[1][i]->bytes) << op_name << " gives different bits when run again, output " << i;
  }
  return results[1];
}

inline Values run_kernel(Device& device, const std::string& op, const Values& inputs, const Attributes& attributes,
                         Repeated repeated = Repeated::same_bits, const LocalParts& parts = {}) {
  HostTensors in;
  for (const auto& value : inputs) in.push_back(value ? std::optional(to_host(*value)) : std::nullopt);
  Values out;
  for (const auto& tensor : run_kernel(device, op, in, attributes, repeated, parts)) {
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

/// For what an op may be given or not: an accumulator, a residual, masters.
inline constexpr bool kWithAndWithout[] = {false, true};

}  // namespace consist::test
