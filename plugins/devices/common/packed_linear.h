// Kernels of the ops "packed_<op>" (core/ops/packed_linear.cpp) from those of linear and its gradients: what lies side by side is
// one tensor to them.
#pragma once

#include <array>
#include <utility>

#include "plugins/devices/common/makers.h"

namespace consist::kernels {

/// Every second buffer from `first` on, joined along dimension `dim`; absent if they are.
inline Buffer joined(std::span<const Buffer> buffers, std::size_t first, std::size_t step, int dim) {
  Buffer whole = buffers[first];
  if (whole.absent()) return whole;
  for (std::size_t i = first + step; i < buffers.size(); i += step) whole.shape[dim] += buffers[i].shape[dim];
  if (whole.row_stride == whole.shape.last()) whole.row_stride = 0;
  return whole;
}

inline constexpr int rows = 0;     // of weights and biases
inline constexpr int columns = 2;  // of activations
inline constexpr std::string_view packed = "packed_";

/// Each makes the inputs and the output of the one linear from those of the packed op.
struct PackedForward {
  static std::array<Buffer, 3> inputs(std::span<const Buffer> in) {
    return {in[0], joined(in, 1, 2, rows), joined(in, 2, 2, rows)};
  }
  static Buffer output(std::span<const Buffer> out) { return joined(out, 0, 1, columns); }
};
struct PackedInputGrad {
  static std::array<Buffer, 3> inputs(std::span<const Buffer> in) {
    return {joined(in, 1, 2, columns), joined(in, 2, 2, rows), in[0]};
  }
  static Buffer output(std::span<const Buffer> out) { return out[0]; }
};
struct PackedWeightGrad {
  static std::array<Buffer, 3> inputs(std::span<const Buffer> in) {
    return {in[0], joined(in, 1, 2, columns), joined(in, 2, 2, rows)};
  }
  static Buffer output(std::span<const Buffer> out) { return joined(out, 0, 1, rows); }
};

template <typename Which>
class PackedLinear final : public Kernel {
 public:
  explicit PackedLinear(Made one) : one_(std::move(one)) {}
  std::int64_t workspace_bytes() const override { return one_->workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const std::array<Buffer, 3> inputs = Which::inputs(in);
    const Buffer output = Which::output(out);
    one_->launch(inputs, {&output, 1}, workspace, queue);
  }
  void check() override { one_->check(); }

 private:
  Made one_;
};

/// Null where the device makes no kernel for the op without "packed_".
template <typename Which, typename Settings>
Made make_packed(const KernelRequest& r, const Settings& s) {
  const std::array<Buffer, 3> inputs = Which::inputs(r.inputs);
  const Buffer output = Which::output(r.outputs);
  Made one = Registered<Settings>::make({r.op.substr(packed.size()), inputs, {&output, 1}, r.attributes}, s);
  return one ? std::make_unique<PackedLinear<Which>>(std::move(one)) : nullptr;
}

}  // namespace consist::kernels
