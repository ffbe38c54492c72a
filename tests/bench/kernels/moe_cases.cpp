#include "tests/bench/kernels/moe_cases.h"

#include <numeric>
#include <random>

namespace consist::bench {
namespace {

constexpr std::int64_t channels = 2048, hidden = 768, choices = 8;
constexpr int experts = 128;

/// Tokens as a router's choices distribute them to experts.
struct Routed {
  std::vector<std::int32_t> chosen, pairs, counts;  ///< moe_dispatch's input and outputs

  /// Experts' popularities spread like those of a trained router: the most popular gets some times the mean.
  explicit Routed(std::int64_t tokens) : counts(experts) {
    std::mt19937 engine(11);
    std::normal_distribution<double> spread(0, 0.5);
    std::vector<double> popularity(experts);
    for (double& p : popularity) p = spread(engine);
    std::extreme_value_distribution<double> noise;  // the largest sums are a draw without replacement
    std::vector<double> score(experts);
    std::vector<std::int32_t> order(experts);
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::size_t e = 0; e < score.size(); ++e) score[e] = popularity[e] + noise(engine);
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + choices, order.end(), [&](std::int32_t a, std::int32_t b) {
        return score[static_cast<std::size_t>(a)] > score[static_cast<std::size_t>(b)];
      });
      chosen.insert(chosen.end(), order.begin(), order.begin() + choices);
    }
    pairs.resize(chosen.size());
    std::iota(pairs.begin(), pairs.end(), 0);
    const auto expert_of = [&](std::int32_t pair) { return chosen[static_cast<std::size_t>(pair)]; };
    std::stable_sort(pairs.begin(), pairs.end(), [&](std::int32_t a, std::int32_t b) { return expert_of(a) < expert_of(b); });
    for (const std::int32_t e : chosen) ++counts[static_cast<std::size_t>(e)];
  }
};

}  // namespace

