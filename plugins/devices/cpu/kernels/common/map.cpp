// map, reduce, total and margins: the steps of an expression, each a loop over a block of elements that stays in the first cache.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "consist/expression.h"
#include "plugins/devices/common/flat_slice.h"
#include "plugins/devices/common/map_update.h"
#include "plugins/devices/common/reduction.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

constexpr int block_elements = 256;
using Block = std::array<float, block_elements>;

template <typename F>
void each(int count, float* to, F f) {
#pragma omp simd
  for (int i = 0; i < count; ++i) to[i] = f(i);
}

void compute(Function function, int count, float* to, const float* x, const float* y, const float* z) {
  switch (function) {
    case Function::add:
      return each(count, to, [=](int i) { return x[i] + y[i]; });
    case Function::subtract:
      return each(count, to, [=](int i) { return x[i] - y[i]; });
    case Function::multiply:
      return each(count, to, [=](int i) { return x[i] * y[i]; });
    case Function::divide:
      return each(count, to, [=](int i) { return x[i] / y[i]; });
    case Function::negate:
      return each(count, to, [=](int i) { return -x[i]; });
    case Function::exp:
      return each(count, to, [=](int i) { return exp_fast(x[i]); });
    case Function::sqrt:
      return each(count, to, [=](int i) { return std::sqrt(x[i]); });
    case Function::rsqrt:
      return each(count, to, [=](int i) { return 1.0F / std::sqrt(x[i]); });
    case Function::tanh:
      return each(count, to, [=](int i) { return tanh_fast(x[i]); });
    case Function::sigmoid:
      return each(count, to, [=](int i) { return sigmoid(x[i]); });
    case Function::abs:
      return each(count, to, [=](int i) { return std::abs(x[i]); });
    case Function::max:
      return each(count, to, [=](int i) { return x[i] > y[i] ? x[i] : y[i]; });
    case Function::min:
      return each(count, to, [=](int i) { return x[i] < y[i] ? x[i] : y[i]; });
    case Function::greater:
      return each(count, to, [=](int i) { return x[i] > y[i] ? 1.0F : 0.0F; });
    case Function::select:
      return each(count, to, [=](int i) { return x[i] > 0.0F ? y[i] : z[i]; });
    default:  // log, erf and sign are the library's, one by one
      for (int i = 0; i < count; ++i) to[i] = evaluate<float>(function, x[i], 0.0F, 0.0F);
  }
}

/// An operand, or a result: its element (row, column) lies at row * row_stride + column * column_stride + offset.
struct Elements {
  void* data;
  DType dtype;
  std::int64_t row_stride, column_stride, offset = 0;

  void load(std::int64_t row, std::int64_t column, int count, float* to) const {
    const std::int64_t first = row * row_stride + column * column_stride + offset;
    if (dtype == DType::i32)
      load_from(static_cast<const std::int32_t*>(data) + first, count, to);
    else
      as_floats([=, this](const auto* from) { load_from(from + first, count, to); });
  }
  /// One element, `count` times.
  void fill(int element, int count, float* to) const {
    const Elements one{data, dtype, 1, 0};
    one.load(element, 0, count, to);
  }
  void store(std::int64_t row, std::int64_t column, int count, const float* from) const {
    const std::int64_t first = row * row_stride + column + offset;
    as_floats([=](auto* to) {
      for (int i = 0; i < count; ++i) cpu::store(to[first + i], from[i]);
    });
  }

 private:
  /// f(data, as what it is).
  template <typename F>
  void as_floats(const F& f) const {
    if (dtype == DType::bf16) return f(static_cast<bf16*>(data));
    if (dtype == DType::e4m3) return f(static_cast<e4m3*>(data));
    if (dtype == DType::e5m2) return f(static_cast<e5m2*>(data));
    f(static_cast<float*>(data));
  }
  static float number(std::int32_t x) { return static_cast<float>(x); }
  template <typename T>
  static float number(T x) {
    return cpu::load(x);
  }
  template <typename T>
  void load_from(const T* from, int count, float* to) const {
    if (column_stride == 0)
      std::fill_n(to, count, number(*from));
    else
      for (int i = 0; i < count; ++i) to[i] = number(from[i]);
  }
};

