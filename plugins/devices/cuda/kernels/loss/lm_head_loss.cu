// lm_head_loss and lm_head_loss_grad. Loss and dlogits come from one kernel that reads each row of logits twice, the second time
// from the L2 cache.
#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/attention/softmax.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/loss/bad_ids.h"
#include "plugins/devices/cuda/kernels/loss/lm_head.h"
#include "plugins/devices/cuda/kernels/loss/sum_losses.h"

namespace consist::cuda {
namespace {

/// One block per row. logits [rows, vocabulary] become dlogits in place if `gradients`; losses [rows] (unscaled). A negative
/// target counts nothing; one outside of the vocabulary is reported and makes the loss NaN.
template <typename T, int N>
__global__ void __launch_bounds__(softmax_threads)
    softmax_rows(T* logits, const std::int32_t* targets, float* losses, std::int64_t vocabulary, float scale, bool gradients,
                 BadIds::Report* report) {
  const std::int64_t row = blockIdx.x;
  T* const l = logits + row * vocabulary;
  const std::int32_t target = targets[row];
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = 0;
    if (gradients) clear_row(l, vocabulary);
    return;
  }
  const RunningSoftmax softmax = softmax_of_row<N>(l, vocabulary);
  const float at_target = target < vocabulary ? number(l[target]) : NAN;
  if (threadIdx.x == 0) losses[row] = softmax.log_denominator() - at_target;
  if (threadIdx.x == 0 && target >= vocabulary) *report = {1, target};
  if (!gradients) return;
  __syncthreads();  // at_target is read before it is overwritten
  softmax_gradient_of_row<N>(l, vocabulary, softmax.largest, scale / softmax.sum, target, -scale);
}

template <typename T>
void softmax(T* logits, const std::int32_t* targets, float* losses, std::int64_t rows, std::int64_t vocabulary, float scale,
             bool gradients, BadIds::Report* report, cudaStream_t stream) {
  constexpr int N = per_access<T>;
  const auto blocks = static_cast<unsigned>(rows);
  if (vocabulary % N == 0) {
    softmax_rows<T, N><<<blocks, softmax_threads, 0, stream>>>(logits, targets, losses, vocabulary, scale, gradients, report);
  } else {
    softmax_rows<T, 1><<<blocks, softmax_threads, 0, stream>>>(logits, targets, losses, vocabulary, scale, gradients, report);
  }
  check_launch("softmax_rows");
}

class LmHeadLoss final : public Kernel {
 public:
  LmHeadLoss(const KernelRequest& r, const KernelSettings& s, std::optional<DType> gradient)
      : chunks_(r, gradient, *s.matmuls),
        gradients_(gradient.has_value()),
        scale_(static_cast<float>(r.attributes.real("scale"))) {}

  std::int64_t workspace_bytes() const override { return losses_bytes() + chunks_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    const auto* targets = in[2].as<std::int32_t>();  // [tokens]
    auto* losses = static_cast<float*>(workspace);   // [tokens]
    HeadChunks::Gradients to;
    if (gradients_) to = {out[1].data, out[2].data, !at(in, 3).absent()};
    const HeadShape& shape = chunks_.shape();
    chunks_.run(in[0], in[1], to, static_cast<char*>(workspace) + losses_bytes(), stream,
                [&](void* logits, std::int64_t first, std::int64_t count) {
                  const auto rows = [&](auto* typed) {
                    softmax(typed, targets + first, losses + first, count, shape.vocabulary, scale_, gradients_,
                            bad_targets_.on_device(), stream);
                  };
                  if (shape.type == DType::bf16)
                    rows(static_cast<__nv_bfloat16*>(logits));
                  else
                    rows(static_cast<float*>(logits));
                });
    enqueue_sum_losses(losses, shape.tokens, scale_, nullptr, out[0].as<float>(), stream);
  }

  void check() override { bad_targets_.check_reports("target", chunks_.shape().vocabulary); }

 private:
  std::int64_t losses_bytes() const { return divided_up(chunks_.shape().tokens * 4, 256) * 256; }

  HeadChunks chunks_;
  BadIds bad_targets_;
  bool gradients_;
  float scale_;
};

Made make_lm_head_loss(const KernelRequest& r, const KernelSettings& s) {
  if (!HeadShape(r).is_known(r)) return nullptr;
  return std::make_unique<LmHeadLoss>(r, s, std::nullopt);
}
Made make_lm_head_loss_grad(const KernelRequest& r, const KernelSettings& s) {
  const DType g = kernels::dtype_or_f32(r.outputs, 2);
  if (!HeadShape(r).is_known(r) || (g != DType::f32 && g != DType::bf16)) return nullptr;
  return std::make_unique<LmHeadLoss>(r, s, g);
}

}  // namespace

CONSIST_KERNEL(lm_head_loss, make_lm_head_loss);
CONSIST_KERNEL(lm_head_loss_grad, make_lm_head_loss_grad);

}  // namespace consist::cuda
