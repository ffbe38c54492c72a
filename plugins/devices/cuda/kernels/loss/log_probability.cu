// lm_head_log_probability and lm_head_log_probability_grad.
#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/attention/softmax.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/loss/bad_ids.h"
#include "plugins/devices/cuda/kernels/loss/lm_head.h"

namespace consist::cuda {
namespace {

/// One block per row of logits [rows, vocabulary]. A target outside of the vocabulary is reported and gives NaN.
template <typename T, int N>
__global__ void __launch_bounds__(softmax_threads)
    probabilities_of_rows(const T* __restrict__ logits, const std::int32_t* __restrict__ targets, float* __restrict__ likely,
                          float* __restrict__ denominators, std::int64_t vocabulary, BadIds::Report* report) {
  const std::int64_t row = blockIdx.x;
  const T* const l = logits + row * vocabulary;
  const RunningSoftmax softmax = softmax_of_row<N>(l, vocabulary);
  if (threadIdx.x != 0) return;
  const std::int32_t target = targets[row];
  const float denominator = softmax.log_denominator();
  denominators[row] = denominator;
  likely[row] = target < 0 ? 0.0F : target < vocabulary ? number(l[target]) - denominator : NAN;
  if (target >= vocabulary) *report = {1, target};
}

/// One block per row: logits become their gradients, by those of what probabilities_of_rows() made; either may be null.
template <typename T, int N>
__global__ void __launch_bounds__(softmax_threads)
    gradient_of_probabilities(T* logits, const std::int32_t* __restrict__ targets, const float* __restrict__ denominators,
                              const float* __restrict__ by_likely, const float* __restrict__ by_denominator,
                              std::int64_t vocabulary) {
  const std::int64_t row = blockIdx.x;
  T* const l = logits + row * vocabulary;
  const std::int32_t target = targets[row];
  const float of_target = by_likely != nullptr && target >= 0 ? by_likely[row] : 0.0F,
              factor = (by_denominator != nullptr ? by_denominator[row] : 0.0F) - of_target;
  if (factor == 0 && of_target == 0)
    clear_row(l, vocabulary);
  else
    softmax_gradient_of_row<N>(l, vocabulary, denominators[row], factor, target, of_target);
}

/// Calls f(typed logits, the number of elements of an access as a constant).
template <typename F>
void by_type(const HeadShape& shape, void* logits, const F& f) {
  const auto by_access = [&](auto* typed) {
    constexpr int N = per_access<std::remove_pointer_t<decltype(typed)>>;
    if (shape.vocabulary % N == 0)
      f(typed, std::integral_constant<int, N>());
    else
      f(typed, std::integral_constant<int, 1>());
  };
  if (shape.type == DType::bf16)
    by_access(static_cast<__nv_bfloat16*>(logits));
  else
    by_access(static_cast<float*>(logits));
}

class LogProbability final : public Kernel {
 public:
  LogProbability(const KernelRequest& r, const KernelSettings& s) : chunks_(r, std::nullopt, *s.matmuls) {}
  std::int64_t workspace_bytes() const override { return chunks_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto* targets = in[2].as<std::int32_t>();                                      // [tokens]
    float *const likely = out[0].as<float>(), *const denominators = out[1].as<float>();  // [tokens]
    const HeadShape& shape = chunks_.shape();
    chunks_.run(in[0], in[1], {}, workspace, stream_of(queue), [&](void* logits, std::int64_t first, std::int64_t count) {
      by_type(shape, logits, [&]<typename T, int N>(T* typed, std::integral_constant<int, N>) {
        probabilities_of_rows<T, N><<<blocks_of(count), softmax_threads, 0, stream_of(queue)>>>(
            typed, targets + first, likely + first, denominators + first, shape.vocabulary, bad_targets_.on_device());
        check_launch("probabilities_of_rows");
      });
    });
  }
  void check() override { bad_targets_.check_reports("target", chunks_.shape().vocabulary); }

 private:
  HeadChunks chunks_;
  BadIds bad_targets_;
};

class LogProbabilityGrad final : public Kernel {
 public:
  LogProbabilityGrad(const KernelRequest& r, const KernelSettings& s, DType gradient) : chunks_(r, gradient, *s.matmuls) {}
  std::int64_t workspace_bytes() const override { return chunks_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto* targets = in[2].as<std::int32_t>();  // [tokens]
    const float *const denominators = in[3].as<float>(), *const by_likely = in[4].as<float>(),
        *const by_denominator = in[5].as<float>();  // [tokens]; either of the last two may be null
    const auto part = [](const float* rows, std::int64_t first) { return rows == nullptr ? nullptr : rows + first; };
    const HeadShape& shape = chunks_.shape();
    chunks_.run(in[0], in[1], {out[0].data, out[1].data, !at(in, 6).absent()}, workspace, stream_of(queue),
                [&](void* logits, std::int64_t first, std::int64_t count) {
                  by_type(shape, logits, [&]<typename T, int N>(T* typed, std::integral_constant<int, N>) {
                    gradient_of_probabilities<T, N><<<blocks_of(count), softmax_threads, 0, stream_of(queue)>>>(
                        typed, targets + first, denominators + first, part(by_likely, first), part(by_denominator, first),
                        shape.vocabulary);
                    check_launch("gradient_of_probabilities");
                  });
                });
  }

 private:
  HeadChunks chunks_;
};

Made make_log_probability(const KernelRequest& r, const KernelSettings& s) {
  if (!HeadShape(r).is_known(r)) return nullptr;
  return std::make_unique<LogProbability>(r, s);
}
Made make_log_probability_grad(const KernelRequest& r, const KernelSettings& s) {
  const DType g = kernels::dtype_or_f32(r.outputs, 1);
  if (!HeadShape(r).is_known(r) || (g != DType::f32 && g != DType::bf16)) return nullptr;
  return std::make_unique<LogProbabilityGrad>(r, s, g);
}

}  // namespace

CONSIST_KERNEL(lm_head_log_probability, make_log_probability);
CONSIST_KERNEL(lm_head_log_probability_grad, make_log_probability_grad);

}  // namespace consist::cuda
