// Measures kernels of a device: each as part of a step that the device prepared, many launches in a row, over several sets of
// tensors where one would fit into a cache.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/bfloat16.h"
#include "consist/device.h"
#include "consist/float8.h"
#include "consist/op.h"

namespace consist::bench {

inline std::int64_t bytes_of(const TensorType& type) {
  return type.shape.elements() * static_cast<std::int64_t>(size_of(type.dtype));
}

/// A measurement: an op on tensors of these types, and the figures that its time is compared with.
struct Case {
  std::string label;
  std::string op;
  Types inputs;
  Attributes attributes;
  double flops = 0;                                             ///< 0: bound by memory
  std::int64_t bytes = 0;                                       ///< 0: all of all tensors
  std::int64_t vocabulary = 0;                                  ///< of ids and targets
  bool apart = false;                                           ///< outputs that may lie apart from what they update do
  std::map<std::size_t, std::vector<std::int32_t>> given = {};  ///< contents of inputs, by index
  std::string dense = {};  ///< label of a case before this one that does as many operations, for comparison
  std::vector<TensorType> outputs = {};  ///< of a rank that has a part of the tensors; empty: what the op infers
  std::vector<Origin> origins = {};      ///< of the inputs' parts in the whole tensors
  double predicted = 0;                  ///< seconds, by a machine file; 0: none
};

/// THREADS: one.
class Bench {
 public:
  explicit Bench(Device& device) : device_(device) {
    std::uint32_t state = 12345;
    for (std::int64_t i = 0; i < kPattern; ++i) {
      float sum = -2;  // of four uniform numbers, times sqrt(3): nearly normal
      for (int k = 0; k < 4; ++k) {
        state = state * 1664525 + 1013904223;
        sum += static_cast<float>(state >> 8) * 0x1p-24F;
      }
      for (std::size_t part = 0; part < 2; ++part) {
        wide_[part].push_back(part == 0 ? sum * 1.7320508F : std::abs(sum));
        narrow_[part].push_back(to_bfloat16(wide_[part].back()));
      }
      constexpr float of_amax = 100;  // so that codes have the spread of a quantized tensor's
      codes_[0].push_back(to_float8<e4m3_format>(wide_[0].back() * of_amax));
      codes_[1].push_back(to_float8<e5m2_format>(wide_[0].back() * of_amax));
      state = state * 1664525 + 1013904223;
      ids_.push_back(static_cast<std::int32_t>(state >> 1));
    }
  }

  /// Bytes per second, read and written, of the simplest kernel: 1 GiB of f32, cast to what it is.
  double copy_rate() {
    constexpr std::int64_t bytes = std::int64_t{1} << 30;
    Memory from(device_, bytes), to(device_, bytes);
    const TensorType type{DType::f32, {bytes / 4}};
    fill(from.at, type, {}, 0);
    const Attributes attributes{{"dtype", std::string("f32")}};
    Launch launch;
    launch.inputs = {{from.at, type.dtype, type.shape}};
    launch.outputs = {{to.at, type.dtype, type.shape}};
    const std::unique_ptr<Kernel> kernel = device_.make_kernel({"cast", launch.inputs, launch.outputs, attributes});
    launch.kernel = kernel.get();
    return 2 * static_cast<double>(bytes) / seconds({launch});
  }

  /// Seconds of a case that has run; 0: it has not.
  double time_of(const std::string& label) const {
    const auto found = times_.find(label);
    return found == times_.end() ? 0 : found->second;
  }

