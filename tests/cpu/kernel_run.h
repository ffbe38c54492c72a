// Runs one kernel of the CPU device on given values, in memory that shows what the kernel must not do.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/device.h"
#include "core/plugin/host.h"
#include "tests/reference/ops.h"

namespace consist::test {

using reference::Value;
using reference::Values;

/// Memory between two guards, filled with a pattern that reads as NaN in f32 and bf16.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::int64_t bytes) : bytes_(bytes), memory_(static_cast<std::size_t>(bytes + 3 * kGuard), kPoison) {
    const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
    data_ = memory_.data() + ((start + 2 * kGuard - 1) / kGuard * kGuard - start);
  }
  void* data() { return data_; }
  bool intact() const {
    for (const std::uint8_t* p = memory_.data(); p < memory_.data() + memory_.size(); ++p) {
      if ((p < data_ || p >= data_ + bytes_) && *p != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  static constexpr std::uint8_t kPoison = 0xff;
  std::int64_t bytes_;
  std::vector<std::uint8_t> memory_;
  std::uint8_t* data_;
};

inline void store(const Value& value, void* to) {
  for (std::size_t i = 0; i < value.data.size(); ++i) {
    switch (value.dtype) {
      case DType::f32:
        static_cast<float*>(to)[i] = static_cast<float>(value.data[i]);
        break;
      case DType::bf16:
        static_cast<std::uint16_t*>(to)[i] = to_bfloat16(static_cast<float>(value.data[i]));
        break;
      case DType::i32:
        static_cast<std::int32_t*>(to)[i] = static_cast<std::int32_t>(value.data[i]);
        break;
      default:
        throw std::invalid_argument("no test value has this dtype");
    }
  }
}

inline void load(const void* from, Value& value) {
  for (std::size_t i = 0; i < value.data.size(); ++i) {
    switch (value.dtype) {
      case DType::f32:
        value.data[i] = static_cast<const float*>(from)[i];
        break;
      case DType::bf16:
        value.data[i] = from_bfloat16(static_cast<const std::uint16_t*>(from)[i]);
        break;
      case DType::i32:
        value.data[i] = static_cast<const std::int32_t*>(from)[i];
        break;
      default:
        throw std::invalid_argument("no test value has this dtype");
    }
  }
}

/// The CPU device with these options, opened for one rank. Throws UnavailableError.
inline std::shared_ptr<Device> cpu_device(const std::map<std::string, std::string>& options) {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  std::shared_ptr<Device> device = host.make<Device>("device", "cpu", options);
  device->open(0, 1);
  return device;
}

/// Runs the op's kernel twice and returns its outputs: types as the op infers them, updates in place as the op says. Memory
/// around the outputs and the scratch, and all inputs that are not updated, must stay as they are; both runs must give the same
/// bits.
inline Values run_kernel(Device& device, const std::string& op_name, const Values& inputs, const Attributes& attributes) {
  const Op& op = registry().get(op_name);
  Types types;
  for (const auto& value : inputs) types.push_back(value ? std::optional(TensorType{value->dtype, value->shape}) : std::nullopt);
  const Types out_types = op.infer(types, attributes);

  const Buffer absent{nullptr, DType::u8, Shape{0}};
  const auto bytes_of = [](const TensorType& type) {
    return type.shape.elements() * static_cast<std::int64_t>(size_of(type.dtype));
  };
  std::vector<Values> results;
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::vector<std::unique_ptr<GuardedMemory>> memories;
    const auto buffer_for = [&](const std::optional<TensorType>& type) {
      if (!type) return absent;
      memories.push_back(std::make_unique<GuardedMemory>(bytes_of(*type)));
      return Buffer{memories.back()->data(), type->dtype, type->shape};
    };
    std::vector<Buffer> in, out;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      in.push_back(buffer_for(types[i]));
      if (inputs[i]) store(*inputs[i], in.back().data);
    }
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
    GuardedMemory workspace(kernel->workspace_bytes());
    kernel->launch(in, out, workspace.data(), nullptr);

    EXPECT_TRUE(workspace.intact()) << op_name << " writes beyond its workspace";
    for (const auto& memory : memories) EXPECT_TRUE(memory->intact()) << op_name << " writes beyond a tensor";
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || updated[i]) continue;
      Value now = *inputs[i];
      load(in[i].data, now);
      EXPECT_EQ(now.data, inputs[i]->data) << op_name << " changes input " << i;
    }
    Values made;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out_types[i]) {
        made.emplace_back(reference::zeros(out_types[i]->dtype, out_types[i]->shape));
        load(out[i].data, *made.back());
      } else {
        made.emplace_back(std::nullopt);
      }
    }
    results.push_back(std::move(made));
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    if (!results[0][i]) continue;
    const auto &first = results[0][i]->data, &second = results[1][i]->data;
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(double)), 0)
        << op_name << " gives different bits when run again";
  }
  return results[0];
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
