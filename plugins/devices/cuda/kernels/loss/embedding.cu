// embedding and embedding_grad. Where ranks hold parts of the table, ids of the others' rows count nothing.
//
// The gradient's sums have a fixed order and no atomics: token positions are sorted by id (stable, so that equal ids keep the
// order of tokens), then each block adds the rows of a stretch of the sorted list. Runs of equal ids that lie inside a stretch
// are written at once; the parts of those that cross its ends go to the workspace, from which a second launch adds them in order.
#include <cub/device/device_radix_sort.cuh>

#include "plugins/devices/cuda/kernels/loss/bad_ids.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int lookup_threads = 128;
constexpr int lookup_unroll = 4;

/// The rows of the table that this rank holds: `count` from `first` on, of `vocabulary` in all.
struct TableRows {
  std::int32_t first, count, vocabulary;
  __device__ bool holds(std::int32_t id) const { return id >= first && id < first + count; }
};

/// Ids of rows of other ranks read as 0, those outside of the vocabulary are reported and read as NaN.
template <typename T, int N>
__global__ void __launch_bounds__(lookup_threads)
    gather_rows(const std::int32_t* __restrict__ ids, const T* __restrict__ table, T* __restrict__ y, std::int64_t packs,
                unsigned packs_of_row, std::int64_t c, TableRows rows, BadIds::Report* report) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (lookup_threads * lookup_unroll) + threadIdx.x;
  Pack<T, N> values[lookup_unroll];
#pragma unroll
  for (int u = 0; u < lookup_unroll; ++u) {
    const std::int64_t pack = first + u * lookup_threads;
    if (pack >= packs) continue;
    const std::int64_t token = pack / packs_of_row;
    const std::int32_t id = ids[token];
    const bool legal = id >= 0 && id < rows.vocabulary;
    if (rows.holds(id)) {
      values[u] = load_pack<N>(table + (id - rows.first) * c + (pack - token * packs_of_row) * N);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) values[u].element[i] = rounded<T>(legal ? 0.0F : NAN);
    }
    if (!legal) {
      report->value = id;
      report->found = 1;
    }
  }
#pragma unroll
  for (int u = 0; u < lookup_unroll; ++u) {
    const std::int64_t pack = first + u * lookup_threads;
    if (pack < packs) store_pack<N>(y + pack * N, values[u]);
  }
}

template <typename T>
class Embedding final : public Kernel {
 public:
  explicit Embedding(const KernelRequest& r)
      : tokens_(r.inputs[0].shape.elements()),
        c_(r.inputs[1].shape[1]),
        rows_{static_cast<std::int32_t>(r.input_origins.empty() ? 0 : r.input_origins[1][0]),
              static_cast<std::int32_t>(r.inputs[1].shape[0]),
              static_cast<std::int32_t>(r.attributes.integer_or("vocabulary", r.inputs[1].shape[0]))} {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const auto* ids = in[0].as<std::int32_t>();  // [tokens]
    const T* table = in[1].as<T>();              // [vocabulary, c]
    T* y = out[0].as<T>();                       // [tokens, c]
    constexpr int N = per_access<T>;
    if (tokens_ * c_ == 0) return;
    if (in_packs(c_, N, {table, y}))
      gather<N>(ids, table, y, stream_of(queue));
    else
      gather<1>(ids, table, y, stream_of(queue));
  }
  void check() override { bad_ids_.check_reports("token id", rows_.vocabulary); }

 private:
  template <int N>
  void gather(const std::int32_t* ids, const T* table, T* y, cudaStream_t stream) {
    const std::int64_t packs = tokens_ * c_ / N;
    gather_rows<T, N><<<blocks_of(divided_up(packs, lookup_threads * lookup_unroll)), lookup_threads, 0, stream>>>(
        ids, table, y, packs, static_cast<unsigned>(c_ / N), c_, rows_, bad_ids_.on_device());
    check_launch("embedding");
  }
  std::int64_t tokens_, c_;
  TableRows rows_;
  BadIds bad_ids_;
};

constexpr int stretch = 32;  // sorted positions that a block adds
constexpr int at_once = 4;   // rows that a thread loads before it adds the first

