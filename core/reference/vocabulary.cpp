#include "core/reference/vocabulary.h"

#include <cmath>

namespace consist::reference {

Value rows_of(const Value& value, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  const auto begin = value.data.begin() + first * columns;
  return {value.dtype, {1, rows, columns}, std::vector<double>(begin, begin + rows * columns)};
}

Values vocabulary_logits(const Value& x, const Value& w, const Value& targets, const VocabularyPart& part) {
  const std::int64_t words = w.shape[0];
  Value logits = *linear({rows_of(x, part.first_token, part.tokens, x.shape.last()), w})[0];
  logits.shape = {part.tokens, words};
  Value statistics = zeros(DType::f32, {1, part.tokens, 3});
  for (std::int64_t row = 0; row < part.tokens; ++row) {
    double largest = -INFINITY, sum = 0;
    for (std::int64_t word = 0; word < words; ++word) largest = std::max(largest, logits.at(row * words + word));
    for (std::int64_t word = 0; word < words; ++word) sum += std::exp(logits.at(row * words + word) - largest);
    const std::int64_t place = static_cast<std::int64_t>(targets.at(part.first_token + row)) - part.first_word;
    statistics.at(row * 3) = largest;
    statistics.at(row * 3 + 1) = sum;
    if (targets.at(part.first_token + row) >= 0 && place >= 0 && place < words)
      statistics.at(row * 3 + 2) = logits.at(row * words + place);
  }
  return {logits, statistics};
}

WholeRow whole_row(const Value& statistics, std::int64_t row) {
  const std::int64_t parts = statistics.shape[0], rows = statistics.shape[1];
  double largest = -INFINITY, sum = 0, at_target = 0;
  for (std::int64_t part = 0; part < parts; ++part) largest = std::max(largest, statistics.at((part * rows + row) * 3));
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t at = (part * rows + row) * 3;
    sum += statistics.at(at + 1) * std::exp(statistics.at(at) - largest);
    at_target += statistics.at(at + 2);
  }
  return {largest + std::log(sum), at_target};
}

double vocabulary_loss(const Value& statistics, const Value& targets, std::int64_t first_token, double scale) {
  double loss = 0;
  for (std::int64_t row = 0; row < statistics.shape[1]; ++row) {
    if (targets.at(first_token + row) < 0) continue;
    const WholeRow whole = whole_row(statistics, row);
    loss += scale * (whole.log_denominator - whole.at_target);
  }
  return loss;
}

Value vocabulary_logits_grad(const Value& logits, const Value& statistics, const Value& targets, const VocabularyPart& part,
                             double scale) {
  Value dlogits = logits;
  const std::int64_t words = logits.shape[1];
  for (std::int64_t row = 0; row < part.tokens; ++row) {
    const auto target = static_cast<std::int64_t>(targets.at(part.first_token + row));
    const WholeRow whole = whole_row(statistics, row);
    for (std::int64_t word = 0; word < words; ++word) {
      const double p = std::exp(logits.at(row * words + word) - whole.log_denominator);
      dlogits.at(row * words + word) = target < 0 ? 0 : scale * (p - (part.first_word + word == target ? 1 : 0));
    }
  }
  return dlogits;
}

Value repeat_heads(const Value& w, const RepeatedHeads& part) {
  Shape shape = w.shape;
  shape[0] = part.heads * part.head_dim;
  Value y = zeros(w.dtype, shape);
  const std::int64_t columns = w.shape.elements() / w.shape[0];
  for (std::int64_t i = 0; i < y.shape.elements(); ++i)
    y.at(i) = w.at(part.source(i / columns, w.shape[0]) * columns + i % columns);
  return y;
}

Value repeat_heads_grad(const Value& dy, const Shape& whole, const RepeatedHeads& part) {
  Value dw = zeros(dy.dtype, whole);
  const std::int64_t columns = whole.elements() / whole[0];
  for (std::int64_t i = 0; i < dy.shape.elements(); ++i)
    dw.at(part.source(i / columns, whole[0]) * columns + i % columns) += dy.at(i);
  return dw;
}

}  // namespace consist::reference
