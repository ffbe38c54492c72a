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

#include "consist/attention_scores.h"
#include "consist/device.h"
#include "tests/kernels/host_tensor.h"

namespace consist::test {

using reference::Value;
using reference::Values;

/// All memory of one launch, in one piece of a device's memory: tensors and scratch between guards, all of it filled with a
/// pattern that reads as NaN in f32 and bf16, and moved at once.
class GuardedMemory {
 public:
  static constexpr std::uint8_t kPoison = 0xff;

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
  /// True if nothing was written before, between or behind the parts.
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
  Device& device_;
  std::vector<Part> parts_;
  std::int64_t size_ = kAlignment;
  std::uint8_t* memory_ = nullptr;
  std::vector<std::uint8_t> image_;
};

/// A rank's parts of the tensors where it does not hold all of them.
struct LocalParts {
  std::vector<Origin> inputs, outputs;  ///< where they begin in the logical tensors; empty: all at 0
  Types output_types;                   ///< empty: what the op infers from the inputs
};

enum class Repeated { same_bits, within_rounding };

/// Places of the tensors in memory.
struct Places {
  bool strided = false;   ///< those that may be strided views of a wider tensor are
  bool in_place = false;  ///< output 0 takes the place of input 0, of the same type
  bool apart = false;     ///< outputs that may lie apart from the input that they update do
};

/// Rows of a tensor in memory. Columns begin at 16 bytes in every row, with something before and behind them.
struct Rows {
  std::int64_t count = 0, bytes = 0, first = 0, apart = 0;
  Rows() = default;
  Rows(const TensorType& type, bool strided)
      : count(strided ? type.shape.rows() : 1),
        bytes(type.shape.elements() * static_cast<std::int64_t>(size_of(type.dtype)) / std::max<std::int64_t>(count, 1)),
        first(strided ? 16 : 0),
        apart(strided ? (bytes + 15) / 16 * 16 + 32 : bytes) {}
  std::int64_t reserved() const { return count * apart; }
  std::int64_t row_stride(DType type) const { return first == 0 ? 0 : apart / static_cast<std::int64_t>(size_of(type)); }
  void put(const std::vector<std::uint8_t>& from, std::uint8_t* memory) const {
    for (std::int64_t row = 0; row < count; ++row) std::copy_n(from.data() + row * bytes, bytes, memory + first + row * apart);
  }
  void take(const std::uint8_t* memory, std::vector<std::uint8_t>& to) const {
    for (std::int64_t row = 0; row < count; ++row) std::copy_n(memory + first + row * apart, bytes, to.data() + row * bytes);
  }
  bool holds(const std::vector<std::uint8_t>& expected, const std::uint8_t* memory) const {
    for (std::int64_t row = 0; row < count; ++row) {
      if (!std::equal(memory + first + row * apart, memory + first + row * apart + bytes, expected.data() + row * bytes))
        return false;
    }
    return true;
  }
  bool intact_beside(const std::uint8_t* memory, std::uint8_t poison) const {
    const auto clean = [&](const std::uint8_t* from, const std::uint8_t* to) {
      return std::all_of(from, to, [poison](std::uint8_t byte) { return byte == poison; });
    };
    for (std::int64_t row = 0; row < count; ++row) {
      const std::uint8_t* begin = memory + row * apart;
      if (!clean(begin, begin + first) || !clean(begin + first + bytes, begin + apart)) return false;
    }
    return true;
  }
};

/// An op's tensors: their types, how their rows lie, and the buffers of a request for its kernel.
struct Operands {
  Types types;
  std::vector<Rows> rows;
  std::vector<Buffer> buffers;
  std::vector<std::size_t> parts;  ///< of the memory