/// Keys are the rows of the part of the table that this rank holds, `held` of them from `first` on. What sorts last and is
/// skipped: ids of other ranks' rows, the padding id (-1: there is none), and those outside of the vocabulary (the forward kernel
/// reports them).
__global__ void number_positions(const std::int32_t* __restrict__ ids, std::int32_t first, std::int32_t held,
                                 std::int32_t padding_id, std::int32_t* __restrict__ keys, std::int32_t* __restrict__ positions,
                                 std::int32_t tokens) {
  const std::int32_t token = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (token >= tokens) return;
  const std::int32_t id = ids[token];
  keys[token] = id >= first && id - first < held && id != padding_id ? id - first : held;
  positions[token] = token;
}

template <typename G, int N>
__device__ __forceinline__ void write_row(G* row, bool accumulate, const float (&sum)[N]) {
  Pack<G, N> to;
  if (accumulate) to = load_pack<N>(row);
#pragma unroll
  for (int i = 0; i < N; ++i) to.element[i] = rounded<G>(accumulate ? number(to.element[i]) + sum[i] : sum[i]);
  store_pack<N>(row, to);
}

/// Block (stretch, columns). border [stretches, 2, c]: the part of the run that comes in from the stretch before, and of the one
/// that goes on into the next; a run that does both counts as coming in.
template <typename T, typename G, int N>
__global__ void __launch_bounds__(lookup_threads)
    add_stretches(const std::int32_t* __restrict__ keys, const std::int32_t* __restrict__ positions, const T* __restrict__ dy,
                  G* dtable, bool accumulate, float* __restrict__ border, std::int32_t tokens, std::int32_t vocabulary,
                  std::int64_t c) {
  __shared__ std::int32_t key[stretch + 2], position[stretch];  // key: with the neighbours on both sides, -1 beyond the ends
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * stretch;
  const int count = min(stretch, tokens - first);
  for (int i = threadIdx.x; i < stretch + 2; i += lookup_threads) {
    const std::int32_t index = first + i - 1;
    key[i] = index >= 0 && index < tokens ? keys[index] : -1;
    if (i < count) position[i] = positions[first + i];
  }
  __syncthreads();
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * lookup_threads + threadIdx.x) * N;
  if (column >= c) return;
  float sum[N] = {};
  bool comes_in = key[0] == key[1];
  for (int start = 0; start < count; start += at_once) {
    Pack<T, N> rows[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (start + k < count) rows[k] = load_pack<N>(dy + position[start + k] * c + column);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (start + k >= count) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += number(rows[k].element[i]);
      const std::int32_t id = key[start + k + 1];
      const bool last = start + k + 1 == count, goes_on = key[start + k + 2] == id;
      if (goes_on && !last) continue;
      if (id != vocabulary) {
        if (comes_in || goes_on) {
          float* to = border + (static_cast<std::int64_t>(blockIdx.x) * 2 + (comes_in ? 0 : 1)) * c + column;
#pragma unroll
          for (int i = 0; i < N; ++i) to[i] = sum[i];
        } else {
          write_row(dtable + id * c + column, accumulate, sum);
        }
      }
      comes_in = false;
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = 0.0F;
    }
  }
}

/// Block (stretch, columns): the run that begins in this stretch and goes on into the next ones.
template <typename G, int N>
__global__ void __launch_bounds__(lookup_threads)
    add_borders(const std::int32_t* __restrict__ keys, G* dtable, bool accumulate, const float* __restrict__ border,
                std::int32_t tokens, std::int32_t vocabulary, std::int64_t c) {
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * stretch, end = first + stretch;
  if (end >= tokens) return;
  const std::int32_t id = keys[end - 1];
  if (keys[end] != id || id == vocabulary || (first > 0 && keys[first - 1] == id)) return;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * lookup_threads + threadIdx.x) * N;
  if (column >= c) return;
  float sum[N] = {};
  const float* from = border + (static_cast<std::int64_t>(blockIdx.x) * 2 + 1) * c + column;
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = from[i];
  for (std::int32_t next = blockIdx.x + 1; next * stretch < tokens && keys[next * stretch] == id; ++next) {
    from = border + static_cast<std::int64_t>(next) * 2 * c + column;
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += from[i];
  }
  write_row(dtable + id * c + column, accumulate, sum);
}

