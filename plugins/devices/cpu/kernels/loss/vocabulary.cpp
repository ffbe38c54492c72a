// vocabulary_logits, vocabulary_loss and vocabulary_loss_grad: the LM head's loss where ranks hold parts of the vocabulary.
#include "plugins/devices/common/vocabulary.h"

#include <algorithm>
#include <string>
#include <vector>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/attention/softmax.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"

namespace consist::cpu {
namespace {

using kernels::vocabulary_statistics;
using kernels::VocabularyChunk;

/// The target's place among this rank's words, negative if it is not among them.
std::int64_t place_of(std::int32_t target, const VocabularyChunk& chunk) {
  const std::int64_t place = target - chunk.first_word;
  return target >= 0 && place < chunk.words ? place : -1;
}

void check_targets(const std::int32_t* targets, const VocabularyChunk& chunk) {
  for (std::int64_t row = 0; row < chunk.rows; ++row) {
    if (targets[row] < chunk.vocabulary) continue;
    throw DataError("target " + std::to_string(targets[row]) + " is outside of the vocabulary of " +
                    std::to_string(chunk.vocabulary));
  }
}

template <typename T>
class VocabularyLogits final : public Kernel {
 public:
  VocabularyLogits(const KernelRequest& r, const KernelSettings& s)
      : shape_(r, 0),
        logits_(shape_.rows, shape_.words, shape_.c, {dtype_of_type<T>()}, {dtype_of_type<T>(), true}, dtype_of_type<T>(), false,
                s) {}
  std::int64_t workspace_bytes() const override { return logits_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const T* x = in[0].as<T>() + shape_.first * shape_.c;           // [rows, c]
    const auto* targets = in[2].as<std::int32_t>() + shape_.first;  // [rows]
    T* logits = out[0].as<T>();                                     // [rows, words]
    auto* stats = out[1].as<float>();                               // [rows, 3]
    check_targets(targets, shape_);
    logits_.run(x, in[1].data, logits, workspace);
    parallel_for(shape_.rows, [=, shape = shape_](std::int64_t row) {
      const T* l = logits + row * shape.words;
      const RowSoftmax s = row_softmax(l, shape.words);
      const std::int64_t place = place_of(targets[row], shape);
      float* to = stats + row * vocabulary_statistics;
      to[0] = s.largest;
      to[1] = s.sum;
      to[2] = place >= 0 ? load(l[place]) : 0.0F;
    });
  }

 private:
  VocabularyChunk shape_;
  Product logits_;
};

/// One row's softmax over all words, from the statistics [parts, rows, 3] of every part.
struct WholeRow {
  RowSoftmax softmax;
  float at_target;
};
WholeRow whole_row(const float* stats, std::int64_t parts, std::int64_t rows, std::int64_t row) {
  WholeRow whole{{-INFINITY, 0}, 0};
  for (std::int64_t part = 0; part < parts; ++part)
    whole.softmax.largest = std::max(whole.softmax.largest, stats[(part * rows + row) * vocabulary_statistics]);
  for (std::int64_t part = 0; part < parts; ++part) {
    const float* s = stats + (part * rows + row) * vocabulary_statistics;
    whole.softmax.sum += s[1] * std::exp(s[0] - whole.softmax.largest);
    whole.at_target += s[2];
  }
  return whole;
}

double loss_of(const WholeRow& row, std::int32_t target) {
  return target >= 0 ? row.softmax.log_denominator() - row.at_target : 0.0;
}

class VocabularyLoss final : public Kernel {
 public:
  explicit VocabularyLoss(const KernelRequest& r) : scale_(r.attributes.real("scale")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto* targets = in[2].as<std::int32_t>();  // [tokens]
    double loss = 0;
    for (std::size_t chunk = 3; chunk < in.size(); ++chunk) {
      const auto* stats = in[chunk].as<float>();  // [parts, rows, 3]
      const std::int64_t parts = in[chunk].shape[0], rows = in[chunk].shape[1];
      for (std::int64_t row = 0; row < rows; ++row) loss += loss_of(whole_row(stats, parts, rows, row), *targets++);
    }
    *out[0].as<float>() = static_cast<float>(loss * scale_);
  }

 private:
  double scale_;
};

template <typename T, typename G>
class VocabularyLossGrad final : public Kernel {
 public:
  VocabularyLossGrad(const KernelRequest& r, const KernelSettings& s)
      : shape_(r, 2),
        parts_(r.inputs[1].shape[0]),
        scale_(r.attributes.real("scale")),
        dx_(shape_.rows, shape_.c, shape_.words, {type()}, {type()}, type(), false, s),
        dw_(shape_.words, shape_.c, shape_.rows, {type(), true}, {type()}, dtype_of_type<G>(), !at(r.inputs, 7).absent(), s) {}
  std::int64_t workspace_bytes() const override {
    return losses_bytes() + std::max(dx_.workspace_bytes(), dw_.workspace_bytes());
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    T* logits = out[3].as<T>();                                     // [rows, words], dlogits from here on
    const auto* stats = in[1].as<float>();                          // [parts, rows, 3]
    const T* x = in[2].as<T>() + shape_.first * shape_.c;           // [rows, c]
    const auto* targets = in[4].as<std::int32_t>() + shape_.first;  // [rows]
    T* dx = out[1].as<T>();                                         // [tokens, c], null where nobody wants it
    auto* losses = static_cast<double*>(workspace);                 // [rows]
    void* scratch = static_cast<char*>(workspace) + losses_bytes();
    const auto scale = static_cast<float>(scale_);
    parallel_for(shape_.rows, [=, shape = shape_, parts = parts_](std::int64_t row) {
      const WholeRow whole = whole_row(stats, parts, shape.rows, row);
      losses[row] = loss_of(whole, targets[row]);
      T* l = logits + row * shape.words;
      softmax_gradient(l, l, shape.words, static_cast<float>(whole.softmax.log_denominator()), targets[row] >= 0 ? scale : 0.0F,
                       place_of(targets[row], shape), -scale);
    });
    double loss = 0;
    for (std::int64_t row = 0; row < shape_.rows; ++row) loss += losses[row];
    const float before = at(in, 5).absent() ? 0.0F : *in[5].as<float>();
    *out[0].as<float>() = before + static_cast<float>(loss * scale_);
    if (dx != nullptr) dx_.run(logits, in[3].data, dx + shape_.first * shape_.c, scratch);
    if (out[2].data != nullptr) dw_.run(logits, x, out[2].data, scratch);
  }

 private:
  static constexpr DType type() { return dtype_of_type<T>(); }
  std::int64_t losses_bytes() const { return (shape_.rows * 8 + 255) / 256 * 256; }

  VocabularyChunk shape_;
  std::int64_t parts_;
  double scale_;
  Product dx_, dw_;
};

Made make_vocabulary_logits(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<VocabularyLogits>(r.inputs[0].dtype, r, s);
}
Made make_vocabulary_loss(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<VocabularyLoss>(r);
}
Made make_vocabulary_loss_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<VocabularyLossGrad>(r.inputs[0].dtype, kernels::dtype_or_f32(r.outputs, 2), r, s);
}

}  // namespace

CONSIST_KERNEL(vocabulary_logits, make_vocabulary_logits);
CONSIST_KERNEL(vocabulary_loss, make_vocabulary_loss);
CONSIST_KERNEL(vocabulary_loss_grad, make_vocabulary_loss_grad);

}  // namespace consist::cpu
