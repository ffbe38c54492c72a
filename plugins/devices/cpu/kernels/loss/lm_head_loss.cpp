// lm_head_loss and lm_head_loss_grad: logits in chunks of tokens, so that they are never stored whole.
#include <algorithm>
#include <optional>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/attention/softmax.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"

namespace consist::cpu {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{16} << 20;  // of f32 logits: stays near the last-level cache

std::int64_t padded(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

struct HeadShape {
  std::int64_t tokens, c, vocabulary, chunk;
  explicit HeadShape(const KernelRequest& r)
      : tokens(r.inputs[0].shape.rows()), c(r.inputs[0].shape.last()), vocabulary(r.inputs[1].shape[0]) {
    const std::int64_t chunks = std::max<std::int64_t>(1, (tokens * vocabulary * 4 + chunk_bytes - 1) / chunk_bytes);
    chunk = std::max<std::int64_t>(1, (tokens + chunks - 1) / chunks);
  }
  std::int64_t rest() const { return tokens % chunk; }
};

/// Matrices of bf16 for which the processor has no fast instructions are widened once for all chunks and products that read them;
/// gradients of logits are then kept wide, too, rounded to what bf16 holds.
template <typename T>
bool widens(const KernelSettings& settings) {
  return sizeof(T) == 2 && !settings.native_bf16;
}

/// The products of a chunk of `rows` tokens. Gradients only where wanted.
template <typename T, typename G>
struct ChunkProducts {
  Product logits;                         // [rows, vocabulary] = x wᵀ
  std::optional<Product> dx, dw, dw_add;  // dlogits w; dlogitsᵀ x, overwriting or adding
  ChunkProducts(const HeadShape& s, std::int64_t rows, bool gradients, const KernelSettings& settings)
      : logits(rows, s.vocabulary, s.c, {read(settings)}, {read(settings), true}, DType::f32, false, settings) {
    if (!gradients) return;
    const Product::Operand plain{read(settings)}, transposed{read(settings), true};
    dx.emplace(rows, s.c, s.vocabulary, plain, plain, dtype_of_type<T>(), false, settings);
    const DType g = dtype_of_type<G>();
    dw.emplace(s.vocabulary, s.c, rows, transposed, plain, g, false, settings);
    dw_add.emplace(s.vocabulary, s.c, rows, transposed, plain, g, true, settings);
  }
  /// The dtype of what the products read.
  static DType read(const KernelSettings& settings) { return widens<T>(settings) ? DType::f32 : dtype_of_type<T>(); }
  std::int64_t workspace_bytes() const {
    std::int64_t bytes = logits.workspace_bytes();
    for (const auto* p : {&dx, &dw, &dw_add}) {
      if (*p) bytes = std::max(bytes, (*p)->workspace_bytes());
    }
    return bytes;
  }
};

template <typename T, typename G>
class LmHeadLoss final : public Kernel {
 public:
  LmHeadLoss(const KernelRequest& r, const KernelSettings& s, bool gradients)
      : shape_(r),
        gradients_(gradients),
        widens_(widens<T>(s)),
        scale_(r.attributes.real("scale")),
        whole_(shape_, shape_.chunk, gradients, s) {
    if (shape_.rest() > 0) rest_.emplace(shape_, shape_.rest(), gradients, s);
  }

  std::int64_t workspace_bytes() const override {
    const std::int64_t products = std::max(whole_.workspace_bytes(), rest_ ? rest_->workspace_bytes() : 0);
    return padded(logits_bytes()) + padded(dlogits_bytes()) + padded(shape_.chunk * 8) + padded(wide_bytes(shape_.vocabulary)) +
           padded(wide_bytes(shape_.chunk)) + products;
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const T* x = in[0].as<T>();                      // [tokens, c]
    const auto* targets = in[2].as<std::int32_t>();  // [tokens]
    T* dx = gradients_ ? out[1].as<T>() : nullptr;   // [tokens, c], null where nobody wants it
    G* dw = gradients_ ? out[2].as<G>() : nullptr;   // [vocabulary, c], null where the weight is frozen
    bool add = gradients_ && !at(in, 3).absent();

    char* free = static_cast<char*>(workspace);
    const auto take = [&](std::int64_t bytes) {
      char* const taken = free;
      free += padded(bytes);
      return taken;
    };
    auto* logits = reinterpret_cast<float*>(take(logits_bytes()));  // [chunk, vocabulary]
    char* const apart = take(dlogits_bytes());
    void* dlogits = dlogits_bytes() > 0 ? static_cast<void*>(apart) : logits;  // [chunk, vocabulary]
    auto* losses = reinterpret_cast<double*>(take(shape_.chunk * 8));          // [chunk]
    char *const wide_w = take(wide_bytes(shape_.vocabulary)), *const wide_x = take(wide_bytes(shape_.chunk));

    for (std::int64_t token = 0; token < shape_.tokens; ++token) {
      if (targets[token] >= shape_.vocabulary) {
        throw DataError("target " + std::to_string(targets[token]) + " is outside of the vocabulary of " +
                        std::to_string(shape_.vocabulary));
      }
    }
    const void* w = readable(in[1].data, wide_w, shape_.vocabulary);  // [vocabulary, c]
    double loss = 0;
    for (std::int64_t first = 0; first < shape_.tokens; first += shape_.chunk) {
      const std::int64_t rows = std::min(shape_.chunk, shape_.tokens - first);
      const void* part = readable(x + first * shape_.c, wide_x, rows);
      ChunkProducts<T, G>& products = rows == shape_.chunk ? whole_ : *rest_;
      products.logits.run(part, w, logits, free);
      softmax(logits, targets + first, rows, losses, gradients_ ? dlogits : nullptr);
      for (std::int64_t row = 0; row < rows; ++row) loss += losses[row];
      if (!gradients_) continue;
      if (dx != nullptr) products.dx->run(dlogits, w, dx + first * shape_.c, free);
      if (dw == nullptr) continue;
      (add ? *products.dw_add : *products.dw).run(dlogits, part, dw, free);
      add = true;
    }
    *out[0].as<float>() = static_cast<float>(loss * scale_);
  }

 private:
  std::int64_t logits_bytes() const { return shape_.chunk * shape_.vocabulary * 4; }
  std::int64_t dlogits_bytes() const {
    return gradients_ && sizeof(T) == 2 && !widens_ ? shape_.chunk * shape_.vocabulary * 2 : 0;
  }
  std::int64_t wide_bytes(std::int64_t rows) const { return widens_ ? rows * shape_.c * 4 : 0; }

  /// `rows` rows of c elements as the products read them.
  const void* readable(const void* matrix, char* wide, std::int64_t rows) const {
    if (!widens_) return matrix;
    convert(matrix, dtype_of_type<T>(), wide, DType::f32, rows * shape_.c);
    return wide;
  }

  /// Losses of the rows, and scale·(softmax − one-hot) as dlogits. A row whose target is negative counts nothing.
  void softmax(const float* logits, const std::int32_t* targets, std::int64_t rows, double* losses, void* dlogits) const {
    const std::int64_t n = shape_.vocabulary;
    const auto scale = static_cast<float>(scale_);
    const bool wide = widens_;
    parallel_for(rows, [=](std::int64_t row) {
      const float* l = logits + row * n;
      const std::int32_t target = targets[row];
      const bool counts = target >= 0;
      const double log_denominator = row_softmax(l, n).log_denominator();
      losses[row] = counts ? log_denominator - l[target] : 0.0;
      if (dlogits == nullptr) return;
      const auto log = static_cast<float>(log_denominator);
      if (!wide) {
        softmax_gradient(l, static_cast<T*>(dlogits) + row * n, n, log, counts ? scale : 0.0F, target);
        return;
      }
      float* const to = static_cast<float*>(dlogits) + row * n;
      softmax_gradient(l, to, n, log, counts ? scale : 0.0F, target);
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) {
        T narrow;
        store(narrow, to[i]);
        to[i] = load(narrow);
      }
    });
  }

  HeadShape shape_;
  bool gradients_, widens_;
  double scale_;
  ChunkProducts<T, G> whole_;
  std::optional<ChunkProducts<T, G>> rest_;
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
