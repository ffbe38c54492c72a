#include "plugins/devices/cuda/matmul_search.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/optimizer/random_fill.h"

namespace consist::cuda {
namespace {

/// Number of scales of `rows` of k elements.
std::int64_t scale_count(Scaling scaling, std::int64_t rows, std::int64_t k) {
  if (scaling == Scaling::row) return rows;
  if (scaling == Scaling::block_1d) return scale_blocks(k) * rows;
  return scaling == Scaling::block_2d ? scale_blocks(rows) * square_stride(k) : 1;
}

/// Memory of the GPU for the time of a search.
class Scratch {
 public:
  explicit Scratch(std::int64_t bytes) {
    check(cudaMalloc(&memory_, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256))),
          "memory for the search of a matrix product's algorithm");
  }
  ~Scratch() { cudaFree(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

struct EventPair {
  cudaEvent_t begin = nullptr, end = nullptr;
  EventPair() {
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }
  ~EventPair() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;
};

}  // namespace

int fastest_of(const std::vector<cublasLtMatmulHeuristicResult_t>& proposals, const MatmulDescription& description,
               cublasLtHandle_t handle, std::int64_t workspace) {
  const MatmulShape& shape = description.shape();
  const auto bytes = [](std::int64_t elements, DType type) { return elements * static_cast<std::int64_t>(size_of(type)); };
  const std::int64_t a_rows = shape.transpose_a ? shape.k : shape.m, a_columns = shape.transpose_a ? shape.m : shape.k;
  const std::int64_t a_elements = a_rows * std::max(a_columns, shape.a_row_stride),
                     d_elements = shape.m * std::max(shape.n, shape.d_row_stride);
  const Scratch a(bytes(a_elements, shape.a)), b(bytes(shape.k * shape.n, shape.b)), d(bytes(d_elements, shape.d)),
      bias(bytes(shape.n, shape.d)), space(workspace);
  // Power, and with it the clock, depends on the data: zeros would be timed too fast.
  fill_random(a.get(), a_elements, shape.a, 1, nullptr);
  fill_random(b.get(), shape.k * shape.n, shape.b, 2, nullptr);
  check(cudaMemset(d.get(), 0, static_cast<std::size_t>(bytes(d_elements, shape.d))), "cudaMemset");
  check(cudaMemset(bias.get(), 0, static_cast<std::size_t>(bytes(shape.n, shape.d))), "cudaMemset");

  const std::vector<float> ones(static_cast<std::size_t>(std::max(scale_count(shape.a_scaling, shape.m, shape.k),
                                                                  scale_count(shape.b_scaling, shape.n, shape.k))),
                                1.0F);
  const Scratch scale(static_cast<std::int64_t>(ones.size() * sizeof(float)));
  check(cudaMemcpy(scale.get(), ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  const MatmulOperands operands{
      .a = a.get(), .b = b.get(), .d = d.get(), .bias = bias.get(), .a_scale = scale.get(), .b_scale = scale.get()};

  const EventPair events;
  auto time_of = [&](const cublasLtMatmulAlgo_t& algorithm, int repetitions) -> float {
    check(cudaEventRecord(events.begin, nullptr), "cudaEventRecord");
    for (int i = 0; i < repetitions; ++i) {
      if (description.enqueue(handle, operands, algorithm, space.get(), workspace, nullptr) != CUBLAS_STATUS_SUCCESS) return -1;
    }
    check(cudaEventRecord(events.end, nullptr), "cudaEventRecord");
    check(cudaEventSynchronize(events.end), "a matrix product under test");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events.begin, events.end), "cudaEventElapsedTime");
    return milliseconds / static_cast<float>(repetitions);
  };
  // Each proposal twice, in turn, and the better time of both: the clock of the first one is not yet that of the last. No clock
  // makes up for a quarter, so the second look is at those that came near.
  // What takes a millisecond on any GPU of today is long beside the events' resolution: one run of it says as much as several. A
  // head over 128 k tokens takes 25 ms, and its searches took most of a run's start.
  const bool is_long = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) > 1e12;
  const int repetitions = is_long ? 1 : 3;
  std::vector<float> best_of(proposals.size(), -1);
  float near = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < proposals.size(); ++i) {
      if (round > 0 && best_of[i] < 0) continue;
      if (round == 2 && best_of[i] > near) continue;
      const float once = time_of(proposals[i].algo, round == 0 ? 1 : repetitions);
      if (round == 0) {
        best_of[i] = once < 0 ? -1 : 1e30F;
      } else if (once > 0) {
        best_of[i] = std::min(best_of[i], once);
        near = near == 0 ? 1.25F * once : std::min(near, 1.25F * once);
      }
    }
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < proposals.size(); ++i) {
    if (best_of[i] > 0 && (best_of[best] <= 0 || best_of[i] < best_of[best])) best = i;
  }
  return best_of[best] > 0 ? static_cast<int>(best) : -1;
}

}  // namespace consist::cuda