  void run(const Case& c, double copy_rate) {
    const Op& op = registry().get(c.op);
    Types outputs(c.outputs.begin(), c.outputs.end());
    if (outputs.empty()) outputs = op.infer(c.inputs, c.attributes);
    std::int64_t all = 0;
    for (const auto& type : c.inputs) all += type ? bytes_of(*type) : 0;
    for (const auto& type : outputs) all += type ? bytes_of(*type) : 0;
    const std::int64_t sets = std::clamp<std::int64_t>(divided_up(std::int64_t{600} << 20, std::max<std::int64_t>(all, 1)), 1, 8);
    std::vector<std::unique_ptr<Memory>> memories;
    std::vector<Launch> launches;
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::int64_t set = 0; set < sets; ++set) {
      Launch launch;
      const auto buffer_for = [&](const std::optional<TensorType>& type, bool filled) {
        if (!type) return Buffer{nullptr, DType::u8, Shape{0}};
        memories.push_back(std::make_unique<Memory>(device_, bytes_of(*type)));
        if (filled) fill(memories.back()->at, *type, c, launch.inputs.size());
        return Buffer{memories.back()->at, type->dtype, type->shape};
      };
      for (const auto& type : c.inputs) launch.inputs.push_back(buffer_for(type, true));
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const int place = op.updates_in_place(static_cast<int>(i));
        const bool in_place = place >= 0 && !(c.apart && op.updates_apart(static_cast<int>(i))) &&
                              static_cast<std::size_t>(place) < launch.inputs.size() &&
                              !launch.inputs[static_cast<std::size_t>(place)].absent();
        launch.outputs.push_back(in_place ? launch.inputs[static_cast<std::size_t>(place)] : buffer_for(outputs[i], false));
      }
      kernels.push_back(device_.make_kernel({c.op, launch.inputs, launch.outputs, c.attributes, c.origins}));
      if (!kernels.back()) {
        std::printf("%-34s no kernel\n", c.label.c_str());
        return;
      }
      launch.kernel = kernels.back().get();
      memories.push_back(std::make_unique<Memory>(device_, std::max<std::int64_t>(launch.kernel->workspace_bytes(), 256)));
      launch.workspace = memories.back()->at;
      launch.label = c.label;
      launches.push_back(launch);
    }
    const double time = seconds(launches);
    times_[c.label] = time;
    const double bytes = static_cast<double>(c.bytes != 0 ? c.bytes : all),
                 workspace = static_cast<double>(kernels[0]->workspace_bytes()) / (1 << 20);
    if (c.flops > 0) {
      const auto dense = times_.find(c.dense);
      const std::string compared = c.predicted > 0         ? predicted(c.predicted, time)
                                   : dense == times_.end() ? std::string(22, ' ')
                                                           : percent(100 * dense->second / time);
      std::printf("%-34s %10.1f us %9.1f TFLOP/s %s workspace %8.1f MiB\n", c.label.c_str(), time * 1e6, c.flops / time * 1e-12,
                  compared.c_str(), workspace);
    } else {
      std::printf("%-34s %10.1f us %9.0f GB/s %6.1f%% of copy %8.1f MB workspace %8.1f MiB\n", c.label.c_str(), time * 1e6,
                  bytes / time * 1e-9, 100 * bytes / time / copy_rate, bytes * 1e-6, workspace);
    }
    std::fflush(stdout);
  }

 private:
  static std::string predicted(double predicted, double measured) {
    char text[64];
    std::snprintf(text, sizeof text, "predicted %10.1f us, %+5.1f%%", predicted * 1e6, 100 * (predicted / measured - 1));
    return text;
  }
  static std::string percent(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%6.1f%% of dense       ", value);
    return text;
  }
  struct Memory {
    Memory(Device& d, std::int64_t bytes) : device(d), at(d.allocate(MemorySpace::device, bytes)) {}
    ~Memory() { device.release(MemorySpace::device, at); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Device& device;
    void* at;
  };

  static std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

  void fill(void* memory, const TensorType& type, const Case& c, std::size_t input) {
    if (const auto values = c.given.find(input); values != c.given.end()) {
      device_.upload(memory, values->second.data(), static_cast<std::int64_t>(values->second.size() * sizeof(std::int32_t)));
      return;
    }
    const std::int64_t count = type.shape.elements(), size = static_cast<std::int64_t>(size_of(type.dtype));
    std::vector<std::int32_t> ids;
    if (type.dtype == DType::i32) {
      for (std::int64_t i = 0; i < count; ++i)
        ids.push_back(static_cast<std::int32_t>(ids_[static_cast<std::size_t>(i % kPattern)] % c.vocabulary));
      device_.upload(memory, ids.data(), count * size);
      return;
    }
    if (c.op == "adamw" && type.shape == Shape{4}) {
      const float scalars[4] = {1e-3F, 0.1F, 0.05F, 3};
      device_.upload(memory, scalars, sizeof scalars);
      return;
    }
    const std::size_t part = c.op == "adamw" ? 1 : 0;  // second moments are not negative
    const void* pattern = type.dtype == DType::f32    ? static_cast<const void*>(wide_[part].data())
                          : type.dtype == DType::e4m3 ? codes_[0].data()
                          : type.dtype == DType::e5m2 ? static_cast<const void*>(codes_[1].data())
                                                      : narrow_[part].data();
    for (std::int64_t first = 0; first < count; first += kPattern) {
      device_.upload(static_cast<char*>(memory) + first * size, pattern, std::min(kPattern, count - first) * size);
    }
  }

  /// Seconds of one launch: the median of five steps, each of which takes some 20 ms.
  double seconds(const std::vector<Launch>& launches) {
    const auto timed = [](Executable& step) {
      const auto begin = std::chrono::steady_clock::now();
      step.run();
      step.wait();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const auto repeated = [&](std::int64_t times) {
      std::vector<Launch> all;
      for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), launches.begin(), launches.end());
      std::unique_ptr<Executable> step = device_.prepare(all, false);
      timed(*step);  // loads code
      timed(*step);  // records the step where the device does
      return step;
    };
    const double once = timed(*repeated(1)) / static_cast<double>(launches.size());
    const std::int64_t times =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(0.02 / once / static_cast<double>(launches.size())), 1, 200);
    const std::unique_ptr<Executable> step = repeated(times);
    std::vector<double> measured;
    for (int i = 0; i < 5; ++i) measured.push_back(timed(*step));
    std::sort(measured.begin(), measured.end());
    return measured[2] / static_cast<double>(times * static_cast<std::int64_t>(launches.size()));
  }

  static constexpr std::int64_t kPattern = (std::int64_t{1} << 22) + 17;  // so that rows differ
  Device& device_;
  std::array<std::vector<float>, 2> wide_;  ///< nearly normal numbers, and positive ones
  std::array<std::vector<std::uint16_t>, 2> narrow_;
  std::array<std::vector<std::uint8_t>, 2> codes_;  ///< e4m3, e5m2
  std::vector<std::int32_t> ids_;
  std::map<std::string, double> times_;  ///< seconds, by label
};

}  // namespace consist::bench
