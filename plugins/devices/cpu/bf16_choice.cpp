#include "plugins/devices/cpu/bf16_choice.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "consist/error.h"
#include "consist/text.h"

namespace consist::cpu {
namespace {

/// Sizes at which a product takes a few milliseconds and caches hold as much of it as they do in training.
constexpr std::int64_t most_rows = 512, most_columns = 1024;
constexpr int rounds = 4;  // the first meets cold caches

/// Memory of its own, aligned as devices' memory is.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes) + alignment, 0x3c) {}
  void* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return reinterpret_cast<void*>((at + alignment - 1) / alignment * alignment);
  }

 private:
  static constexpr std::size_t alignment = 256;
  std::vector<char> bytes_;  // 0x3c3c is a small normal number in f32 and bf16: zeros could run faster than real data
};

/// The kernels of one way, on operands that both ways share.
class LinearKernels {
 public:
  LinearKernels(const KernelLibrary& library, const KernelSettings& settings, const Buffer& x, const Buffer& w, const Buffer& y,
                const Buffer& dx, const Buffer& dw) {
    const Buffer absent{nullptr, DType::u8, Shape{0}};
    add(library, settings, "linear", {x, w}, {y});
    add(library, settings, "linear_input_grad", {y, w, absent}, {dx});
    add(library, settings, "linear_weight_grad", {x, y, absent}, {dw});
    std::int64_t bytes = 0;
    for (const auto& launch : launches_) bytes = std::max(bytes, launch.kernel->workspace_bytes());
    workspace_ = std::make_unique<AlignedMemory>(bytes);
  }

  double seconds() {
    const auto start = std::chrono::steady_clock::now();
    for (const auto& launch : launches_) launch.kernel->launch(launch.inputs, launch.outputs, workspace_->data(), nullptr);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  struct OwnLaunch {
    std::unique_ptr<Kernel> kernel;
    std::vector<Buffer> inputs, outputs;
  };
  void add(const KernelLibrary& library, const KernelSettings& settings, std::string_view op, std::vector<Buffer> in,
           std::vector<Buffer> out) {
    const Attributes none;
    std::unique_ptr<Kernel> kernel(library.make({op, in, out, none}, settings));
    if (!kernel) throw UnavailableError("the cpu device has no kernel for " + std::string(op) + " of bf16");
    launches_.push_back({std::move(kernel), std::move(in), std::move(out)});
  }

  std::vector<OwnLaunch> launches_;
  std::unique_ptr<AlignedMemory> workspace_;
};

}  // namespace

std::string Bf16Rates::text() const {
  const std::string by_instructions = si_text(native) + "FLOP/s by the processor's bf16 instructions";
  const std::string by_widening = si_text(emulated) + "FLOP/s widened to fp32";
  return native_is_chosen() ? "bf16 products native: " + by_instructions + ", " + by_widening
                            : "bf16 products emulated: " + by_widening + ", " + by_instructions;
}

Bf16Rates measure_bf16(const KernelLibrary& library, KernelSettings settings, std::int64_t m, std::int64_t n, std::int64_t k) {
  m = std::min(m, most_rows);
  n = std::min(n, most_columns);
  k = std::min(k, most_columns);
  AlignedMemory x(m * k * 2), w(n * k * 2), y(m * n * 2), dx(m * k * 2), dw(n * k * 4);
  const Buffer x_buffer{x.data(), DType::bf16, Shape{1, m, k}}, w_buffer{w.data(), DType::bf16, Shape{n, k}},
      y_buffer{y.data(), DType::bf16, Shape{1, m, n}}, dx_buffer{dx.data(), DType::bf16, Shape{1, m, k}},
      dw_buffer{dw.data(), DType::f32, Shape{n, k}};
  settings.native_bf16 = true;
  LinearKernels native(library, settings, x_buffer, w_buffer, y_buffer, dx_buffer, dw_buffer);
  settings.native_bf16 = false;
  LinearKernels emulated(library, settings, x_buffer, w_buffer, y_buffer, dx_buffer, dw_buffer);
  // In turns, and the best of each: what other processes do meets both.
  double best_native = std::numeric_limits<double>::max(), best_emulated = best_native;
  for (int round = 0; round < rounds; ++round) {
    const double native_seconds = native.seconds(), emulated_seconds = emulated.seconds();
    if (round == 0) continue;
    best_native = std::min(best_native, native_seconds);
    best_emulated = std::min(best_emulated, emulated_seconds);
  }
  const double flops = 6.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return {.native = flops / best_native, .emulated = flops / best_emulated};
}

}  // namespace consist::cpu
