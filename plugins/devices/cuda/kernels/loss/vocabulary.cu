// vocabulary_logits, vocabulary_loss and vocabulary_loss_grad: the LM head's loss where ranks hold parts of the vocabulary. Rows
// of logits are read once for their statistics, and once more, when those of all ranks are there, for the gradient in their
// place.
#include <algorithm>

#include "plugins/devices/cuda/kernels/loss/bad_ids.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/attention/softmax.cuh"
#include "plugins/devices/cuda/kernels/loss/sum_losses.h"
#include "plugins/devices/cuda/matmul.h"
#include "plugins/devices/common/vocabulary.h"

namespace consist::cuda {
namespace {

constexpr int statistics = kernels::vocabulary_statistics;

template <typename T>
constexpr DType dtype_of_type() {
  return sizeof(T) == 4 ? DType::f32 : DType::bf16;
}

/// One block per row. stats [rows, 3] of logits [rows, words]. A target outside of the vocabulary is reported and makes the loss
/// NaN.
template <typename T, int N>
__global__ void __launch_bounds__(softmax_threads)
    statistics_of_rows(const T* __restrict__ logits, const std::int32_t* __restrict__ targets, float* __restrict__ stats,
                       std::int64_t words, std::int64_t first_word, std::int64_t vocabulary, BadIds::Report* report) {
  const std::int64_t row = blockIdx.x;
  const T* const l = logits + row * words;
  const RunningSoftmax softmax = softmax_of_row<N>(l, words);
  if (threadIdx.x != 0) return;
  const std::int32_t target = targets[row];
  const std::int64_t place = target - first_word;
  float* const to = stats + row * statistics;
  to[0] = softmax.largest;
  to[1] = softmax.sum;
  to[2] = target >= 0 && place >= 0 && place < words ? number(l[place]) : 0.0F;
  if (target < vocabulary) return;
  to[2] = NAN;
  *report = {1, target};
}

template <typename T>
class VocabularyLogits final : public Kernel {
 public:
  VocabularyLogits(const KernelRequest& r, const KernelSettings& s)
      : shape_(r, 0),
        logits_(*s.matmuls, {.m = shape_.rows,
                             .n = shape_.words,
                             .k = shape_.c,
                             .transpose_b = true,
                             .a = dtype_of_type<T>(),
                             .b = dtype_of_type<T>(),
                             .d = dtype_of_type<T>()}) {}
  std::int64_t workspace_bytes() const override { return logits_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const T* x = in[0].as<T>() + shape_.first * shape_.c;           // [rows, c]
    const auto* targets = in[2].as<std::int32_t>() + shape_.first;  // [rows]
    T* logits = out[0].as<T>();                                     // [rows, words]
    auto* stats = out[1].as<float>();                               // [rows, 3]
    if (shape_.rows == 0) return;
    logits_.enqueue(x, in[1].data, logits, nullptr, workspace, stream_of(queue));
    constexpr int N = per_access<T>;
    if (in_packs(shape_.words, N, {logits}))
      count<N>(logits, targets, stats, stream_of(queue));
    else
      count<1>(logits, targets, stats, stream_of(queue));
  }
  void check() override { bad_targets_.check_reports("target", shape_.vocabulary); }

 private:
  template <int N>
  void count(const T* logits, const std::int32_t* targets, float* stats, cudaStream_t stream) {
    statistics_of_rows<T, N><<<blocks_of(shape_.rows), softmax_threads, 0, stream>>>(
        logits, targets, stats, shape_.words, shape_.first_word, shape_.vocabulary, bad_targets_.on_device());
    check_launch("statistics_of_rows");
  }
  kernels::VocabularyChunk shape_;
  Matmul logits_;
  BadIds bad_targets_;
};

/// One row's softmax over all words, from the statistics [parts, rows, 3] of every part.
struct WholeRow {
  RunningSoftmax softmax;
  float at_target = 0;
};
__device__ WholeRow whole_row(const float* __restrict__ stats, int parts, std::int64_t rows, std::int64_t row) {
  WholeRow whole;
  for (int part = 0; part < parts; ++part) {
    const float* s = stats + (part * rows + row) * statistics;
    whole.softmax.add({s[0], s[1]});
    whole.at_target += s[2];
  }
  return whole;
}

__global__ void losses_of_rows(const float* __restrict__ stats, int parts, const std::int32_t* __restrict__ targets,
                               std::int64_t rows, float* __restrict__ losses) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const WholeRow whole = whole_row(stats, parts, rows, row);
  losses[row] = targets[row] >= 0 ? whole.softmax.log_denominator() - whole.at_target : 0.0F;
}

class VocabularyLoss final : public Kernel {
 public:
  explicit VocabularyLoss(const KernelRequest& r)
      : tokens_(r.inputs[2].shape.elements()), scale_(static_cast<float>(r.attributes.real("scale"))) {}
  std::int64_t workspace_bytes() const override { return tokens_ * 4; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto* targets = in[2].as<std::int32_t>();  // [tokens]
    auto* losses = static_cast<float*>(workspace);   // [tokens]
    std::int64_t first = 0;
    for (std::size_t chunk = 3; chunk < in.size(); ++chunk) {
      const std::int64_t rows = in[chunk].shape[1];  // of [parts, rows, 3]
      if (rows == 0) continue;
      losses_of_rows<<<blocks_of(divided_up(rows, 256)), 256, 0, stream_of(queue)>>>(
          in[chunk].as<float>(), static_cast<int>(in[chunk].shape[0]), targets + first, rows, losses + first);
      check_launch("losses_of_rows");
      first += rows;
    }
    enqueue_sum_losses(losses, tokens_, scale_, nullptr, out[0].as<float>(), stream_of(queue));
  }

