// A token's logits at a router, its scores and its choices, by a warp that holds all of them.
#pragma once

#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {

/// A token's logits: lane l has those of experts l, l + 32, …, and -inf behind the last.
template <int each>
struct Logits {
  float value[each];

  template <typename T>
  __device__ __forceinline__ Logits(const T* row, int experts) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int expert = static_cast<int>(threadIdx.x) % 32 + 32 * i;
      value[i] = expert < experts ? number(row[expert]) : -INFINITY;
    }
  }
};

/// Their softmax.
template <int each>
struct Probabilities {
  float p[each];
  float log_sum;

  __device__ __forceinline__ explicit Probabilities(const Logits<each>& logits) {
    float largest = logits.value[0];
#pragma unroll
    for (int i = 1; i < each; ++i) largest = fmaxf(largest, logits.value[i]);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, distance));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) sum += p[i] = expf(logits.value[i] - largest);
    sum = sum_of_lanes(sum);
    log_sum = largest + logf(sum);
#pragma unroll
    for (int i = 0; i < each; ++i) p[i] /= sum;
  }
};

/// A router's bias, which may be null, and its groups of experts.
template <typename T>
struct Scoring {
  const T* bias;
  int groups, kept_groups;
};

/// A token's scores, and the keys that decide its choices: sigmoids and, with their bias, these; or softmax and the logits.
template <int each, bool sigmoid>
struct Scores {
  float value[each], key[each];
  float sum = 1;  ///< of all scores

  __device__ __forceinline__ Scores(const Logits<each>& logits, const Probabilities<each>& softmax) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      value[i] = sigmoid ? 1 / (1 + expf(-logits.value[i])) : softmax.p[i];  // 0 behind the last expert
      key[i] = sigmoid ? value[i] : logits.value[i];
    }
    if (!sigmoid) return;
    sum = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) sum += value[i];
    sum = sum_of_lanes(sum);
  }

  template <typename T>
  __device__ __forceinline__ void add_bias(const T* bias, int experts) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int expert = static_cast<int>(threadIdx.x) % 32 + 32 * i;
      if (expert < experts) key[i] += number(bias[expert]);
    }
  }

  /// The sum of the two largest keys of a group of experts, on all lanes.
  __device__ __forceinline__ float best_two(int first, int last) const {
    float best = -INFINITY, second = -INFINITY;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int expert = static_cast<int>(threadIdx.x) % 32 + 32 * i;
      if (expert < first || expert >= last) continue;
      second = fmaxf(second, fminf(best, key[i]));
      best = fmaxf(best, key[i]);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const float other_best = __shfl_xor_sync(all_lanes, best, distance),
                  other_second = __shfl_xor_sync(all_lanes, second, distance);
      second = fmaxf(fmaxf(second, other_second), fminf(best, other_best));
      best = fmaxf(best, other_best);
    }
    return best + second;
  }

  /// Keys of experts in groups that are not among the best, of equal ones the first, become -inf. Lane g has the sum of group g.
  __device__ __forceinline__ void keep_groups(int experts, int groups, int kept_groups) {
    const int lane = static_cast<int>(threadIdx.x) % 32, size = experts / groups;
    float mine = 0;
    for (int group = 0; group < groups; ++group) {
      const float of_group = best_two(group * size, (group + 1) * size);
      if (lane == group) mine = of_group;
    }
    int better = 0;
    for (int group = 0; group < groups; ++group) {
      const float other = __shfl_sync(all_lanes, mine, group);
      better += other > mine || (other == mine && group < lane) ? 1 : 0;
    }
    const std::uint32_t kept = __ballot_sync(all_lanes, lane < groups && better < kept_groups);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int expert = lane + 32 * i;
      if (expert < experts && (kept >> (expert / size) & 1U) == 0) key[i] = -INFINITY;
    }
  }
};

struct Choice {
  int expert;
  float score;
};

/// The expert with the largest key of those that are not taken, of equal ones the first; by a whole warp. `taken`: a bit for each expert
/// of this lane.
template <int each, bool sigmoid>
__device__ __forceinline__ Choice next_choice(const Scores<each, sigmoid>& row, std::uint32_t taken, int experts) {
  float best = 0, score = 0;
  int expert = -1;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int candidate = static_cast<int>(threadIdx.x) % 32 + 32 * i;
    if (candidate >= experts || (taken >> i & 1U) != 0 || (expert >= 0 && !(row.key[i] > best))) continue;
    best = row.key[i];
    score = row.value[i];
    expert = candidate;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(all_lanes, best, distance),
                other_score = __shfl_xor_sync(all_lanes, score, distance);
    const int other_expert = __shfl_xor_sync(all_lanes, expert, distance);
    if (other_expert < 0 || (expert >= 0 && !(other > best || (other == best && other_expert < expert)))) continue;
    best = other;
    score = other_score;
    expert = other_expert;
  }
  // Numbers that compare with none may leave lanes with different ones.
  return {__shfl_sync(all_lanes, expert, 0), __shfl_sync(all_lanes, score, 0)};
}

/// An expert and its score, by a whole warp.
template <int each, bool sigmoid>
__device__ __forceinline__ Choice choice_of(int expert, const Scores<each, sigmoid>& row) {
  float score = 0;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    if (i == expert / 32) score = row.value[i];
  }
  return {expert, __shfl_sync(all_lanes, score, expert % 32)};
}

/// Adds the gradient of scores from that of their shares in the sum.
template <int each>
__device__ __forceinline__ void add_gradient_of_shares(const Scores<each, true>& scores, const float* dshares, float (&ds)[each],
                                                       int experts) {
  float mine[each], mean = 0;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int expert = static_cast<int>(threadIdx.x) % 32 + 32 * i;
    mine[i] = expert < experts ? dshares[expert] : 0.0F;
    mean += mine[i] * scores.value[i] / scores.sum;
  }
  mean = sum_of_lanes(mean);
#pragma unroll
  for (int i = 0; i < each; ++i) ds[i] += (mine[i] - mean) / scores.sum;
}

}  // namespace consist::cuda