template <typename T, typename G>
class EmbeddingGrad final : public Kernel {
 public:
  explicit EmbeddingGrad(const KernelRequest& r)
      : tokens_(static_cast<std::int32_t>(r.inputs[0].shape.elements())),
        vocabulary_(static_cast<std::int32_t>(r.outputs[0].shape[0])),
        first_row_(static_cast<std::int32_t>(r.output_origins.empty() ? 0 : r.output_origins[0][0])),
        padding_id_(static_cast<std::int32_t>(r.attributes.integer_or("padding_id", -1))),
        c_(r.outputs[0].shape[1]) {
    while (vocabulary_ >> bits_ != 0) ++bits_;
    const std::int32_t* none = nullptr;
    check_cuda(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes_, none, static_cast<std::int32_t*>(nullptr), none,
                                               static_cast<std::int32_t*>(nullptr), tokens_, 0, bits_));
  }
  /// keys, positions, both sorted; border; the sort's own.
  std::int64_t workspace_bytes() const override {
    return 4 * list_bytes() + border_bytes() + static_cast<std::int64_t>(sort_bytes_);
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto* ids = in[0].as<std::int32_t>();  // [tokens]
    const T* dy = in[1].as<T>();                 // [tokens, c]
    G* dtable = out[0].as<G>();                  // [vocabulary, c]
    const bool accumulate = !at(in, 2).absent();
    const cudaStream_t stream = stream_of(queue);
    if (!accumulate) {
      cuda::check(cudaMemsetAsync(dtable, 0, static_cast<std::size_t>(vocabulary_ * c_) * sizeof(G), stream),
                  "set the gradient of the embedding to zero");
    }
    if (tokens_ == 0 || c_ == 0) return;
    auto* memory = static_cast<std::byte*>(workspace);
    const auto list = [&](int index) { return reinterpret_cast<std::int32_t*>(memory + index * list_bytes()); };
    auto* border = reinterpret_cast<float*>(memory + 4 * list_bytes());
    number_positions<<<blocks_of(divided_up(tokens_, 256)), 256, 0, stream>>>(ids, first_row_, vocabulary_, padding_id_,
                                                                              list(0), list(1), tokens_);
    check_launch("number_positions");
    std::size_t sort_bytes = sort_bytes_;
    check_cuda(cub::DeviceRadixSort::SortPairs(memory + 4 * list_bytes() + border_bytes(), sort_bytes, list(0), list(2), list(1),
                                               list(3), tokens_, 0, bits_, stream));
    constexpr int N = per_access<T>;
    if (in_packs(c_, N, {dy, dtable}))
      add<N>(list(2), list(3), dy, dtable, accumulate, border, stream);
    else
      add<1>(list(2), list(3), dy, dtable, accumulate, border, stream);
  }

 private:
  std::int64_t list_bytes() const { return divided_up(static_cast<std::int64_t>(tokens_) * 4, 256) * 256; }
  std::int64_t border_bytes() const { return divided_up(divided_up(tokens_, stretch) * 2 * c_ * 4, 256) * 256; }
  static void check_cuda(cudaError_t status) { cuda::check(status, "sort token positions by id"); }

  template <int N>
  void add(const std::int32_t* keys, const std::int32_t* positions, const T* dy, G* dtable, bool accumulate, float* border,
           cudaStream_t stream) {
    const dim3 grid(blocks_of(divided_up(tokens_, stretch)), blocks_of(divided_up(c_, lookup_threads * N)));
    add_stretches<T, G, N>
        <<<grid, lookup_threads, 0, stream>>>(keys, positions, dy, dtable, accumulate, border, tokens_, vocabulary_, c_);
    check_launch("add_stretches");
    add_borders<G, N><<<grid, lookup_threads, 0, stream>>>(keys, dtable, accumulate, border, tokens_, vocabulary_, c_);
    check_launch("add_borders");
  }

  std::int32_t tokens_, vocabulary_, first_row_, padding_id_;  // vocabulary_: the rows that this rank holds
  std::int64_t c_;
  int bits_ = 1;
  std::size_t sort_bytes_ = 0;
};

Made make_embedding(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Embedding>(r.inputs[1].dtype, r);
}
Made make_embedding_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtypes<EmbeddingGrad>(r.inputs[1].dtype, r.outputs[0].dtype, r);
}

}  // namespace

CONSIST_KERNEL(embedding, make_embedding);
CONSIST_KERNEL(embedding_grad, make_embedding_grad);

}  // namespace consist::cuda
