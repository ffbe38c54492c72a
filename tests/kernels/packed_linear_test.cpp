// Packed linears beside the linears that they are made of, and rotations in place, on every device.
#include <gmock/gmock.h>

#include <array>
#include <numeric>

#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using test::DeviceKernel;
using test::expect_close;
using test::HostTensor;
using test::kWithAndWithout;
using test::Value;
using test::Values;

/// Rows or columns of several values as one.
Value joined(const std::vector<Value>& parts, int dim) {
  Value whole = parts[0];
  for (std::size_t k = 1; k < parts.size(); ++k) whole.shape[dim] += parts[k].shape[dim];
  whole.data.clear();
  const std::int64_t rows = dim == 0 ? 1 : whole.shape.rows();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const Value& part : parts) {
      const auto own = static_cast<std::ptrdiff_t>(part.data.size()) / rows;
      whole.data.insert(whole.data.end(), part.data.begin() + row * own, part.data.begin() + (row + 1) * own);
    }
  }
  return whole;
}

/// Launches a packed op on tensors that lie side by side in one piece of memory each.
class PackedLaunch {
 public:
  PackedLaunch(Device& device, std::string op) : device_(device), op_(std::move(op)) {}

  /// Adds `parts` as inputs at `first`, first + 2, …; joined along `dim`.
  void input(std::size_t first, const std::vector<Value>& parts, int dim) {
    in_.resize(std::max(in_.size(), first + 2 * parts.size() - 1), absent);
    const Piece piece = place(joined(parts, dim));
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) in_[first + 2 * k] = view(piece, parts[k], dim, offset);
  }
  /// The same for an output; `sum`: in the place of the inputs from that index on.
  void output(const std::vector<Value>& like, int dim) {
    made_ = joined(like, dim);
    const Piece piece = place(made_);
    std::int64_t offset = 0;
    for (const Value& part : like) out_.push_back(view(piece, part, dim, offset));
  }
  void output_in_place(const std::vector<Value>& like, std::size_t first, int dim) {
    made_ = joined(like, dim);
    for (std::size_t k = 0; k < like.size(); ++k) out_.push_back(in_[first + 2 * k]);
  }

  Value run(std::size_t inputs, const Attributes& attributes) {
    in_.resize(inputs, absent);
    std::vector<Buffer> in = in_, out = out_;
    for (auto* buffers : {&in, &out}) {
      for (Buffer& buffer : *buffers) buffer.data = nullptr;
    }
    const std::unique_ptr<Kernel> kernel = device_.make_kernel({op_, in, out, attributes});
    if (!kernel) throw std::runtime_error("no kernel for " + op_);
    void* workspace = device_.allocate(MemorySpace::device, kernel->workspace_bytes() + 256);
    Launch launch;
    launch.kernel = kernel.get();
    launch.inputs = in_;
    launch.outputs = out_;
    launch.workspace = workspace;
    launch.label = op_;
    const std::unique_ptr<Executable> step = device_.prepare({launch}, false);
    step->run();
    step->wait();
    HostTensor result(made_.dtype, made_.shape);
    device_.download(result.bytes.data(), out_[0].data, static_cast<std::int64_t>(result.bytes.size()));
    device_.release(MemorySpace::device, workspace);
    return test::to_value(result);
  }
  ~PackedLaunch() {
    for (void* memory : pieces_) device_.release(MemorySpace::device, memory);
  }
  PackedLaunch(const PackedLaunch&) = delete;
  PackedLaunch& operator=(const PackedLaunch&) = delete;

 private:
  struct Piece {
    std::uint8_t* memory;
    std::int64_t row;
  };
  Piece place(const Value& whole) {
    const HostTensor host = test::to_host(whole);
    const auto bytes = static_cast<std::int64_t>(host.bytes.size());
    pieces_.push_back(device_.allocate(MemorySpace::device, bytes));
    device_.upload(pieces_.back(), host.bytes.data(), bytes);
    return {static_cast<std::uint8_t*>(pieces_.back()), whole.shape.last()};
  }
  static Buffer view(const Piece& piece, const Value& part, int dim, std::int64_t& offset) {
    const auto size = static_cast<std::int64_t>(size_of(part.dtype));
    const Buffer buffer{piece.memory + offset * size, part.dtype, part.shape, dim == 0 ? 0 : piece.row};
    offset += dim == 0 ? part.shape.elements() : part.shape.last();
    return buffer;
  }

  inline static const Buffer absent{nullptr, DType::u8, Shape{0}};
  Device& device_;
  std::string op_;
  std::vector<Buffer> in_, out_;
  std::vector<void*> pieces_;
  Value made_;
};