  /// `made`: outputs, else inputs.
  Operands(const Places& places, const Op& op, Types of, bool made) : types(std::move(of)) {
    for (std::size_t i = 0; i < types.size(); ++i) {
      const int index = static_cast<int>(i);
      const bool strided = places.strided && (made ? op.makes_strided_view(index) : op.takes_strided_view(index));
      rows.push_back(types[i] ? Rows(*types[i], strided && types[i]->shape.rank() == 3) : Rows());
      buffers.push_back(types[i] ? Buffer{nullptr, types[i]->dtype, types[i]->shape, rows[i].row_stride(types[i]->dtype)}
                                 : Buffer{nullptr, DType::u8, Shape{0}});
    }
  }
  std::size_t reserve(GuardedMemory& memory, std::size_t i) const {
    return types[i] ? memory.reserve(rows[i].reserved()) : std::size_t{0};
  }
  void place(GuardedMemory& memory) {
    for (std::size_t i = 0; i < types.size(); ++i)
      buffers[i].data = types[i] ? static_cast<std::uint8_t*>(memory.on_device(parts[i])) + rows[i].first : nullptr;
  }
};

/// Reserves memory for all tensors, outputs in the place of the inputs that they update. Returns for each input if it is updated.
inline std::vector<bool> reserve_operands(const Places& places, const Op& op, GuardedMemory& memory, Operands& in,
                                          Operands& out) {
  std::vector<bool> updated(in.types.size(), false);
  for (std::size_t i = 0; i < in.types.size(); ++i) in.parts.push_back(in.reserve(memory, i));
  for (std::size_t i = 0; i < out.types.size(); ++i) {
    const int output = static_cast<int>(i), place = places.in_place && i == 0 ? 0 : op.updates_in_place(output);
    const bool in_place = place >= 0 && !(places.apart && op.updates_apart(output)) &&
                          static_cast<std::size_t>(place) < in.types.size() &&
                          !in.buffers[static_cast<std::size_t>(place)].absent();
    out.parts.push_back(in_place ? in.parts[static_cast<std::size_t>(place)] : out.reserve(memory, i));
    if (in_place) updated[static_cast<std::size_t>(place)] = true;
  }
  return updated;
}

/// Runs a prepared step in poisoned memory and returns its outputs. Memory around the tensors, and inputs that are not updated,
/// must stay as they are.
inline HostTensors run_step(Executable& step, GuardedMemory& memory, const std::string& op_name, const HostTensors& inputs,
                            const std::vector<bool>& updated, const Operands& in, const Operands& out) {
  memory.poison();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) in.rows[i].put(inputs[i]->bytes, memory.image(in.parts[i]));
  }
  memory.upload();
  step.run();
  step.wait();
  memory.download();

  EXPECT_TRUE(memory.intact()) << op_name << " writes beyond a tensor or its workspace";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    EXPECT_TRUE(in.rows[i].intact_beside(memory.image(in.parts[i]), GuardedMemory::kPoison))
        << op_name << " writes beside the rows of input " << i;
    EXPECT_TRUE(updated[i] || in.rows[i].holds(inputs[i]->bytes, memory.image(in.parts[i]))) << op_name << " changes input " << i;
  }
  HostTensors made;
  for (std::size_t i = 0; i < out.types.size(); ++i) {
    made.emplace_back(std::nullopt);
    if (!out.types[i]) continue;
    made.back().emplace(out.types[i]->dtype, out.types[i]->shape);
    out.rows[i].take(memory.image(out.parts[i]), made.back()->bytes);
    EXPECT_TRUE(out.rows[i].intact_beside(memory.image(out.parts[i]), GuardedMemory::kPoison))
        << op_name << " writes beside the rows of output " << i;
  }
  return made;
}

