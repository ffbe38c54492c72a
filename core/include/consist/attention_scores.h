// Attributes of the op attention, its parts and their gradients: the scores before the softmax, and the size of values.
#pragma once

#include <cmath>

#include "consist/program.h"

namespace consist {

/// Scores of a query and a key: s = scale · (q·k), then cap · tanh(s / cap) where there is a cap (Gemma 2, 2024).
struct AttentionScores {
  double scale = 0;  ///< 0: 1/sqrt(head_dim)
  double cap = 0;    ///< 0: none
};

/// 1/sqrt(head_dim), which keeps scores of independent elements at the variance of one element.
inline double default_score_scale(std::int64_t head_dim) {
  return 1 / std::sqrt(static_cast<double>(head_dim));
}

/// Reads the attributes "scale" and "cap"; the scale is never 0. Throws ProgramError if they, or "head_dim", are of another type.
inline AttentionScores attention_scores(const Attributes& attributes) {
  return {attributes.real_or("scale", default_score_scale(attributes.integer("head_dim"))), attributes.real_or("cap", 0)};
}

/// Channels of a head of values, and of the result: the attribute "value_dim", by default "head_dim", those of queries and keys.
inline std::int64_t value_dim_of(const Attributes& attributes) {
  return attributes.integer_or("value_dim", attributes.integer("head_dim"));
}

}  // namespace consist
