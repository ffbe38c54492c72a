// A published speed, and what it means in tokens/s.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/model.h"

namespace consist::launch {

struct Published {
  enum class Unit : unsigned char { tokens, flops, seconds };  ///< tokens/s per GPU, model FLOP/s per GPU, seconds of a step
  double value = 0;
  Unit unit = Unit::tokens;
};

/// "14451" (tokens/s per GPU), "744T" (model TFLOP/s per GPU), "3.8s" or "843ms" (a step). Throws UsageError for anything else,
/// and for what is not above 0.
Published read_published(const std::string& text);

/// A way of counting a model's FLOPs.
struct Counting {
  std::string name;   ///< of --counting: "causal"
  std::string words;  ///< "half of attention's square, with the LM head: Megatron-LM, ..."
  double flops = 0;   ///< of forward and backward, per token
};

/// The ways that published figures use, the one of docs/metrics.md first. `trained_share`: of the FLOPs that a run which freezes
/// parameters does, fraction, 0..1.
std::vector<Counting> countings_of(const ModelSizes& sizes, std::int64_t sequence, double trained_share);

}  // namespace consist::launch
