// lm_head_loss and lm_head_loss_grad: logits in chunks of tokens, so that they are never stored whole.
#include <algorithm>
#include <optional>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/parallel.h"
#include "plugins/devices/cpu/kernels/product.h"
#include "plugins/devices/cpu/kernels/softmax.h"

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

/// The products of a chunk of `rows` tokens. Gradients only where wanted.
template <typename T, typename G>
struct ChunkProducts {
  Product logits;                         // [rows, vocabulary] = x wᵀ
  std::optional<Product> dx, dw, dw_add;  // dlogits w; dlogitsᵀ x, overwriting or adding
  ChunkProducts(const HeadShape& s, std::int64_t rows, bool gradients, const KernelSettings& settings)
      : logits(rows, s.vocabulary, s.c, {type()}, {type(), true}, DType::f32, false, settings) {
    if (!gradients) return;
    dx.emplace(rows, s.c, s.vocabulary, Product::Operand{type()}, Product::Operand{type()}, type(), false, settings);
    const DType g = dtype_of_type<G>();
    dw.emplace(s.vocabulary, s.c, rows, Product::Operand{type(), true}, Product::Operand{type()}, g, false, settings);
    dw_add.emplace(s.vocabulary, s.c, rows, Product::Operand{type(), true}, Product::Operand{type()}, g, true, settings);
  }
  static constexpr DType type() { return dtype_of_type<T>(); }
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
      : shape_(r), gradients_(gradients), scale_(r.attributes.real("scale")), whole_(shape_, shape_.chunk, gradients, s) {
    if (shape_.rest() > 0) rest_.emplace(shape_, shape_.rest(), gradients, s);
  }

  std::int64_t workspace_bytes() const override {
    const std::int64_t products = std::max(whole_.workspace_bytes(), rest_ ? rest_->workspace_bytes() : 0);
    return padded(logits_bytes()) + padded(dlogits_bytes()) + padded(shape_.chunk * 8) + products;
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const T* x = in[0].as<T>();                      // [tokens, c]
    const T* w = in[1].as<T>();                      // [vocabulary, c]
    const auto* targets = in[2].as<std::int32_t>();  // [tokens]
    T* dx = gradients_ ? out[1].as<T>() : nullptr;   // [tokens, c]
    G* dw = gradients_ ? out[2].as<G>() : nullptr;   // [vocabulary, c]
    bool add = gradients_ && !at(in, 3).absent();

    char* free = static_cast<char*>(workspace);
    auto* logits = reinterpret_cast<float*>(free);  // [chunk, vocabulary]
    free += padded(logits_bytes());
    T* dlogits = dlogits_bytes() > 0 ? reinterpret_cast<T*>(free) : reinterpret_cast<T*>(logits);  // in place for f32
    free += padded(dlogits_bytes());
    auto* losses = reinterpret_cast<double*>(free);  // [chunk]
    free += padded(shape_.chunk * 8);

    for (std::int64_t token = 0; token < shape_.tokens; ++token) {
      if (targets[token] >= shape_.vocabulary) {
        throw DataError("target " + std::to_string(targets[token]) + " is outside of the vocabulary of " +
                        std::to_string(shape_.vocabulary));
      }
    }
    double loss = 0;
    for (std::int64_t first = 0; first < shape_.tokens; first += shape_.chunk) {
      const std::int64_t rows = std::min(shape_.chunk, shape_.tokens - first);
      ChunkProducts<T, G>& products = rows == shape_.chunk ? whole_ : *rest_;
      products.logits.run(x + first * shape_.c, w, logits, free);
      softmax(logits, targets + first, rows, losses, gradients_ ? dlogits : nullptr);
      for (std::int64_t row = 0; row < rows; ++row) loss += losses[row];
      if (!gradients_) continue;
      products.dx->run(dlogits, w, dx + first * shape_.c, free);
      (add ? *products.dw_add : *products.dw).run(dlogits, x + first * shape_.c, dw, free);
      add = true;
    }
    *out[0].as<float>() = static_cast<float>(loss * scale_);
  }

 private:
  std::int64_t logits_bytes() const { return shape_.chunk * shape_.vocabulary * 4; }
  std::int64_t dlogits_bytes() const { return gradients_ && sizeof(T) == 2 ? shape_.chunk * shape_.vocabulary * 2 : 0; }

  /// Losses of the rows, and scale·(softmax − one-hot) as dlogits. A row whose target is negative counts nothing.
  void softmax(const float* logits, const std::int32_t* targets, std::int64_t rows, double* losses, T* dlogits) const {
    const std::int64_t n = shape_.vocabulary;
    const auto scale = static_cast<float>(scale_);
    parallel_for(rows, [=](std::int64_t row) {
      const float* l = logits + row * n;
      const std::int32_t target = targets[row];
      const bool counts = target >= 0;
      const double log_denominator = row_softmax(l, n).log_denominator();
      losses[row] = counts ? log_denominator - l[target] : 0.0;
      if (dlogits == nullptr) return;
      softmax_gradient(l, dlogits + row * n, n, static_cast<float>(log_denominator), counts ? scale : 0.0F, target);
    });
  }

  HeadShape shape_;
  bool gradients_;
  double scale_;
  ChunkProducts<T, G> whole_;
  std::optional<ChunkProducts<T, G>> rest_;
};

}  // namespace

Made make_lm_head_loss(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LmHeadLoss>(r.inputs[0].dtype, DType::f32, r, s, false);
}
Made make_lm_head_loss_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LmHeadLoss>(r.inputs[0].dtype, r.outputs[2].dtype, r, s, true);
}

}  // namespace consist::cpu
