// The vocabulary_* ops and repeat_heads in fp64: what a rank computes of its part, which begins at a word or head of its own.
#pragma once

#include "core/reference/gradients.h"

namespace consist::reference {

/// The tokens of one chunk, and the first word that the rank holds.
struct VocabularyPart {
  std::int64_t first_token, tokens, first_word;
};

/// Rows [first, first + rows) of a tensor seen as a matrix of `columns` columns.
Value rows_of(const Value& value, std::int64_t first, std::int64_t rows, std::int64_t columns);

/// logits [n, words], statistics [1, n, 3]
Values vocabulary_logits(const Value& x, const Value& w, const Value& targets, const VocabularyPart& part);

/// A row's logarithm of the softmax's denominator over all words, and its target's logit, from statistics [parts, n, 3].
struct WholeRow {
  double log_denominator, at_target;
};
WholeRow whole_row(const Value& statistics, std::int64_t row);

/// The loss of the tokens from `first_token` on that `statistics` are of.
double vocabulary_loss(const Value& statistics, const Value& targets, std::int64_t first_token, double scale);

/// dlogits [n, words] of the rank's logits.
Value vocabulary_logits_grad(const Value& logits, const Value& statistics, const Value& targets, const VocabularyPart& part,
                             double scale);

/// Heads of a weight that a rank takes: `heads` of them, the first being repeated head `first` of `of`.
struct RepeatedHeads {
  std::int64_t heads, first, of, head_dim;
  /// The row of the whole weight that row `row` of the rank's part comes from.
  std::int64_t source(std::int64_t row, std::int64_t whole_rows) const {
    const std::int64_t repeats = of / (whole_rows / head_dim);
    return (first + row / head_dim) / repeats * head_dim + row % head_dim;
  }
};

Value repeat_heads(const Value& w, const RepeatedHeads& part);

Value repeat_heads_grad(const Value& dy, const Shape& whole, const RepeatedHeads& part);

}  // namespace consist::reference
