// The product of an LM head and its gradients in chunks of tokens, so that logits are never stored whole.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/attention/softmax.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"

namespace consist::cpu {

struct HeadShape {
  static constexpr std::int64_t chunk_bytes = std::int64_t{16} << 20;  // of f32 logits: stays near the last-level cache

  std::int64_t tokens, c, vocabulary, chunk;
  explicit HeadShape(const KernelRequest& r)
      : tokens(r.inputs[0].shape.rows()), c(r.inputs[0].shape.last()), vocabulary(r.inputs[1].shape[0]) {
    const std::int64_t chunks = std::max<std::int64_t>(1, (tokens * vocabulary * 4 + chunk_bytes - 1) / chunk_bytes);
    chunk = std::max<std::int64_t>(1, (tokens + chunks - 1) / chunks);
  }
  std::int64_t rest() const { return tokens % chunk; }

  void check_targets(const std::int32_t* targets) const {
    for (std::int64_t token = 0; token < tokens; ++token) {
      if (targets[token] >= vocabulary)
        throw DataError("target " + std::to_string(targets[token]) + " is outside of the vocabulary of " +
                        std::to_string(vocabulary));
    }
  }
};

/// The chunks of one instruction. x T[tokens, c], w T[vocabulary, c]; gradients dx T[tokens, c] and dw G[vocabulary, c].
template <typename T, typename G>
class HeadChunks {
 public:
  struct Gradients {
    T* dx = nullptr;   ///< null where nobody wants it
    G* dw = nullptr;   ///< null where the weight is frozen
    bool add = false;  ///< to what lies in dw
  };

  HeadChunks(const KernelRequest& r, const KernelSettings& s, bool gradients)
      : shape_(r), gradients_(gradients), widens_(widens(s)), whole_(shape_, shape_.chunk, gradients, s) {
    if (shape_.rest() > 0) rest_.emplace(shape_, shape_.rest(), gradients, s);
  }

  const HeadShape& shape() const { return shape_; }
  std::int64_t workspace_bytes() const {
    const std::int64_t products = std::max(whole_.workspace_bytes(), rest_ ? rest_->workspace_bytes() : 0);
    return padded(logits_bytes()) + padded(dlogits_bytes()) + padded(wide_bytes(shape_.vocabulary)) +
           padded(wide_bytes(shape_.chunk)) + products;
  }

  /// Calls rows(logits f32[count, vocabulary], dlogits, first token, count) for each chunk, which writes dlogits by
  /// put_gradient(); `dlogits` is null without gradients.
  template <typename Rows>
  void run(const Buffer& x, const Buffer& w, Gradients to, void* workspace, const Rows& rows) {
    char* free = static_cast<char*>(workspace);
    const auto take = [&](std::int64_t bytes) {
      char* const taken = free;
      free += padded(bytes);
      return taken;
    };
    auto* logits = reinterpret_cast<float*>(take(logits_bytes()));  // [chunk, vocabulary]
    char* const apart = take(dlogits_bytes());
    void* dlogits = dlogits_bytes() > 0 ? static_cast<void*>(apart) : logits;  // [chunk, vocabulary]
    char *const wide_w = take(wide_bytes(shape_.vocabulary)), *const wide_x = take(wide_bytes(shape_.chunk));
    const void* weight = readable(w.data, wide_w, shape_.vocabulary);  // [vocabulary, c]
    for (std::int64_t first = 0; first < shape_.tokens; first += shape_.chunk) {
      const std::int64_t count = std::min(shape_.chunk, shape_.tokens - first);
      const void* part = readable(x.as<T>() + first * shape_.c, wide_x, count);
      ChunkProducts& products = count == shape_.chunk ? whole_ : *rest_;
      products.logits.run(part, weight, logits, free);
      rows(static_cast<const float*>(logits), gradients_ ? dlogits : nullptr, first, count);
      if (to.dx != nullptr) products.dx->run(dlogits, weight, to.dx + first * shape_.c, free);
      if (to.dw == nullptr) continue;
      (to.add ? *products.dw_add : *products.dw).run(dlogits, part, to.dw, free);
      to.add = true;
    }
  }

  /// softmax_gradient() of row `row` of the logits, rounded to T.
  void put_gradient(const float* logits, void* dlogits, std::int64_t row, float log_denominator, float factor,
                    std::int64_t target, float of_target) const {
    const std::int64_t n = shape_.vocabulary;
    const float* l = logits + row * n;
    if (!widens_) return softmax_gradient(l, static_cast<T*>(dlogits) + row * n, n, log_denominator, factor, target, of_target);
    float* const to = static_cast<float*>(dlogits) + row * n;
    softmax_gradient(l, to, n, log_denominator, factor, target, of_target);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      T narrow;
      store(narrow, to[i]);
      to[i] = load(narrow);
    }
  }

 private:
  /// Matrices of bf16 for which the processor has no fast instructions are widened once for all chunks and products that read
  /// them; gradients of logits are then kept wide, too, rounded to what bf16 holds.
  static bool widens(const KernelSettings& settings) {
    return sizeof(T) == 2 && !settings.native_bf16;
  }

  /// The products of a chunk of `rows` tokens. Gradients only where wanted.
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
    static DType read(const KernelSettings& settings) { return widens(settings) ? DType::f32 : dtype_of_type<T>(); }
    std::int64_t workspace_bytes() const {
      std::int64_t bytes = logits.workspace_bytes();
      for (const auto* p : {&dx, &dw, &dw_add}) {
        if (*p) bytes = std::max(bytes, (*p)->workspace_bytes());
      }
      return bytes;
    }
  };

  std::int64_t logits_bytes() const {
    return shape_.chunk * shape_.vocabulary * 4;
  }
  std::int64_t dlogits_bytes() const {
    return gradients_ && sizeof(T) == 2 && !widens_ ? shape_.chunk * shape_.vocabulary * 2 : 0;
  }
  std::int64_t wide_bytes(std::int64_t rows) const {
    return widens_ ? rows * shape_.c * 4 : 0;
  }

  /// `rows` rows of c elements as the products read them.
  const void* readable(const void* matrix, char* wide, std::int64_t rows) const {
    if (!widens_) return matrix;
    convert(matrix, dtype_of_type<T>(), wide, DType::f32, rows * shape_.c);
    return wide;
  }

  HeadShape shape_;
  bool gradients_, widens_;
  ChunkProducts whole_;
  std::optional<ChunkProducts> rest_;
};

}  // namespace consist::cpu
