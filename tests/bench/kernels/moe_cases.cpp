#include "tests/bench/kernels/moe_cases.h"

#include <numeric>
#include <random>
#include <utility>

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

/// Tensors of a layer of experts, and the cases so far.
struct Layer {
  Layer(std::int64_t batch, std::int64_t sequence) : tokens(batch * sequence), batch(batch), sequence(sequence) {}

  std::int64_t tokens, batch, sequence, rows = tokens * choices;
  Routed routed{tokens};
  TensorType of_tokens{DType::bf16, {batch, sequence, channels}}, logits{DType::bf16, {batch, sequence, experts}},
      weights{DType::f32, {batch, sequence, choices}}, chosen{DType::i32, {batch, sequence, choices}},
      statistics{DType::f32, {2 * experts + 1}}, row_weights{DType::f32, {rows}}, pairs{DType::i32, {rows}},
      counts{DType::i32, {experts}};
  std::vector<Case> cases;

  TensorType of_rows(std::int64_t width) const { return TensorType{DType::bf16, {1, rows, width}}; }
  void add(Case made) { cases.push_back(std::move(made)); }
  void add_routing();
  void add_quantization();
  void add_products(const std::string& name, std::int64_t in, std::int64_t out);
  void add_grouped(const std::string& name, std::int64_t in, std::int64_t out, double flops, bool even);
};

void Layer::add_routing() {
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
}

/// Adds what 8-bit products need besides.
void Layer::add_quantization() {
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
}

/// Adds products of the linear `name`: of one dense weight, and of the experts' weights.
void Layer::add_products(const std::string& name, std::int64_t in, std::int64_t out) {
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  const TensorType one{DType::bf16, {out, in}};
  add({"linear, " + name, "linear", {of_rows(in), one, std::nullopt}, {}, flops});
  add({"linear_input_grad, " + name, "linear_input_grad", {of_rows(out), one, std::nullopt}, {}, flops});
  add({"linear_weight_grad, " + name,
       "linear_weight_grad",
       {of_rows(in), of_rows(out), std::nullopt},
       {{"dtype", std::string("f32")}},
       flops});
  for (const bool even : {true, false}) add_grouped(name, in, out, flops, even);
}

/// `even`: every expert has as many rows.
void Layer::add_grouped(const std::string& name, std::int64_t in, std::int64_t out, double flops, bool even) {
  const TensorType all{DType::bf16, {experts, out, in}}, codes{DType::e4m3, {experts, out, in}},
      turned{DType::e4m3, {in, experts, out}}, scale{DType::f32, {}};
  const std::string forward = "linear, " + name, input = "linear_input_grad, " + name, weight = "linear_weight_grad, " + name;
  const std::vector<std::int32_t> balanced(experts, static_cast<std::int32_t>(rows / experts));
  const auto rows_of_codes = [&](DType type, std::int64_t width) { return TensorType{type, {1, rows, width}}; };
  const auto grouped = [&](const std::string& what, const std::string& op, const Types& inputs, const std::string& dense,
                           const Attributes& attributes = {}) {
    add({.label = what + ", " + name + (even ? "" : ", uneven"),
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
    grouped("grouped" + kind, "fp8_grouped_linear", {rows_of_codes(DType::e4m3, in), scale, codes, scale, counts}, forward, sums);
    grouped("grouped input grad" + kind, "fp8_grouped_linear_input_grad",
            {rows_of_codes(DType::e5m2, out), scale, turned, scale, counts}, input, sums);
  }
  grouped("grouped", "grouped_linear", {of_rows(in), all, counts}, forward);
  grouped("grouped input grad", "grouped_linear_input_grad", {of_rows(out), all, counts}, input);
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string dtype(name_of(type));
    const TensorType gradient{type, {experts, out, in}};
    grouped("grouped weight grad " + dtype, "grouped_linear_weight_grad", {of_rows(in), of_rows(out), counts, std::nullopt},
            weight, {{"dtype", dtype}});
    grouped("grouped weight grad " + dtype + " adds", "grouped_linear_weight_grad", {of_rows(in), of_rows(out), counts, gradient},
            weight, {{"dtype", dtype}});
  }
}

}  // namespace

std::vector<Case> moe_cases(std::int64_t batch, std::int64_t sequence) {
  Layer layer(batch, sequence);
  layer.add_routing();
  layer.add_quantization();
  layer.add_products("gate_up", channels, 2 * hidden);
  layer.add_products("down", hidden, channels);
  return std::move(layer.cases);
}

}  // namespace consist::bench