/// Runs the op's kernel twice, as steps of the device (the second one is a replay where the device records steps), and returns
/// its outputs: types as the op infers them, updates in place as the op says. Memory around the tensors and the scratch, and all
/// inputs that are not updated, must stay as they are; both runs must give the same bits unless `repeated` says otherwise.
inline HostTensors run_kernel_at(const Places& places, Device& device, const std::string& op_name, const HostTensors& inputs,
                                 const Attributes& attributes, Repeated repeated, const LocalParts& parts) {
  const Op& op = registry().get(op_name);
  Types types;
  for (const auto& tensor : inputs) {
    types.push_back(tensor ? std::optional(TensorType{tensor->dtype, tensor->shape}) : std::nullopt);
  }
  Operands in(places, op, types, false),
      out(places, op, parts.output_types.empty() ? op.infer(types, attributes) : parts.output_types, true);
  const std::unique_ptr<Kernel> kernel =
      device.make_kernel({op_name, in.buffers, out.buffers, attributes, parts.inputs, parts.outputs});
  if (!kernel) {
    ADD_FAILURE() << "the device has no kernel for " << op_name;
    return {};
  }

  GuardedMemory memory(device);
  const std::vector<bool> updated = reserve_operands(places, op, memory, in, out);
  const std::size_t workspace = memory.reserve(kernel->workspace_bytes());
  memory.allocate();
  in.place(memory);
  out.place(memory);

  Launch launch;
  launch.kernel = kernel.get();
  launch.inputs = in.buffers;
  launch.outputs = out.buffers;
  launch.workspace = memory.on_device(workspace);
  launch.label = op_name;
  const std::unique_ptr<Executable> step = device.prepare({launch}, false);

  const HostTensors first = run_step(*step, memory, op_name, inputs, updated, in, out);
  HostTensors second = run_step(*step, memory, op_name, inputs, updated, in, out);
  for (std::size_t i = 0; repeated == Repeated::same_bits && i < first.size(); ++i) {
    if (!first[i]) continue;
    EXPECT_TRUE(first[i]->bytes == second[i]->bytes) << op_name << " gives different bits when run again, output " << i;
  }
  return second;
}

/// Elements of both agree to about two roundings, all or every so many of a large tensor.
inline void expect_alike(const HostTensor& found, const HostTensor& expected, const std::string& what) {
  const std::int64_t count = expected.shape.elements(), step = std::max<std::int64_t>(1, count >> 22) | 1;
  double squares = 0;
  std::int64_t seen = 0;
  for (std::int64_t i = 0; i < count; i += step, ++seen) squares += expected[i] * expected[i];
  const double rms = std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(seen, 1)));
  const double tolerance = expected.dtype == DType::bf16 ? 1e-2 : 1e-5;
  for (std::int64_t i = 0; i < count; i += step) {
    ASSERT_LE(std::abs(found[i] - expected[i]), tolerance * (rms + std::abs(expected[i])) + std::numeric_limits<float>::min())
        << what << "[" << i << "] is " << found[i] << ", but " << expected[i] << " where tensors are dense";
  }
}

/// run_kernel_at() with dense tensors that are updated in place. Again with strided views of wider tensors where the op takes or
/// makes them, and with outputs apart from what they update where they may be, which must give the same.
inline HostTensors run_kernel(Device& device, const std::string& op_name, const HostTensors& inputs, const Attributes& attributes,
                              Repeated repeated = Repeated::same_bits, const LocalParts& parts = {}) {
  HostTensors dense = run_kernel_at({}, device, op_name, inputs, attributes, repeated, parts);
  const Op& op = registry().get(op_name);
  bool strided = false, apart = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) strided = strided || op.takes_strided_view(static_cast<int>(i));
  for (std::size_t i = 0; i < dense.size(); ++i) {
    strided = strided || op.makes_strided_view(static_cast<int>(i));
    apart = apart || op.updates_apart(static_cast<int>(i));
  }
  std::vector<Places> others;
  if (strided) others.push_back({.strided = true});
  if (apart) others.push_back({.apart = true});
  for (const Places& places : others) {
    const HostTensors again = run_kernel_at(places, device, op_name, inputs, attributes, repeated, parts);
    for (std::size_t i = 0; i < dense.size() && i < again.size(); ++i) {
      if (dense[i])
        expect_alike(*again[i], *dense[i], op_name + ", output " + std::to_string(i) + (places.apart ? ", apart" : ", strided"));
    }
  }
  return dense;
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
/// Sets the attributes of attention for scores other than the default.
inline void set_scores(Attributes& attributes, const AttentionScores& scores) {
  if (scores.scale != 0) attributes.set("scale", scores.scale);
  if (scores.cap != 0) attributes.set("cap", scores.cap);
}

inline constexpr bool kWithAndWithout[] = {false, true};

}  // namespace consist::test
