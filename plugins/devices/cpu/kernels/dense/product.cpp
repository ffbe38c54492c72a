#include "plugins/devices/cpu/kernels/dense/product.h"

#include <algorithm>
#include <cstring>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

const dnnl::engine& engine() {
  static const dnnl::engine the_engine(dnnl::engine::kind::cpu, 0);
  return the_engine;
}

dnnl::memory::data_type dnnl_type(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// `row` elements lie between the starts of two rows as they are stored.
dnnl::memory::desc layout(std::int64_t rows, std::int64_t columns, DType type, bool transposed, std::int64_t row) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, row} : dnnl::memory::dims{row, 1};
  return {{rows, columns}, dnnl_type(type), strides};
}

template <typename From, typename To>
void convert_typed(const From* from, To* to, std::int64_t count) {
  parallel_for_simd(count, [=](std::int64_t i) { store(to[i], load(from[i])); });
}

/// Rows of A that are widened at a time. What they and their rows of C take in fp32 is to stay in the cores' caches, so that memory
/// sees operands and results in bf16 only. All blocks are equal: oneDNN's primitive has fixed sizes. Weight gradients, whose rows
/// are sums over tokens, are made at once: blocks of them were measured to be slower.
std::int64_t rows_of_block(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t enough = std::int64_t{16} << 20, cache_bytes = std::int64_t{4} << 20;
  constexpr std::int64_t fewest = 256;  // of fewer rows the product itself is slower
  if (4 * m * (n + k) < enough) return m;
  const std::int64_t most = std::max(cache_bytes / (4 * (n + k)), fewest);
  for (std::int64_t blocks = (m + most - 1) / most; blocks <= m / fewest; ++blocks) {
    if (m % blocks == 0) return m / blocks;
  }
  return m;
}

}  // namespace

void convert(const void* from, DType from_type, void* to, DType to_type, std::int64_t count) {
  const bool narrow_from = from_type == DType::bf16, narrow_to = to_type == DType::bf16;
  if (narrow_from && narrow_to) convert_typed(static_cast<const bf16*>(from), static_cast<bf16*>(to), count);
  if (narrow_from && !narrow_to) convert_typed(static_cast<const bf16*>(from), static_cast<float*>(to), count);
  if (!narrow_from && narrow_to) convert_typed(static_cast<const float*>(from), static_cast<bf16*>(to), count);
  if (!narrow_from && !narrow_to) convert_typed(static_cast<const float*>(from), static_cast<float*>(to), count);
}

Product::Product(std::int64_t m, std::int64_t n, std::int64_t k, Operand a, Operand b, DType c, bool accumulate,
                 const KernelSettings& settings, std::int64_t c_row_stride)
    : m_(m),
      n_(n),
      k_(k),
      a_{a},
      b_{b},
      c_(c),
      c_row_(c_row_stride != 0 ? c_row_stride : n),
      accumulate_(accumulate),
      widen_(!settings.native_bf16 && (a.dtype == DType::bf16 || b.dtype == DType::bf16 || c == DType::bf16)),
      block_(widen_ && !a.transposed ? rows_of_block(m, n, k) : m),
      stream_(engine()) {
  if (a_.row_stride == 0) a_.row_stride = a.transposed ? m : k;
  if (b_.row_stride == 0) b_.row_stride = b.transposed ? k : n;
  const auto operand = [&](std::int64_t rows, std::int64_t columns, Stored& o) {
    const std::int64_t dense = o.transposed ? rows : columns;
    // For a transposed operand with gaps oneDNN has no other implementation than one that allocates its own copy in every run.
    o.moved = (widen_ && o.dtype == DType::bf16) || (o.transposed && o.row_stride != dense);
    return layout(rows, columns, widen_ ? DType::f32 : o.dtype, o.transposed, o.moved ? dense : o.row_stride);
  };
  const DType out = widen_ ? DType::f32 : c;
  const auto source = operand(block_, k, a_), weights = operand(k, n, b_);
  const auto destination = layout(block_, n, out, false, out == c ? c_row_ : n);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate && out == c) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR < 3
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(source, weights, destination), attributes, engine());
#else
  const dnnl::matmul::primitive_desc description(engine(), source, weights, destination, attributes);
#endif
  matmul_ = dnnl::matmul(description);
  library_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
  source_ = dnnl::memory(source, engine(), nullptr);
  weights_ = dnnl::memory(weights, engine(), nullptr);
  destination_ = dnnl::memory(destination, engine(), nullptr);
  scratch_ = dnnl::memory(description.scratchpad_desc(), engine(), nullptr);
}