using kernels::FlatSlice;
using Operands = std::array<Elements, Expressions::max_inputs>;
using Slots = std::array<Block, Expressions::max_steps>;

Elements elements_of(const Buffer& buffer, Reads reads, const FlatSlice& slice = {}) {
  Elements made{buffer.data, buffer.dtype, buffer.leading_dimension(), 1};
  if (slice && reads == Reads::same) {
    made.row_stride = slice.width;
    made.offset = -slice.first;
  }
  if (reads == Reads::channel) made.row_stride = 0;
  if (reads == Reads::row) {
    made.column_stride = 0;
    if (buffer.row_stride == 0) made.row_stride = 1;  // also where the rows are without a dimension of channels
  }
  if (reads == Reads::element) made.row_stride = made.column_stride = 0;
  return made;
}

/// Elements of a matrix that are walked through row by row: all, or those of a flat slice.
struct Walk {
  std::int64_t columns, begin, end;  ///< elements [begin, end)

  Walk(const Shape& whole, const FlatSlice& slice)
      : columns(slice ? slice.width : whole.last()), begin(slice.first), end(begin + whole.elements()) {}
  std::int64_t first_row() const { return columns == 0 ? 0 : begin / columns; }
  std::int64_t rows() const { return begin == end ? 0 : (end - 1) / columns - first_row() + 1; }
  std::int64_t blocks() const { return (columns + block_elements - 1) / block_elements; }

  /// body(row, first, count) for the part of a block of columns that is there.
  template <typename Body>
  void visit(std::int64_t row, std::int64_t block, const Body& body) const {
    const std::int64_t first = std::max(block * block_elements, begin - row * columns),
                       last = std::min({(block + 1) * block_elements, columns, end - row * columns});
    if (first < last) body(row, first, static_cast<int>(last - first));
  }
};

/// Leaves the results of `count` elements from (row, first) on in the slots of the plan; it touches plan.slots of them.
void compute_block(const ExpressionSteps& plan, const Operands& from, std::int64_t row, std::int64_t first, int count,
                   Slots& slots) {
  for (const ExpressionStep& step : plan.steps) {
    float* made = slots[static_cast<std::size_t>(step.to)].data();
    const auto slot = [&](int k) {
      return slots[static_cast<std::size_t>(std::max(0, step.node.arguments[static_cast<std::size_t>(k)]))].data();
    };
    if (step.node.function == Function::constant) {
      std::fill_n(made, count, static_cast<float>(step.node.value));
    } else if (step.node.function == Function::channel) {
      for (int i = 0; i < count; ++i) made[i] = static_cast<float>(first + i);
    } else if (step.node.function == Function::input) {
      const Elements& input = from[static_cast<std::size_t>(step.node.input)];
      if (step.node.reads == Reads::element)
        input.fill(step.node.element, count, made);
      else
        input.load(row, first, count, made);
    } else {
      compute(step.node.function, count, made, slot(0), slot(1), slot(2));
    }
  }
}

