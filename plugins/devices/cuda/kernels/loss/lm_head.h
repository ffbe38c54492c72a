// The product of an LM head and its gradients in chunks of tokens, so that logits are never stored whole.
#pragma once

#include <algorithm>
#include <optional>

#include "plugins/devices/cuda/kernels/common/kernels.h"
#include "plugins/devices/cuda/matmul.h"

namespace consist::cuda {

struct HeadShape {
  /// Most bytes of a chunk's logits. Larger chunks read and write the weight's gradient less often.
  static constexpr std::int64_t chunk_bytes = std::int64_t{5} << 29;

  std::int64_t tokens, c, vocabulary, chunk;
  DType type;
  explicit HeadShape(const KernelRequest& r)
      : tokens(r.inputs[0].shape.rows()), c(r.inputs[0].shape.last()), vocabulary(r.inputs[1].shape[0]), type(r.inputs[0].dtype) {
    const std::int64_t chunks = std::max<std::int64_t>(1, (logits_bytes(tokens) + chunk_bytes - 1) / chunk_bytes);
    chunk = (tokens + chunks - 1) / chunks;
    if (chunks > 1) chunk = (chunk + 127) / 128 * 128;  // whole tiles of the products
  }
  std::int64_t logits_bytes(std::int64_t rows) const { return rows * vocabulary * static_cast<std::int64_t>(size_of(type)); }
  std::int64_t rest() const { return tokens % chunk; }
  bool is_known(const KernelRequest& r) const { return (type == DType::f32 || type == DType::bf16) && r.inputs[1].dtype == type; }
};

/// The chunks of one instruction. x T[tokens, c], w T[vocabulary, c]; gradients dx T[tokens, c] and dw G[vocabulary, c].
class HeadChunks {
 public:
  struct Gradients {
    void* dx = nullptr;  ///< null where nobody wants it
    void* dw = nullptr;  ///< null where the weight is frozen
    bool add = false;    ///< to what lies in dw
  };

  /// `gradient`: G; absent: no gradients are made.
  HeadChunks(const KernelRequest& r, std::optional<DType> gradient, MatmulLibrary& library)
      : shape_(r), whole_(shape_, shape_.chunk, gradient, library) {
    if (shape_.rest() > 0) rest_.emplace(shape_, shape_.rest(), gradient, library);
  }

  const HeadShape& shape() const { return shape_; }
  std::int64_t workspace_bytes() const {
    return logits_bytes() + std::max(whole_.workspace_bytes(), rest_ ? rest_->workspace_bytes() : 0);
  }

  /// Calls rows(logits T[count, vocabulary], first token, count) for each chunk, which puts the logits' gradients in their place
  /// where gradients are made.
  template <typename Rows>
  void run(const Buffer& x, const Buffer& w, Gradients to, void* workspace, cudaStream_t stream, const Rows& rows) {
    const auto size = static_cast<std::int64_t>(size_of(shape_.type));
    char* const free = static_cast<char*>(workspace) + logits_bytes();
    for (std::int64_t first = 0; first < shape_.tokens; first += shape_.chunk) {
      const std::int64_t count = std::min(shape_.chunk, shape_.tokens - first), at = first * shape_.c * size;
      const ChunkProducts& products = count == shape_.chunk ? whole_ : *rest_;
      const char* const rows_of_x = x.as<char>() + at;
      products.logits.enqueue(rows_of_x, w.data, workspace, nullptr, free, stream);
      rows(workspace, first, count);
      if (to.dx != nullptr) products.dx->enqueue(workspace, w.data, static_cast<char*>(to.dx) + at, nullptr, free, stream);
      if (to.dw == nullptr) continue;
      (to.add ? *products.dw_add : *products.dw).enqueue(workspace, rows_of_x, to.dw, nullptr, free, stream);
      to.add = true;
    }
  }

 private:
  /// The products of a chunk of `rows` tokens.
  struct ChunkProducts {
    Matmul logits;                         // [rows, vocabulary] = x wᵀ, rounded to T
    std::optional<Matmul> dx, dw, dw_add;  // dlogits w; dlogitsᵀ x, overwriting or adding
    ChunkProducts(const HeadShape& s, std::int64_t rows, std::optional<DType> gradient, MatmulLibrary& library)
        : logits(library, {.m = rows, .n = s.vocabulary, .k = s.c, .transpose_b = true, .a = s.type, .b = s.type, .d = s.type}) {
      if (!gradient) return;
      dx.emplace(library, MatmulShape{.m = rows, .n = s.c, .k = s.vocabulary, .a = s.type, .b = s.type, .d = s.type});
      MatmulShape weight{.m = s.vocabulary, .n = s.c, .k = rows, .transpose_a = true, .a = s.type, .b = s.type, .d = *gradient};
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

  std::int64_t logits_bytes() const { return (shape_.logits_bytes(shape_.chunk) + 255) / 256 * 256; }

  HeadShape shape_;
  ChunkProducts whole_;
  std::optional<ChunkProducts> rest_;
};

}  // namespace consist::cuda
