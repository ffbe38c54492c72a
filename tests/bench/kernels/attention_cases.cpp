#include "tests/bench/kernels/attention_cases.h"

namespace consist::bench {
namespace {

std::vector<std::int32_t> starts_of(const AttentionSizes& s, std::int64_t document) {
  std::vector<std::int32_t> starts;
  for (std::int64_t token = 0; token < s.batch * s.sequence; ++token) {
    const std::int64_t position = token % s.sequence;
    starts.push_back(static_cast<std::int32_t>(position - position % document));
  }
  return starts;
}

}  // namespace

std::vector<Case> attention_cases(const AttentionSizes& s, DType dtype) {
  const TensorType queries{dtype, {s.batch, s.sequence, s.heads * s.dim}}, keys{dtype, {s.batch, s.sequence, s.kv_heads * s.dim}},
      lse{DType::f32, {s.batch, s.heads, s.sequence}}, starts{DType::i32, {s.batch, s.sequence}};
  std::vector<Case> cases;
  const auto add = [&](const std::string& label, std::int64_t document, std::int64_t window) {
    const double longest = static_cast<double>(document > 0 ? document : s.sequence), seen = static_cast<double>(window);
    // Pairs of a query and a key that it sees, a sequence: triangles, less the triangle in front of the windows.
    const double of_one = (longest * longest - (window > 0 ? (longest - seen) * (longest - seen) : 0)) / 2,
                 pairs = of_one * static_cast<double>(s.sequence) / longest * static_cast<double>(s.batch * s.heads * s.dim);
    const std::optional<TensorType> documents = document > 0 ? std::optional(starts) : std::nullopt;
    Attributes attributes{{"head_dim", s.dim}};
    if (window > 0) attributes.set("window", window);
    std::map<std::size_t, std::vector<std::int32_t>> forward, backward;
    if (document > 0) forward[3] = backward[6] = starts_of(s, document);
    cases.push_back({.label = "attention, " + label,
                     .op = "attention",
                     .inputs = {queries, keys, keys, documents},
                     .attributes = attributes,
                     .flops = 4 * pairs,
                     .given = forward});
    cases.push_back({.label = "attention_grad, " + label,
                     .op = "attention_grad",
                     .inputs = {queries, queries, keys, keys, queries, lse, documents},
                     .attributes = attributes,
                     .flops = 10 * pairs,
                     .given = backward});
  };
  add("one document", s.sequence, 0);
  add("documents of a quarter", s.sequence / 4, 0);
  add("documents of an eighth", s.sequence / 8, 0);
  add("windows of a quarter", 0, s.sequence / 4);
  add("windows of a quarter in one document", s.sequence, s.sequence / 4);
  return cases;
}

}  // namespace consist::bench