class Map final : public Kernel {
 public:
  explicit Map(const Expressions& f, const FlatSlice& slice = {})
      : plan_(f.steps()), reads_(kernels::reads_of_inputs(f)), numbers_channels_(f.reads_channel()), slice_(slice) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    Walk walk(out[0].shape, slice_);
    Operands from{}, to{};
    bool dense = !numbers_channels_;
    for (std::size_t k = 0; k < in.size(); ++k) {
      from[k] = elements_of(in[k], reads_[k], slice_);
      dense =
          dense && reads_[k] != Reads::channel && reads_[k] != Reads::row && (reads_[k] != Reads::same || in[k].row_stride == 0);
    }
    for (std::size_t k = 0; k < out.size(); ++k) {
      to[k] = elements_of(out[k], Reads::same, slice_);
      dense = dense && out[k].row_stride == 0;
    }
    if (dense) walk.columns = walk.end;
    const std::int64_t blocks = walk.blocks(), first_row = walk.first_row();
    const ExpressionSteps* plan = &plan_;
    const std::size_t results = out.size();
    parallel_for(walk.rows() * blocks, [=](std::int64_t n) {
      walk.visit(first_row + n / blocks, n % blocks, [&](std::int64_t row, std::int64_t first, int count) {
        run_block(*plan, from, to, results, row, first, count);
      });
    });
  }

 private:
  static void run_block(const ExpressionSteps& plan, const Operands& from, const Operands& to, std::size_t results,
                        std::int64_t row, std::int64_t first, int count) {
    Slots slots;
    compute_block(plan, from, row, first, count, slots);
    for (std::size_t k = 0; k < results; ++k)
      to[k].store(row, first, count, slots[static_cast<std::size_t>(plan.results[k])].data());
  }

  ExpressionSteps plan_;
  std::vector<Reads> reads_;
  bool numbers_channels_;
  FlatSlice slice_;
};

/// A reduction over the elements so far. Sums are fp64, in the order of channels.
struct Reduced {
  double sum = 0;  ///< of exponentials behind the largest, if it is their logarithm that is wanted
  float largest = -std::numeric_limits<float>::infinity();

  void add(const float* made, int count, kernels::ReduceBy by) {
    const float before = largest;
    if (by == kernels::ReduceBy::sum) {
      for (int i = 0; i < count; ++i) sum += static_cast<double>(made[i]);
      return;
    }
    for (int i = 0; i < count; ++i) largest = largest > made[i] ? largest : made[i];
    if (by != kernels::ReduceBy::logsumexp) return;
    if (largest > before) sum *= std::exp(static_cast<double>(before) - static_cast<double>(largest));
    for (int i = 0; i < count; ++i) sum += static_cast<double>(exp_fast(made[i] - largest));
  }
  float result(kernels::ReduceBy by) const {
    if (by == kernels::ReduceBy::sum) return static_cast<float>(sum);
    if (by == kernels::ReduceBy::largest) return largest;
    return static_cast<float>(static_cast<double>(largest) + std::log(sum));
  }
};

class Reduce final : public Kernel {
 public:
  explicit Reduce(const KernelRequest& r)
      : reduction_(r), plan_(reduction_.f.steps()), reads_(kernels::reads_of_inputs(reduction_.f)) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    Operands from{};
    for (std::size_t k = 0; k < in.size(); ++k) from[k] = elements_of(in[k], reads_[k]);
    const Elements to = elements_of(out[0], Reads::row);
    const std::int64_t columns = reduction_.columns;
    const kernels::ReduceBy by = reduction_.by;
    const ExpressionSteps* plan = &plan_;
    parallel_for(out[0].shape.elements(), [=](std::int64_t row) {
      const float result = reduced(*plan, from, row, columns, by);
      to.store(row, 0, 1, &result);
    });
  }

 private:
  static float reduced(const ExpressionSteps& plan, const Operands& from, std::int64_t row, std::int64_t columns,
                       kernels::ReduceBy by) {
    Slots slots;
    Reduced so_far;
    for (std::int64_t first = 0; first < columns; first += block_elements) {
      const int count = static_cast<int>(std::min<std::int64_t>(block_elements, columns - first));
      compute_block(plan, from, row, first, count, slots);
      so_far.add(slots[static_cast<std::size_t>(plan.results[0])].data(), count, by);
    }
    return so_far.result(by);
  }

  kernels::Reduction reduction_;
  ExpressionSteps plan_;
  std::vector<Reads> reads_;
};

