// lm_head_log_probability and lm_head_log_probability_grad.
#include "plugins/devices/cpu/kernels/loss/lm_head.h"

namespace consist::cpu {
namespace {

template <typename T, typename G>
class LogProbability final : public Kernel {
 public:
  LogProbability(const KernelRequest& r, const KernelSettings& s) : chunks_(r, s, false) {}
  std::int64_t workspace_bytes() const override { return chunks_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const std::int64_t n = chunks_.shape().vocabulary;
    const auto* targets = in[2].as<std::int32_t>();                                      // [tokens]
    float *const likely = out[0].as<float>(), *const denominators = out[1].as<float>();  // [tokens]
    chunks_.shape().check_targets(targets);
    chunks_.run(in[0], in[1], {}, workspace, [=](const float* logits, void*, std::int64_t first, std::int64_t count) {
      parallel_for(count, [=](std::int64_t row) {
        const std::int64_t token = first + row;
        const double denominator = row_softmax(logits + row * n, n).log_denominator();
        denominators[token] = static_cast<float>(denominator);
        likely[token] = targets[token] < 0 ? 0.0F : static_cast<float>(logits[row * n + targets[token]] - denominator);
      });
    });
  }

 private:
  HeadChunks<T, G> chunks_;
};

template <typename T, typename G>
class LogProbabilityGrad final : public Kernel {
 public:
  LogProbabilityGrad(const KernelRequest& r, const KernelSettings& s) : chunks_(r, s, true) {}
  std::int64_t workspace_bytes() const override { return chunks_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const auto* targets = in[2].as<std::int32_t>();                                             // [tokens]
    const float *const denominators = in[3].as<float>(), *const by_likely = in[4].as<float>(),  // [tokens]
                                                             *const by_denominator =
                                                                 in[5].as<float>();  // of these either may be null
    const HeadChunks<T, G>* const chunks = &chunks_;
    chunks_.run(in[0], in[1], {out[0].as<T>(), out[1].as<G>(), !at(in, 6).absent()}, workspace,
                [=](const float* logits, void* dlogits, std::int64_t first, std::int64_t count) {
                  parallel_for(count, [=](std::int64_t row) {
                    const std::int64_t token = first + row;
                    const float of_target = by_likely != nullptr && targets[token] >= 0 ? by_likely[token] : 0.0F,
                                factor = (by_denominator != nullptr ? by_denominator[token] : 0.0F) - of_target;
                    chunks->put_gradient(logits, dlogits, row, denominators[token], factor, targets[token], of_target);
                  });
                });
  }

 private:
  HeadChunks<T, G> chunks_;
};

Made make_log_probability(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LogProbability>(r.inputs[0].dtype, DType::f32, r, s);
}
Made make_log_probability_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LogProbabilityGrad>(r.inputs[0].dtype, kernels::dtype_or_f32(r.outputs, 1), r, s);
}

}  // namespace

CONSIST_KERNEL(lm_head_log_probability, make_log_probability);
CONSIST_KERNEL(lm_head_log_probability_grad, make_log_probability_grad);

}  // namespace consist::cpu
