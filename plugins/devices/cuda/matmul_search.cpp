#include "plugins/devices/cuda/matmul_search.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/random_fill.h"

namespace consist::cuda {
namespace {

/// How many scales `rows` of k elements have.
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

/// A product with matrices of its own, to be run again and again.
class Trial {
 public:
  Trial(const MatmulDescription& description, cublasLtHandle_t handle, std::int64_t workspace)
      : description_(description),
        handle_(handle),
        workspace_(workspace),
        a_(bytes(a_elements(), shape().a)),
        b_(bytes(b_elements(), shape().b)),
        d_(bytes(d_elements(), shape().d)),
        bias_(bytes(shape().n, shape().d)),
        scale_(most_scales() * static_cast<std::int64_t>(sizeof(float))),
        space_(workspace) {
    // Power, and with it the clock, depends on the data: zeros would be timed too fast.
    fill_random(a_.get(), a_elements(), shape().a, 1, nullptr);
    fill_random(b_.get(), b_elements(), shape().b, 2, nullptr);
    check(cudaMemset(d_.get(), 0, static_cast<std::size_t>(bytes(d_elements(), shape().d))), "cudaMemset");
    check(cudaMemset(bias_.get(), 0, static_cast<std::size_t>(bytes(shape().n, shape().d))), "cudaMemset");
    const std::vector<float> ones(static_cast<std::size_t>(most_scales()), 1.0F);
    check(cudaMemcpy(scale_.get(), ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  const MatmulShape& shape() const { return description_.shape(); }
  double flops() const {
    return 2.0 * static_cast<double>(shape().m) * static_cast<double>(shape().n) * static_cast<double>(shape().k);
  }

  /// Milliseconds of one run, on average over `repetitions`; below 0: it does not run.
  float time_of(const cublasLtMatmulAlgo_t& algorithm, int repetitions) const {
    const MatmulOperands operands{
        .a = a_.get(), .b = b_.get(), .d = d_.get(), .bias = bias_.get(), .a_scale = scale_.get(), .b_scale = scale_.get()};
    check(cudaEventRecord(events_.begin, nullptr), "cudaEventRecord");
    for (int i = 0; i < repetitions; ++i) {
      if (description_.enqueue(handle_, operands, algorithm, space_.get(), workspace_, nullptr) != CUBLAS_STATUS_SUCCESS)
        return -1;
    }
    check(cudaEventRecord(events_.end, nullptr), "cudaEventRecord");
    check(cudaEventSynchronize(events_.end), "a matrix product under test");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_.begin, events_.end), "cudaEventElapsedTime");
    return milliseconds / static_cast<float>(repetitions);
  }

 private:
  static std::int64_t bytes(std::int64_t elements, DType type) { return elements * static_cast<std::int64_t>(size_of(type)); }
  std::int64_t a_elements() const {
    const std::int64_t rows = shape().transpose_a ? shape().k : shape().m, columns = shape().transpose_a ? shape().m : shape().k;
    return rows * std::max(columns, shape().a_pitch);
  }
  std::int64_t b_elements() const { return shape().k * shape().n; }
  std::int64_t d_elements() const { return shape().m * std::max(shape().n, shape().d_pitch); }
  std::int64_t most_scales() const {
    return std::max(scale_count(shape().a_scaling, shape().m, shape().k), scale_count(shape().b_scaling, shape().n, shape().k));
  }

  const MatmulDescription& description_;
  cublasLtHandle_t handle_;
  std::int64_t workspace_;
  Scratch a_, b_, d_, bias_, scale_, space_;
  EventPair events_;
};

struct Candidate {
  cublasLtMatmulAlgo_t algorithm{};
  float milliseconds = 0;  ///< the best of its short looks; 0: it does not run
};

/// Looks at each twice, in turn, and keeps the better time of both: the clock of the first one is not yet that of the last. No
/// clock makes up for a quarter, so the second look is at those that came near. Leaves those that run, fastest first.
void time_in_turn(std::vector<Candidate>& candidates, const Trial& trial) {
  // What takes a millisecond on any GPU of today is long beside the events' resolution: one run of it says as much as several. A
  // head over 128 k tokens takes 25 ms, and its searches took most of a run's start.
  const int repetitions = trial.flops() > 1e12 ? 1 : 3;
  std::erase_if(candidates, [&](const Candidate& c) { return trial.time_of(c.algorithm, 1) < 0; });
  float near = 0;
  for (int round = 0; round < 2; ++round) {
    for (Candidate& c : candidates) {
      if (round > 0 && c.milliseconds > near) continue;
      const float once = trial.time_of(c.algorithm, repetitions);
      c.milliseconds = c.milliseconds == 0 ? once : std::min(c.milliseconds, once);
      near = near == 0 ? 1.25F * once : std::min(near, 1.25F * once);
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.milliseconds < b.milliseconds; });
}

/// The same algorithms with blocks dealt to multiprocessors in other orders, which differ in what they find in the L2 cache.
std::vector<Candidate> in_other_orders(std::span<const Candidate> of, const MatmulDescription& description,
                                       cublasLtHandle_t handle, std::int64_t workspace) {
  std::vector<Candidate> made;
  for (const Candidate& candidate : of) {
    std::uint32_t own = 0;
    std::size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&candidate.algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &own, sizeof own,
                                             &written) != CUBLAS_STATUS_SUCCESS)
      continue;
    for (std::uint32_t order = 0; order < 4; ++order) {
      Candidate other{candidate.algorithm};
      cublasLtMatmulHeuristicResult_t result{};
      if (order != own &&
          cublasLtMatmulAlgoConfigSetAttribute(&other.algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &order, sizeof order) ==
              CUBLAS_STATUS_SUCCESS &&
          description.check_algorithm(handle, other.algorithm, result) == CUBLAS_STATUS_SUCCESS &&
          static_cast<std::int64_t>(result.workspaceSize) <= workspace) {
        made.push_back(other);
      }
    }
  }
  return made;
}

/// Each for `seconds` at a time, twice, without a pause. A GPU at its power limit runs what takes less energy at a higher clock,
/// which short looks do not see: they differed by up to 4% from times under load (docs/results.md).
const Candidate& fastest_under_load(std::span<const Candidate> candidates, const Trial& trial, double seconds) {
  const auto repetitions = [&](const Candidate& c, double of) {
    return static_cast<int>(std::ceil(of * 1e3 / std::max(static_cast<double>(c.milliseconds), 1e-3)));
  };
  trial.time_of(candidates[0].algorithm, repetitions(candidates[0], 2 * seconds));
  std::vector<double> spent(candidates.size(), 0);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      trial.time_of(candidates[i].algorithm, repetitions(candidates[i], seconds / 3));  // the clock settles
      spent[i] += trial.time_of(candidates[i].algorithm, repetitions(candidates[i], seconds));
    }
  }
  return candidates[static_cast<std::size_t>(std::min_element(spent.begin(), spent.end()) - spent.begin())];
}

}  // namespace

std::optional<cublasLtMatmulAlgo_t> fastest_of(std::span<const cublasLtMatmulHeuristicResult_t> proposals,
                                               const MatmulDescription& description, cublasLtHandle_t handle,
                                               std::int64_t workspace, double seconds) {
  constexpr std::size_t varied = 3, finalists = 6;
  const Trial trial(description, handle, workspace);
  std::vector<Candidate> candidates;
  for (const cublasLtMatmulHeuristicResult_t& p : proposals) candidates.push_back({p.algo});
  time_in_turn(candidates, trial);
  if (candidates.empty()) return std::nullopt;
  if (seconds <= 0) return candidates.front().algorithm;

  std::vector<Candidate> others =
      in_other_orders(std::span(candidates).first(std::min(varied, candidates.size())), description, handle, workspace);
  time_in_turn(others, trial);
  candidates.insert(candidates.end(), others.begin(), others.end());
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.milliseconds < b.milliseconds; });
  return fastest_under_load(std::span(candidates).first(std::min(finalists, candidates.size())), trial, seconds).algorithm;
}

}  // namespace consist::cuda