/// Rows are cut into chunks, whose sums over rows are added up afterwards: in an order that no number of threads changes.
class Margins final : public Kernel {
 public:
  explicit Margins(const KernelRequest& r)
      : f_(Expressions::parse(r.attributes.string("f"))),
        plan_(f_.steps()),
        reads_(kernels::reads_of_inputs(f_)),
        slice_(FlatSlice::of_width(r.outputs[1].shape.elements(), f_, r)),
        walk_(r.inputs[static_cast<std::size_t>(f_.first_read(Reads::same))].shape, slice_),
        chunk_rows_(std::max<std::int64_t>(16, (walk_.rows() + 63) / 64)),
        chunks_((walk_.rows() + chunk_rows_ - 1) / chunk_rows_) {}
  std::int64_t workspace_bytes() const override { return chunks_ * walk_.columns * static_cast<std::int64_t>(sizeof(double)); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    Operands from{};
    for (std::size_t k = 0; k < in.size(); ++k) from[k] = elements_of(in[k], reads_[k], slice_);
    float* const rows = out[0].absent() ? nullptr : out[0].as<float>();
    if (rows != nullptr) std::fill_n(rows, out[0].shape.elements(), 0.0F);
    auto* const sums = static_cast<double*>(workspace);
    const Margins* self = this;
    parallel_for(chunks_, [=](std::int64_t chunk) { self->sum_chunk(from, chunk, rows, sums + chunk * self->walk_.columns); });
    auto* const columns = out[1].as<float>();
    const std::int64_t width = out[1].shape.elements(), chunks = chunks_;
    parallel_for(walk_.blocks(), [=](std::int64_t block) {
      for (std::int64_t column = block * block_elements; column < std::min(width, (block + 1) * block_elements); ++column) {
        double sum = 0;
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += sums[chunk * width + column];
        columns[column] = static_cast<float>(sum);
      }
    });
  }

 private:
  void sum_chunk(const Operands& from, std::int64_t chunk, float* rows, double* columns) const {
    Slots slots;
    std::fill_n(columns, walk_.columns, 0.0);
    const std::int64_t first = walk_.first_row() + chunk * chunk_rows_,
                       last = std::min(first + chunk_rows_, walk_.first_row() + walk_.rows());
    for (std::int64_t row = first; row < last; ++row) {
      double sum = 0;
      for (std::int64_t block = 0; block < walk_.blocks(); ++block) {
        walk_.visit(row, block, [&](std::int64_t at, std::int64_t column, int count) {
          compute_block(plan_, from, at, column, count, slots);
          const float* const made = slots[static_cast<std::size_t>(plan_.results[0])].data();
          for (int i = 0; i < count; ++i) columns[column + i] += static_cast<double>(made[i]);
          if (rows == nullptr) return;
#pragma omp simd reduction(+ : sum)
          for (int i = 0; i < count; ++i) sum += static_cast<double>(made[i]);
        });
      }
      if (rows != nullptr) rows[row] = static_cast<float>(sum);
    }
  }

  Expressions f_;
  ExpressionSteps plan_;
  std::vector<Reads> reads_;
  FlatSlice slice_;
  Walk walk_;
  std::int64_t chunk_rows_, chunks_;
};

Made make_margins(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<Margins>(r);
}

Made make_reduce(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<Reduce>(r);
}

Made make_map(const KernelRequest& r, const KernelSettings&) {
  const Expressions f = Expressions::parse(r.attributes.string("f"));
  return std::make_unique<Map>(f, FlatSlice::of(f, r));
}

Made make_map_update(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<kernels::MapUpdate>(
      r, [](const Expressions& f, const KernelRequest&) { return std::make_unique<Map>(f); },
      [](const KernelRequest& reduction) { return std::make_unique<Reduce>(reduction); });
}

}  // namespace

CONSIST_KERNEL(map, make_map);
CONSIST_KERNEL(map_in_place, make_map);
CONSIST_KERNEL(margins, make_margins);
CONSIST_KERNEL(reduce, make_reduce);
CONSIST_KERNEL(total, make_reduce);
CONSIST_MAP_UPDATE_KERNELS(make_map_update);

}  // namespace consist::cpu