 private:
  std::int64_t tokens_;
  float scale_;
};

/// One block per row. logits [rows, words] become dlogits in place; losses [rows] (unscaled). A negative target counts nothing.
template <typename T, int N>
__global__ void __launch_bounds__(softmax_threads)
    gradient_of_rows(T* logits, const float* __restrict__ stats, int parts, const std::int32_t* __restrict__ targets,
                     float* __restrict__ losses, std::int64_t words, std::int64_t first_word, float scale) {
  const std::int64_t row = blockIdx.x;
  T* const l = logits + row * words;
  const std::int32_t target = targets[row];
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = 0;
    clear_row(l, words);
    return;
  }
  const WholeRow whole = whole_row(stats, parts, gridDim.x, row);
  if (threadIdx.x == 0) losses[row] = whole.softmax.log_denominator() - whole.at_target;
  softmax_gradient_of_row<N>(l, words, whole.softmax.largest, scale / whole.softmax.sum, target - first_word, -scale);
}

template <typename T, typename G>
class VocabularyLossGrad final : public Kernel {
 public:
  VocabularyLossGrad(const KernelRequest& r, const KernelSettings& s)
      : shape_(r, 2),
        parts_(static_cast<int>(r.inputs[1].shape[0])),
        scale_(static_cast<float>(r.attributes.real("scale"))),
        dx_(*s.matmuls, {.m = shape_.rows, .n = shape_.c, .k = shape_.words, .a = type(), .b = type(), .d = type()}),
        dw_(*s.matmuls, {.m = shape_.words,
                         .n = shape_.c,
                         .k = shape_.rows,
                         .transpose_a = true,
                         .a = type(),
                         .b = type(),
                         .d = dtype_of_type<G>(),
                         .add = !at(r.inputs, 7).absent()}) {}
  std::int64_t workspace_bytes() const override {
    return losses_bytes() + std::max(dx_.workspace_bytes(), dw_.workspace_bytes());
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    T* logits = out[3].as<T>();                                     // [rows, words], dlogits from here on
    const auto* stats = in[1].as<float>();                          // [parts, rows, 3]
    const T* x = in[2].as<T>() + shape_.first * shape_.c;           // [rows, c]
    const auto* targets = in[4].as<std::int32_t>() + shape_.first;  // [rows]
    T* dx = out[1].as<T>();                                         // [tokens, c], null where nobody wants it
    auto* losses = static_cast<float*>(workspace);                  // [rows]
    void* scratch = static_cast<std::byte*>(workspace) + losses_bytes();
    const cudaStream_t stream = stream_of(queue);
    if (shape_.rows > 0) {
      constexpr int N = per_access<T>;
      if (in_packs(shape_.words, N, {logits}))
        gradient<N>(logits, stats, targets, losses, stream);
      else
        gradient<1>(logits, stats, targets, losses, stream);
      if (dx != nullptr) dx_.enqueue(logits, in[3].data, dx + shape_.first * shape_.c, nullptr, scratch, stream);
      if (out[2].data != nullptr) dw_.enqueue(logits, x, out[2].data, nullptr, scratch, stream);
    }
    enqueue_sum_losses(losses, shape_.rows, scale_, at(in, 5).absent() ? nullptr : in[5].as<float>(), out[0].as<float>(), stream);
  }

 private:
  static constexpr DType type() { return dtype_of_type<T>(); }
  std::int64_t losses_bytes() const { return divided_up(shape_.rows * 4, 256) * 256; }
  template <int N>
  void gradient(T* logits, const float* stats, const std::int32_t* targets, float* losses, cudaStream_t stream) {
    gradient_of_rows<T, N><<<blocks_of(shape_.rows), softmax_threads, 0, stream>>>(logits, stats, parts_, targets, losses,
                                                                                   shape_.words, shape_.first_word, scale_);
    check_launch("gradient_of_rows");
  }
  kernels::VocabularyChunk shape_;
  int parts_;
  float scale_;
  Matmul dx_, dw_;
};

Made make_vocabulary_logits(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<VocabularyLogits>(r.inputs[0].dtype, r, s);
}
Made make_vocabulary_loss(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<VocabularyLoss>(r);
}
Made make_vocabulary_loss_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<VocabularyLossGrad>(r.inputs[2].dtype, kernels::dtype_or_f32(r.outputs, 2), r, s);
}

}  // namespace

CONSIST_KERNEL(vocabulary_logits, make_vocabulary_logits);
CONSIST_KERNEL(vocabulary_loss, make_vocabulary_loss);
CONSIST_KERNEL(vocabulary_loss_grad, make_vocabulary_loss_grad);

}  // namespace consist::cuda
