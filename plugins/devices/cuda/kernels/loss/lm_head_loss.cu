// lm_head_loss and lm_head_loss_grad: logits in chunks of tokens, so that they are never stored whole. Loss and dlogits come from
// one kernel that reads each row of logits twice, the second time from the L2 cache.
#include <algorithm>
#include <optional>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/loss/bad_ids.h"
#include "plugins/devices/cuda/kernels/common/kernels.h"
#include "plugins/devices/cuda/kernels/attention/softmax.cuh"
#include "plugins/devices/cuda/kernels/loss/sum_losses.h"
#include "plugins/devices/cuda/matmul.h"

namespace consist::cuda {
namespace {

/// Most bytes of a chunk's logits. Larger chunks read and write the weight's gradient less often.
constexpr std::int64_t chunk_bytes = std::int64_t{5} << 29;

std::int64_t padded(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

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
  softmax_gradient_of_row<N>(l, vocabulary, softmax, scale, target);
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

struct HeadShape {
  std::int64_t tokens, c, vocabulary, chunk;
  DType type, gradient;
  HeadShape(const KernelRequest& r, bool gradients)
      : tokens(r.inputs[0].shape.rows()),
        c(r.inputs[0].shape.last()),
        vocabulary(r.inputs[1].shape[0]),
        type(r.inputs[0].dtype),
        gradient(gradients ? kernels::dtype_or_f32(r.outputs, 2) : type) {
    const std::int64_t chunks = std::max<std::int64_t>(1, (logits_bytes(tokens) + chunk_bytes - 1) / chunk_bytes);
    chunk = (tokens + chunks - 1) / chunks;
    if (chunks > 1) chunk = (chunk + 127) / 128 * 128;  // whole tiles of the products
  }
  std::int64_t logits_bytes(std::int64_t rows) const { return rows * vocabulary * static_cast<std::int64_t>(size_of(type)); }
  std::int64_t rest() const { return tokens % chunk; }
};

/// The products of a chunk of `rows` tokens.
struct ChunkProducts {
  Matmul logits;                         // [rows, vocabulary] = x wᵀ, rounded to T
  std::optional<Matmul> dx, dw, dw_add;  // dlogits w; dlogitsᵀ x, overwriting or adding
  ChunkProducts(const HeadShape& s, std::int64_t rows, bool gradients, MatmulLibrary& library)
      : logits(library, {.m = rows, .n = s.vocabulary, .k = s.c, .transpose_b = true, .a = s.type, .b = s.type, .d = s.type}) {
    if (!gradients) return;
    dx.emplace(library, MatmulShape{.m = rows, .n = s.c, .k = s.vocabulary, .a = s.type, .b = s.type, .d = s.type});
    MatmulShape weight{.m = s.vocabulary, .n = s.c, .k = rows, .transpose_a = true, .a = s.type, .b = s.type, .d = s.gradient};
    dw.emplace(library, weight);
    weight.add = true;
    dw_add.emplace(library, weight);
  }
  std::int64_t workspace_bytes() const {
    std::int64_t bytes = logits.workspace_bytes();
    for (const auto* p : {&dx, &dw, &dw_add}) {
      if (*p) bytes = std::max(bytes, (*p)->workspace_bytes());
    }
    return bytes;
  }
};

class LmHeadLoss final : public Kernel {
 public:
  LmHeadLoss(const KernelRequest& r, const KernelSettings& s, bool gradients)
      : shape_(r, gradients),
        gradients_(gradients),
        scale_(static_cast<float>(r.attributes.real("scale"))),
        whole_(shape_, shape_.chunk, gradients, *s.matmuls) {
    if (shape_.rest() > 0) rest_.emplace(shape_, shape_.rest(), gradients, *s.matmuls);
  }

  std::int64_t workspace_bytes() const override {
    const std::int64_t products = std::max(whole_.workspace_bytes(), rest_ ? rest_->workspace_bytes() : 0);
    return padded(shape_.logits_bytes(shape_.chunk)) + padded(shape_.tokens * 4) + products;
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto stream = static_cast<cudaStream_t>(queue);
    const auto size = static_cast<std::int64_t>(size_of(shape_.type));
    const char* x = in[0].as<char>();                     // T [tokens, c]
    const void* w = in[1].data;                           // T [vocabulary, c]
    const auto* targets = in[2].as<std::int32_t>();       // [tokens]
    char* dx = gradients_ ? out[1].as<char>() : nullptr;  // T [tokens, c], null where nobody wants it
    void* dw = gradients_ ? out[2].data : nullptr;        // G [vocabulary, c], null where the weight is frozen
    bool add = gradients_ && !at(in, 3).absent();

    char* free = static_cast<char*>(workspace);
    void* logits = free;  // T [chunk, vocabulary]
    free += padded(shape_.logits_bytes(shape_.chunk));
    auto* losses = reinterpret_cast<float*>(free);  // [tokens]
    free += padded(shape_.tokens * 4);

    for (std::int64_t first = 0; first < shape_.tokens; first += shape_.chunk) {
      const std::int64_t rows = std::min(shape_.chunk, shape_.tokens - first);
      const ChunkProducts& products = rows == shape_.chunk ? whole_ : *rest_;
      const char* rows_of_x = x + first * shape_.c * size;
      products.logits.enqueue(rows_of_x, w, logits, nullptr, free, stream);
      if (shape_.type == DType::bf16) {
        softmax(static_cast<__nv_bfloat16*>(logits), targets + first, losses + first, rows, shape_.vocabulary, scale_, gradients_,
                bad_targets_.on_device(), stream);
      } else {
        softmax(static_cast<float*>(logits), targets + first, losses + first, rows, shape_.vocabulary, scale_, gradients_,
                bad_targets_.on_device(), stream);
      }
      if (!gradients_) continue;
      if (dx != nullptr) products.dx->enqueue(logits, w, dx + first * shape_.c * size, nullptr, free, stream);
      if (dw == nullptr) continue;
      (add ? *products.dw_add : *products.dw).enqueue(logits, rows_of_x, dw, nullptr, free, stream);
      add = true;
    }
    enqueue_sum_losses(losses, shape_.tokens, scale_, nullptr, out[0].as<float>(), stream);
  }

  void check() override { bad_targets_.check_reports("target", shape_.vocabulary); }

 private:
  HeadShape shape_;
  BadIds bad_targets_;
  bool gradients_;
  float scale_;
  ChunkProducts whole_;
  std::optional<ChunkProducts> rest_;
};

bool known(DType t, const Buffer& w) {
  return (t == DType::f32 || t == DType::bf16) && w.dtype == t;
}

Made make_lm_head_loss(const KernelRequest& r, const KernelSettings& s) {
  if (!known(r.inputs[0].dtype, r.inputs[1])) return nullptr;
  return std::make_unique<LmHeadLoss>(r, s, false);
}
Made make_lm_head_loss_grad(const KernelRequest& r, const KernelSettings& s) {
  const DType g = kernels::dtype_or_f32(r.outputs, 2);
  if (!known(r.inputs[0].dtype, r.inputs[1]) || (g != DType::f32 && g != DType::bf16)) return nullptr;
  return std::make_unique<LmHeadLoss>(r, s, true);
}

}  // namespace

CONSIST_KERNEL(lm_head_loss, make_lm_head_loss);
CONSIST_KERNEL(lm_head_loss_grad, make_lm_head_loss_grad);

}  // namespace consist::cuda
