#include "launch/search/reproduce/published.h"

#include <cmath>
#include <cstdlib>

#include "consist/error.h"
#include "core/record/metrics.h"

namespace consist::launch {

Published read_published(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const auto as = [&](double factor, Published::Unit of) { return Published{value * factor, of}; };
  if (end != text.c_str() && std::isfinite(value) && value > 0) {
    if (unit.empty()) return as(1, Published::Unit::tokens);
    if (unit == "T") return as(1e12, Published::Unit::flops);
    if (unit == "s") return as(1, Published::Unit::seconds);
    if (unit == "ms") return as(1e-3, Published::Unit::seconds);
  }
  throw UsageError(
      "--published " + text +
      " is no published speed: give tokens/s per GPU (14451), model TFLOP/s per GPU (744T), or the time of a step (3.8s, "
      "843ms)");
}

std::vector<Counting> countings_of(const ModelSizes& s, std::int64_t sequence, double trained_share) {
  const double causal = model_flops_per_token(s, sequence);
  const double attention = 12.0 * static_cast<double>(s.layers * s.heads * s.head_dim) * static_cast<double>(sequence);
  const double products = 6.0 * static_cast<double>(s.matmul_parameters);
  const double head = 6.0 * static_cast<double>(s.hidden) * static_cast<double>(s.vocabulary);
  return {
      {"causal", "half of attention's square, with the LM head: Consist, Megatron-LM, Megatron-Bridge", causal * trained_share},
      {"full", "all of attention's square, with the LM head: torchtitan, PaLM", (products + attention) * trained_share},
      {"causal-body", "half of attention's square, without the LM head", (causal - head) * trained_share},
      {"parameters", "6 FLOPs for each parameter that a token uses, without attention", products * trained_share}};
}

}  // namespace consist::launch