std::int64_t Product::moved_size(const Operand& o) const {
  return widen_ ? 4 : static_cast<std::int64_t>(size_of(o.dtype));
}

std::int64_t Product::workspace_bytes() const {
  std::int64_t bytes = padded(library_bytes_);
  if (a_.moved) bytes += padded(block_ * k_ * moved_size(a_));
  if (b_.moved) bytes += padded(k_ * n_ * moved_size(b_));
  if (widen_ && c_ == DType::bf16) bytes += padded(block_ * n_ * 4);
  return bytes;
}

void Product::run(const void* a, const void* b, void* c, void* workspace) {
  char* free = static_cast<char*>(workspace);
  auto take = [&](std::int64_t bytes) {
    char* taken = free;
    free += padded(bytes);
    return taken;
  };
  char* const library = take(library_bytes_);
  char* const moved_a = a_.moved ? take(block_ * k_ * moved_size(a_)) : nullptr;
  char* const moved_b = b_.moved ? take(k_ * n_ * moved_size(b_)) : nullptr;
  const bool narrow_result = widen_ && c_ == DType::bf16;
  float* const wide = narrow_result ? reinterpret_cast<float*>(take(block_ * n_ * 4)) : nullptr;

  if (b_.moved) move(b, b_, k_, n_, moved_b);
  weights_.set_data_handle(b_.moved ? moved_b : const_cast<void*>(b));
  scratch_.set_data_handle(library);
  const std::int64_t a_step = block_ * (a_.transposed ? 1 : a_.row_stride) * static_cast<std::int64_t>(size_of(a_.dtype)),
                     c_step = block_ * c_row_ * static_cast<std::int64_t>(size_of(c_));
  for (std::int64_t block = 0; block * block_ < m_; ++block) {
    const void* const block_of_a = static_cast<const char*>(a) + block * a_step;
    void* const block_of_c = static_cast<char*>(c) + block * c_step;
    if (a_.moved) move(block_of_a, a_, block_, k_, moved_a);
    source_.set_data_handle(a_.moved ? moved_a : const_cast<void*>(block_of_a));
    destination_.set_data_handle(narrow_result ? wide : block_of_c);
    multiply();
    if (narrow_result) store_narrow(wide, static_cast<bf16*>(block_of_c));
  }
}

void Product::move(const void* from, const Stored& o, std::int64_t rows, std::int64_t columns, void* to) const {
  if (o.transposed) std::swap(rows, columns);
  const std::int64_t row_stride = o.row_stride;
  if (widen_ && o.dtype == DType::bf16) {
    auto* wide = static_cast<float*>(to);
    const auto* narrow = static_cast<const bf16*>(from);
    parallel_for_elements(rows, columns, [=](std::int64_t row, std::int64_t column) {
      wide[row * columns + column] = load(narrow[row * row_stride + column]);
    });
    return;
  }
  const auto size = static_cast<std::int64_t>(size_of(o.dtype));
  const char* const bytes = static_cast<const char*>(from);
  char* const dense = static_cast<char*>(to);
  parallel_for(rows, [=](std::int64_t row) {
    std::memcpy(dense + row * columns * size, bytes + row * row_stride * size, static_cast<std::size_t>(columns * size));
  });
}

void Product::multiply() {
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, source_.get()},
                                       {DNNL_ARG_WEIGHTS, weights_.get()},
                                       {DNNL_ARG_DST, destination_.get()},
                                       {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
  const dnnl_status_t status = dnnl_primitive_execute(matmul_.get(), stream_.get(), 4, arguments);
  if (status != dnnl_success) throw SystemError("oneDNN could not multiply matrices (status " + std::to_string(status) + ")");
}

void Product::store_narrow(const float* wide, bf16* c) const {
  const std::int64_t columns = n_, row_stride = c_row_;
  if (accumulate_) {
    parallel_for_elements(block_, columns, [=](std::int64_t row, std::int64_t column) {
      bf16& to = c[row * row_stride + column];
      store(to, load(to) + wide[row * columns + column]);
    });
  } else {
    parallel_for_elements(block_, columns, [=](std::int64_t row, std::int64_t column) {
      store(c[row * row_stride + column], wide[row * columns + column]);
    });
  }
}

}  // namespace consist::cpu
