// embedding and embedding_grad. Where ranks hold parts of the table, ids of the others' rows count nothing.
#include <algorithm>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

template <typename T>
class Embedding final : public Kernel {
 public:
  explicit Embedding(const KernelRequest& r)
      : first_row_(r.input_origins.empty() ? 0 : r.input_origins[1][0]),
        vocabulary_(r.attributes.integer_or("vocabulary", r.inputs[1].shape[0])) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto* ids = in[0].as<std::int32_t>();  // [tokens]
    const T* table = in[1].as<T>();              // [vocabulary, c]
    T* y = out[0].as<T>();                       // [tokens, c]
    const std::int64_t tokens = in[0].shape.elements(), rows = in[1].shape[0], c = in[1].shape[1];
    for (std::int64_t token = 0; token < tokens; ++token) {
      if (ids[token] < 0 || ids[token] >= vocabulary_) {
        throw DataError("token id " + std::to_string(ids[token]) + " is outside of the vocabulary of " +
                        std::to_string(vocabulary_));
      }
    }
    parallel_for(tokens, [=, first = first_row_](std::int64_t token) {
      const std::int64_t row = ids[token] - first;
      if (row >= 0 && row < rows)
        std::copy_n(table + row * c, c, y + token * c);
      else
        std::fill_n(y + token * c, c, T{});
    });
  }

 private:
  std::int64_t first_row_, vocabulary_;
};

/// Each thread owns a range of the vocabulary and goes through all tokens in order: no two threads meet, and sums always have the
/// same order.
template <typename T, typename G>
class EmbeddingGrad final : public Kernel {
 public:
  EmbeddingGrad(const KernelRequest& r, const KernelSettings& s)
      : c_(r.outputs[0].shape[1]),
        first_row_(r.output_origins.empty() ? 0 : r.output_origins[0][0]),
        padding_id_(r.attributes.integer_or("padding_id", -1)),
        threads_(s.threads) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto* ids = in[0].as<std::int32_t>();  // [tokens]
    const T* dy = in[1].as<T>();                 // [tokens, c]
    G* dtable = out[0].as<G>();                  // [vocabulary, c]
    const std::int64_t tokens = in[0].shape.elements(), held = out[0].shape[0], c = c_, first_row = first_row_;
    const bool accumulate = !at(in, 2).absent();
    parallel_for(threads_, [=, this](int part) {
      const Part rows = part_of(held, part, threads_);
      if (!accumulate) std::fill(dtable + rows.first * c, dtable + rows.last * c, G{});
      for (std::int64_t token = 0; token < tokens; ++token) {
        const std::int64_t row = ids[token] - first_row;
        if (row < rows.first || row >= rows.last || ids[token] == padding_id_) continue;
        G* to = dtable + row * c;
        for (std::int64_t i = 0; i < c; ++i) store(to[i], load(to[i]) + load(dy[token * c + i]));
      }
    });
  }

 private:
  std::int64_t c_, first_row_, padding_id_;  // padding_id_: its row gets nothing; -1: there is none
  int threads_;
};

Made make_embedding(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Embedding>(r.inputs[1].dtype, r);
}
Made make_embedding_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<EmbeddingGrad>(r.inputs[1].dtype, r.outputs[0].dtype, r, s);
}

}  // namespace

CONSIST_KERNEL(embedding, make_embedding);
CONSIST_KERNEL(embedding_grad, make_embedding_grad);

}  // namespace consist::cpu