std::vector<Case> moe_cases(std::int64_t batch, std::int64_t sequence) {
  const std::int64_t tokens = batch * sequence, rows = tokens * choices;
  const Routed routed(tokens);
  const TensorType of_tokens{DType::bf16, {batch, sequence, channels}}, logits{DType::bf16, {batch, sequence, experts}},
      weights{DType::f32, {batch, sequence, choices}}, chosen{DType::i32, {batch, sequence, choices}},
      statistics{DType::f32, {2 * experts + 1}}, row_weights{DType::f32, {rows}}, pairs{DType::i32, {rows}},
      counts{DType::i32, {experts}};
  const auto of_rows = [&](std::int64_t width) { return TensorType{DType::bf16, {1, rows, width}}; };
  std::vector<Case> cases;
  const auto add = [&](Case made) { cases.push_back(std::move(made)); };

  const Attributes routing{{"choices", choices}, {"normalize", std::int64_t{1}}};
  add({"moe_route", "moe_route", {logits}, routing});
  add({.label = "moe_route_grad",
       .op = "moe_route_grad",
       .inputs = {logits, chosen, weights, statistics},
       .attributes = routing,
       .given = {{1, routed.chosen}}});
  add({.label = "moe_dispatch",
       .op = "moe_dispatch",
       .inputs = {of_tokens, chosen, weights},
       .attributes = {{"rows", rows}, {"experts", std::int64_t{experts}}},
       .given = {{1, routed.chosen}}});
  add({.label = "moe_dispatch_grad",
       .op = "moe_dispatch_grad",
       .inputs = {of_rows(channels), row_weights, pairs, counts, chosen},
       .attributes = {},
       .given = {{2, routed.pairs}, {3, routed.counts}, {4, routed.chosen}}});
  add({.label = "moe_combine",
       .op = "moe_combine",
       .inputs = {of_rows(channels), pairs, counts, chosen},
       .attributes = {},
       .given = {{1, routed.pairs}, {2, routed.counts}, {3, routed.chosen}}});
  add({.label = "moe_combine_grad",
       .op = "moe_combine_grad",
       .inputs = {of_tokens, pairs, counts},
       .attributes = {{"choices", choices}},
       .given = {{1, routed.pairs}, {2, routed.counts}}});
  add({"moe_swiglu", "moe_swiglu", {of_rows(2 * hidden), row_weights}, {}});
  add({"moe_swiglu_grad", "moe_swiglu_grad", {of_rows(hidden), of_rows(2 * hidden), row_weights}, {}});

  // Attributes that 8-bit products need besides.
  const Attributes rows_quantized{
      {"dtype", std::string("e4m3")}, {"tensor", std::string("rows")}, {"transposed", std::int64_t{0}}},
      weights_quantized{{"dtype", std::string("e4m3")}, {"tensor", std::string("weights")}};
  const TensorType amax{DType::f32, {}}, stacked{DType::bf16, {experts, 2 * hidden, channels}};
  const std::vector<std::int32_t> five{0x40a00000};  // the bits of 5.0F
  add({.label = "grouped fp8: moe_dispatch_amax",
       .op = "moe_dispatch_amax",
       .inputs = {of_tokens, chosen, weights},
       .attributes = {{"rows", rows}, {"experts", std::int64_t{experts}}, {"amax_of", std::int64_t{1}}},
       .given = {{1, routed.chosen}}});
  for (const std::int64_t width : {channels, 2 * hidden, hidden})
    add({.label = "grouped fp8: quantize rows of " + std::to_string(width),
         .op = "quantize",
         .inputs = {of_rows(width), amax},
         .attributes = rows_quantized,
         .given = {{1, five}}});
  add({"grouped fp8: amax of gate_up's weights", "amax", {stacked}, {}});
  add({.label = "grouped fp8: quantize gate_up's weights, both orders",
       .op = "quantize",
       .inputs = {stacked, amax},
       .attributes = weights_quantized,
       .given = {{1, five}}});

  struct Layer {
    std::string name;
    std::int64_t in, out;
  };
  const std::vector<std::int32_t> balanced(experts, static_cast<std::int32_t>(rows / experts));
  for (const Layer& l : {Layer{"gate_up", channels, 2 * hidden}, {"down", hidden, channels}}) {
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(l.in) * static_cast<double>(l.out);
    const TensorType one{DType::bf16, {l.out, l.in}}, all{DType::bf16, {experts, l.out, l.in}},
        codes{DType::e4m3, {experts, l.out, l.in}}, turned{DType::e4m3, {l.in, experts, l.out}}, scale{DType::f32, {}};
    const auto rows_of_codes = [&](DType type, std::int64_t width) { return TensorType{type, {1, rows, width}}; };
    const auto gradient = [&](DType type, bool dense) {
      return TensorType{type, dense ? Shape{l.out, l.in} : Shape{experts, l.out, l.in}};
    };
    const std::string forward = "linear, " + l.name, input = "linear_input_grad, " + l.name,
                      weight = "linear_weight_grad, " + l.name;
    add({forward, "linear", {of_rows(l.in), one, std::nullopt}, {}, flops});
    add({input, "linear_input_grad", {of_rows(l.out), one, std::nullopt}, {}, flops});
    add({weight, "linear_weight_grad", {of_rows(l.in), of_rows(l.out), std::nullopt}, {{"dtype", std::string("f32")}}, flops});
    for (const bool even : {true, false}) {
      const auto grouped = [&](const std::string& what, const std::string& op, const Types& inputs, const std::string& dense,
                               const Attributes& attributes = {}) {
        add({.label = what + ", " + l.name + (even ? "" : ", uneven"),
             .op = op,
             .inputs = inputs,
             .attributes = attributes,
             .flops = flops,
             .given = {{inputs.size() == 5 ? 4U : 2U, even ? balanced : routed.counts}},
             .dense = dense});
      };
      for (const bool fast : {true, false}) {
        const Attributes sums{{"dtype", std::string("bf16")}, {"fast_accumulation", std::int64_t{fast ? 1 : 0}}};
        const std::string kind = fast ? " fp8 fast" : " fp8";
        grouped("grouped" + kind, "fp8_grouped_linear", {rows_of_codes(DType::e4m3, l.in), scale, codes, scale, counts}, forward,
                sums);
        grouped("grouped input grad" + kind, "fp8_grouped_linear_input_grad",
                {rows_of_codes(DType::e5m2, l.out), scale, turned, scale, counts}, input, sums);
      }
      grouped("grouped", "grouped_linear", {of_rows(l.in), all, counts}, forward);
      grouped("grouped input grad", "grouped_linear_input_grad", {of_rows(l.out), all, counts}, input);
      for (const DType type : {DType::f32, DType::bf16}) {
        const std::string name(name_of(type));
        grouped("grouped weight grad " + name, "grouped_linear_weight_grad",
                {of_rows(l.in), of_rows(l.out), counts, std::nullopt}, weight, {{"dtype", name}});
        grouped("grouped weight grad " + name + " adds", "grouped_linear_weight_grad",
                {of_rows(l.in), of_rows(l.out), counts, gradient(type, false)}, weight, {{"dtype", name}});
      }
    }
  }
  return cases;
}

}  // namespace consist::bench
