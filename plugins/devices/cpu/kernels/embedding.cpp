// embedding and embedding_grad.
#include <algorithm>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/kernels.h"
#include "plugins/devices/cpu/kernels/parallel.h"

namespace consist::cpu {
namespace {

template <typename T>
class Embedding final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto* ids = in[0].as<std::int32_t>();  // [tokens]
    const T* table = in[1].as<T>();              // [vocabulary, c]
    T* y = out[0].as<T>();                       // [tokens, c]
    const std::int64_t tokens = in[0].shape.elements(), vocabulary = in[1].shape[0], c = in[1].shape[1];
    for (std::int64_t token = 0; token < tokens; ++token) {
      if (ids[token] < 0 || ids[token] >= vocabulary) {
        throw DataError("token id " + std::to_string(ids[token]) + " is outside of the vocabulary of " +
                        std::to_string(vocabulary));
      }
    }
    parallel_for(tokens, [=](std::int64_t token) { std::copy_n(table + ids[token] * c, c, y + token * c); });
  }
};

/// Each thread owns a range of the vocabulary and goes through all tokens in order: no two threads meet, and sums always have the
/// same order.
template <typename T, typename G>
class EmbeddingGrad final : public Kernel {
 public:
  EmbeddingGrad(const KernelRequest& r, const KernelSettings& s) : c_(r.outputs[0].shape[1]), threads_(s.threads) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto* ids = in[0].as<std::int32_t>();  // [tokens]
    const T* dy = in[1].as<T>();                 // [tokens, c]
    G* dtable = out[0].as<G>();                  // [vocabulary, c]
    const std::int64_t tokens = in[0].shape.elements(), vocabulary = out[0].shape[0], c = c_;
    const bool accumulate = !at(in, 2).absent();
    parallel_for(threads_, [=, this](int part) {
      const Part rows = part_of(vocabulary, part, threads_);
      if (!accumulate) std::fill(dtable + rows.first * c, dtable + rows.last * c, G{});
      for (std::int64_t token = 0; token < tokens; ++token) {
        if (ids[token] < rows.first || ids[token] >= rows.last) continue;
        G* to = dtable + ids[token] * c;
        for (std::int64_t i = 0; i < c; ++i) store(to[i], load(to[i]) + load(dy[token * c + i]));
      }
    });
  }

 private:
  std::int64_t c_;
  int threads_;
};

}  // namespace

Made make_embedding(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Embedding>(r.inputs[1].dtype);
}
Made make_embedding_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<EmbeddingGrad>(r.inputs[1].dtype, r.outputs[0].dtype, r, s);
}

}  // namespace consist::cpu
