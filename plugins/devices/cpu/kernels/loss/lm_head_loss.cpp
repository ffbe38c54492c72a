// lm_head_loss and lm_head_loss_grad.
#include "plugins/devices/cpu/kernels/loss/lm_head.h"

namespace consist::cpu {
namespace {

template <typename T, typename G>
class LmHeadLoss final : public Kernel {
 public:
  LmHeadLoss(const KernelRequest& r, const KernelSettings& s, bool gradients)
      : chunks_(r, s, gradients), gradients_(gradients), scale_(r.attributes.real("scale")) {}

  std::int64_t workspace_bytes() const override { return losses_bytes() + chunks_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const auto* targets = in[2].as<std::int32_t>();  // [tokens]
    auto* losses = static_cast<double*>(workspace);  // [tokens]
    typename HeadChunks<T, G>::Gradients to;
    if (gradients_) to = {out[1].as<T>(), out[2].as<G>(), !at(in, 3).absent()};
    chunks_.shape().check_targets(targets);
    chunks_.run(in[0], in[1], to, static_cast<char*>(workspace) + losses_bytes(),
                [&](const float* logits, void* dlogits, std::int64_t first, std::int64_t count) {
                  softmax(logits, targets + first, count, losses + first, dlogits);
                });
    double loss = 0;
    for (std::int64_t token = 0; token < chunks_.shape().tokens; ++token) loss += losses[token];
    *out[0].as<float>() = static_cast<float>(loss * scale_);
  }

 private:
  std::int64_t losses_bytes() const { return padded(chunks_.shape().tokens * 8); }

  /// Losses of the rows, and scale·(softmax − one-hot) as dlogits. A row whose target is negative counts nothing.
  void softmax(const float* logits, const std::int32_t* targets, std::int64_t rows, double* losses, void* dlogits) const {
    const std::int64_t n = chunks_.shape().vocabulary;
    const auto scale = static_cast<float>(scale_);
    const HeadChunks<T, G>* const chunks = &chunks_;
    parallel_for(rows, [=](std::int64_t row) {
      const float* l = logits + row * n;
      const std::int32_t target = targets[row];
      const bool counts = target >= 0;
      const double log_denominator = row_softmax(l, n).log_denominator();
      losses[row] = counts ? log_denominator - l[target] : 0.0;
      if (dlogits != nullptr)
        chunks->put_gradient(logits, dlogits, row, static_cast<float>(log_denominator), counts ? scale : 0.0F, target, -scale);
    });
  }

  HeadChunks<T, G> chunks_;
  bool gradients_;
  double scale_;
};

Made make_lm_head_loss(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LmHeadLoss>(r.inputs[0].dtype, DType::f32, r, s, false);
}
Made make_lm_head_loss_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LmHeadLoss>(r.inputs[0].dtype, kernels::dtype_or_f32(r.outputs, 2), r, s, true);
}

}  // namespace

CONSIST_KERNEL(lm_head_loss, make_lm_head_loss);
CONSIST_KERNEL(lm_head_loss_grad, make_lm_head_loss_grad);

}  // namespace consist::cpu