constexpr int rows = 0, columns = 2;

TEST_P(DeviceKernel, PackedLinears) {
  const std::int64_t k = 24;
  for (const auto& widths : {std::vector<std::int64_t>{48, 16, 16}, {32, 32}, {8, 64}}) {
    for (const std::int64_t tokens : {1, 17}) {
      const std::size_t n = widths.size();
      const Value x = random({2, tokens, k});
      std::vector<Value> w, bias, dy, y, y_biased, dw;
      for (const std::int64_t width : widths) {
        w.push_back(random({width, k}));
        bias.push_back(random({width}));
        dy.push_back(random({2, tokens, width}));
        y.push_back(*reference::linear({x, w.back()})[0]);
        y_biased.push_back(*reference::linear({x, w.back(), bias.back()})[0]);
      }
      for (const bool biased : kWithAndWithout) {
        PackedLaunch forward(*device_, "packed_linear");
        forward.input(0, {x}, rows);
        forward.input(1, w, rows);
        if (biased) forward.input(2, bias, rows);
        forward.output(biased ? y_biased : y, columns);
        expect_close(forward.run(1 + 2 * n, {}), joined(biased ? y_biased : y, columns), 2 * tolerance(), "y");
      }
      for (const bool add : kWithAndWithout) {
        Value dx = reference::gradient("linear", {x, w[0]}, {}, 0, dy[0]);
        for (std::size_t i = 1; i < n; ++i) {
          const Value more = reference::gradient("linear", {x, w[i]}, {}, 0, dy[i]);
          for (std::size_t e = 0; e < dx.data.size(); ++e) dx.data[e] += more.data[e];
        }
        dx.dtype = dtype();
        const auto acc = accumulator(add, dtype(), dx);
        PackedLaunch backward(*device_, "packed_linear_input_grad");
        if (acc) backward.input(0, {*acc}, rows);
        backward.input(1, dy, columns);
        backward.input(2, w, rows);
        if (acc)
          backward.output_in_place({dx}, 0, rows);
        else
          backward.output({dx}, rows);
        expect_close(backward.run(1 + 2 * n, {}), dx, tolerance(), "dx");

        std::vector<Value> expected, sums;
        for (std::size_t i = 0; i < n; ++i) {
          expected.push_back(reference::gradient("linear", {x, w[i]}, {}, 1, dy[i]));
          expected.back().dtype = gradient();
          if (const auto sum = accumulator(add, gradient(), expected.back())) sums.push_back(*sum);
        }
        PackedLaunch weights(*device_, "packed_linear_weight_grad");
        weights.input(0, {x}, rows);
        weights.input(1, dy, columns);
        if (add) weights.input(2, sums, rows);
        if (add)
          weights.output_in_place(expected, 2, rows);
        else
          weights.output(expected, rows);
        expect_close(weights.run(1 + 2 * n, with_gradient()), joined(expected, rows), tolerance(), "dw");
      }
    }
  }
}

TEST_P(DeviceKernel, RotatesInPlace) {
  for (const std::int64_t dim : {10, 32, 128}) {
    const Value x = random({2, 5, 3 * dim}), w = random({dim}, 0.3, 1);
    const Value table = reference::random_value(engine_, DType::f32, {5, dim});
    const Attributes attributes{{"head_dim", dim}, {"epsilon", 1e-5}};
    test::HostTensors in{test::to_host(x), test::to_host(table), std::nullopt};
    const auto same = [&](const std::string& op, const Attributes& with) {
      const auto apart = run_kernel_at({}, *device_, op, in, with, test::Repeated::same_bits, {});
      for (const bool strided : kWithAndWithout) {
        const auto in_place =
            run_kernel_at({.strided = strided, .in_place = true}, *device_, op, in, with, test::Repeated::same_bits, {});
        EXPECT_TRUE(in_place[0]->bytes == apart[0]->bytes) << op << " of heads of " << dim;
      }
    };
    same("rope", attributes);
    in.resize(2);
    same("rope_grad", Attributes{{"head_dim", dim}});
    Value rstd = *reference::forward("rope", {x, table, w}, attributes)[1];
    in.insert(in.end(), {test::to_host(random(x.shape)), test::to_host(rstd), test::to_host(w), std::nullopt});
    same("rope_grad", with_gradient({{"head_dim", dim}}));
  }
}

}  // namespace
}  // namespace consist
