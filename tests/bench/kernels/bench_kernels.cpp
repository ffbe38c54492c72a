// bench_kernels [--device cuda] [--model qwen3-0.6b|llama-3-8b|qwen3-30b-a3b] [--batch 4] [--sequence 4096] [--only TEXT]
//               [--context RANKS [--machine NAME|FILE]]
//
// --context times attention as each rank of cp has it, instead of all else, and adds up what each does; with --machine beside
// what that machine file predicts. Fails where the slowest rank of a kind takes more than 5% longer than the fastest: it is
// waited for.
//
// Time of each kernel of a device at the shapes of a model, as part of a step that the device prepared: many launches in a row,
// over several sets of tensors where one would fit into a cache. Bytes count each input read once and each output written once,
// of tables only the rows in use. Beside them stands the rate of a plain copy.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/plan/machine_choice.h"
#include "core/plugin/host.h"
#include "tests/bench/kernels/attention_cases.h"
#include "tests/bench/kernels/bench.h"
#include "tests/bench/kernels/context_cases.h"
#include "tests/bench/kernels/moe_cases.h"

namespace {

using namespace consist;
using bench::Bench;
using bench::Case;

struct Model {
  std::string name;
  std::int64_t channels, heads, kv_heads, dim, hidden, vocabulary;
  bool qk_norm;
  DType gradient;  ///< of parameters; f32 goes with f32 masters and moments, bf16 with states in bf16 and stochastic rounding
};
const Model models[] = {
    {"qwen3-0.6b", 1024, 16, 8, 128, 3072, 151'936, true, DType::f32},
    {"llama-3-8b", 4096, 32, 8, 128, 14'336, 128'256, false, DType::bf16},
};

struct Settings {
  std::string device = "cuda", model, only, machine;
  std::int64_t batch = 4, sequence = 4096, context = 0;
};

/// Tensors of a model in dtype `t`, and the cases so far.
struct ModelCases {
  const Model& m;
  const Settings& s;
  DType t;
  std::int64_t tokens = s.batch * s.sequence, size = static_cast<std::int64_t>(size_of(t)),
               gradient_size = static_cast<std::int64_t>(size_of(m.gradient));
  std::int64_t c = m.channels, q = m.heads * m.dim, k = m.kv_heads * m.dim;
  std::string g{name_of(m.gradient)};
  TensorType ids{DType::i32, {s.batch, s.sequence}};
  std::vector<Case> cases;

  TensorType rows(std::int64_t width) const { return {t, {s.batch, s.sequence, width}}; }
  TensorType gradient(std::initializer_list<std::int64_t> extents) const { return {m.gradient, Shape(extents)}; }
  void add(Case made) { cases.push_back(std::move(made)); }
  void add_embedding_and_norms();
  void add_rope();
  void add_attention();
  void add_products();
  void add_expressions();
  void add_optimizer();
};

void ModelCases::add_embedding_and_norms() {
  add({"embedding", "embedding", {ids, TensorType{t, {m.vocabulary, c}}}, {}, 0, tokens * (4 + 2 * c * size), m.vocabulary});
  add({"embedding_grad, sets",
       "embedding_grad",
       {ids, rows(c), std::nullopt},
       {{"dtype", g}, {"vocabulary", m.vocabulary}},
       0,
       tokens * (4 + c * size) + m.vocabulary * c * gradient_size,
       m.vocabulary});
  add({"embedding_grad, adds",
       "embedding_grad",
       {ids, rows(c), gradient({m.vocabulary, c})},
       {{"dtype", g}, {"vocabulary", m.vocabulary}},
       0,
       tokens * (4 + c * size + 2 * c * gradient_size),
       m.vocabulary});
  add({"rms_norm", "rms_norm", {rows(c), std::nullopt, TensorType{t, {c}}}, {{"epsilon", 1e-6}}});
  add({"rms_norm + residual", "rms_norm", {rows(c), rows(c), TensorType{t, {c}}}, {{"epsilon", 1e-6}}});
  add({"rms_norm_grad, sets dx",
       "rms_norm_grad",
       {rows(c), rows(c), TensorType{DType::f32, {s.batch, s.sequence}}, TensorType{t, {c}}, std::nullopt, gradient({c})},
       {{"dtype", g}}});
  for (const bool apart : {false, true}) {
    add({apart ? "rms_norm_grad, adds apart" : "rms_norm_grad, adds to dx",
         "rms_norm_grad",
         {rows(c), rows(c), TensorType{DType::f32, {s.batch, s.sequence}}, TensorType{t, {c}}, rows(c), gradient({c})},
         {{"dtype", g}},
         0,
         tokens * c * size * 4,
         0,
         apart});
  }
}

void ModelCases::add_rope() {
  const TensorType table{DType::f32, {s.sequence, m.dim}};
  for (const std::int64_t width : {q, k}) {
    const std::string of = width == q ? ", q" : ", k";
    const std::optional<TensorType> w = m.qk_norm ? std::optional(TensorType{t, {m.dim}}) : std::nullopt;
    add({"rope" + std::string(m.qk_norm ? " + norm" : "") + of,
         "rope",
         {rows(width), table, w},
         {{"head_dim", m.dim}, {"epsilon", 1e-6}}});
    if (m.qk_norm) {
      add({"rope_grad + norm" + of,
           "rope_grad",
           {rows(width), table, rows(width), TensorType{DType::f32, {s.batch, s.sequence, width / m.dim}}, w, gradient({m.dim})},
           {{"head_dim", m.dim}, {"dtype", g}}});
    } else {
      add({"rope_grad" + of, "rope_grad", {rows(width), table}, {{"head_dim", m.dim}}});
    }
  }
}

void ModelCases::add_attention() {
  const TensorType lse{DType::f32, {s.batch, m.heads, s.sequence}};
  const double pairs = static_cast<double>(s.batch * m.heads * m.dim) * static_cast<double>(s.sequence) *
                       static_cast<double>(s.sequence) / 2;  // causal
  add({"attention", "attention", {rows(q), rows(k), rows(k)}, {{"head_dim", m.dim}}, 4 * pairs});
  add({"attention_grad",
       "attention_grad",
       {rows(q), rows(q), rows(k), rows(k), rows(q), lse},
       {{"head_dim", m.dim}},
       10 * pairs});
  for (Case& hidden : bench::attention_cases({s.batch, s.sequence, m.heads, m.kv_heads, m.dim}, t)) add(std::move(hidden));
}

void ModelCases::add_products() {
  add({"swiglu", "swiglu", {rows(m.hidden), rows(m.hidden)}, {}});
  add({"swiglu_grad", "swiglu_grad", {rows(m.hidden), rows(m.hidden), rows(m.hidden)}, {}});
  add({"add", "add", {rows(c), rows(c)}, {}, 0, tokens * c * size * 3});
  add({"cast f32 to bf16", "cast", {TensorType{DType::f32, {m.hidden * 8, c}}}, {{"dtype", std::string("bf16")}}});
  add({"linear_bias_grad, q", "linear_bias_grad", {rows(q), gradient({q})}, {{"dtype", g}}});
  const double product = 2.0 * static_cast<double>(tokens) * static_cast<double>(c) * static_cast<double>(m.hidden);
  add({"linear, up", "linear", {rows(c), TensorType{t, {m.hidden, c}}, std::nullopt}, {}, product});
  add({"linear_input_grad, up", "linear_input_grad", {rows(m.hidden), TensorType{t, {m.hidden, c}}, std::nullopt}, {}, product});
  add({"linear_weight_grad, up, adds",
       "linear_weight_grad",
       {rows(c), rows(m.hidden), gradient({m.hidden, c})},
       {{"dtype", g}},
       product});
  add({"lm_head_loss_grad",
       "lm_head_loss_grad",
       {rows(c), TensorType{t, {m.vocabulary, c}}, ids, std::nullopt},
       {{"scale", 1e-4}, {"dtype", g}},
       6.0 * static_cast<double>(tokens) * static_cast<double>(c) * static_cast<double>(m.vocabulary),
       0,
       m.vocabulary});
}

/// Adds expressions beside the kernels that compute the same.
void ModelCases::add_expressions() {
  const auto map = [&](const char* name, const char* f, std::vector<std::optional<TensorType>> inputs) {
    add({name, "map", std::move(inputs), {{"f", std::string(f)}}});
  };
  map("map, as swiglu", "a*sigmoid(a)*b", {rows(m.hidden), rows(m.hidden)});
  map("map, as swiglu_grad", "t0=sigmoid(a);c*b*t0*(1+a*(1-t0));c*a*t0", {rows(m.hidden), rows(m.hidden), rows(m.hidden)});
  map("map, as a residual's add", "a+b", {rows(c), rows(c)});
  map("map, as the scale of rms_norm", "a*b[r]*c[c]",
      {rows(c), TensorType{DType::f32, {s.batch, s.sequence, 1}}, TensorType{t, {c}}});
  map("map, gelu_tanh", "gelu_tanh(a)*b", {rows(m.hidden), rows(m.hidden)});
}

/// Adds updates of the parameters of four layers in one instruction.
void ModelCases::add_optimizer() {
  Types squares, states{TensorType{DType::f32, {4}}, TensorType{DType::f32, {}}};
  std::int64_t parameters = 0;
  for (int layer = 0; layer < 4; ++layer) {
    for (const Shape& shape : {Shape{q, c}, Shape{k, c}, Shape{k, c}, Shape{c, q}, Shape{m.hidden, c}, Shape{m.hidden, c},
                               Shape{c, m.hidden}, Shape{c}, Shape{c}}) {
      parameters += shape.elements();
      squares.push_back(TensorType{m.gradient, shape});
      states.push_back(TensorType{t, shape});
      states.push_back(TensorType{m.gradient, shape});
      states.push_back(m.gradient == DType::f32 && t != DType::f32 ? std::optional(TensorType{DType::f32, shape}) : std::nullopt);
      states.push_back(TensorType{m.gradient, shape});
      states.push_back(TensorType{m.gradient, shape});
    }
  }
  const bool mastered = m.gradient == DType::f32 && t != DType::f32;
  add({"sum_of_squares", "sum_of_squares", squares, {}});
  add({mastered          ? "adamw, f32 masters"
       : t == DType::f32 ? "adamw, f32"
                         : "adamw, stochastic rounding",
       "adamw",
       states,
       {{"beta1", 0.9},
        {"beta2", 0.95},
        {"epsilon", 1e-8},
        {"weight_decay", 0.1},
        {"stochastic_rounding", std::int64_t{m.gradient == DType::bf16}},
        {"seed", std::int64_t{1}}},
       0,
       parameters * (mastered ? size : 2 * size) + parameters * gradient_size * 5 + (mastered ? parameters * 8 : 0)});
}

std::vector<Case> cases_of(const Model& m, const Settings& s, DType t) {
  ModelCases all{m, s, t};
  all.add_embedding_and_norms();
  all.add_rope();
  all.add_attention();
  all.add_products();
  all.add_expressions();
  all.add_optimizer();
  return std::move(all.cases);
}

/// Measures the attention of each rank of a context axis, and its sum. Returns false if ranks of one kind differ too much.
bool run_context(const Settings& settings, Bench& bench, double copy_rate) {
  std::shared_ptr<const Machine> machine;
  if (!settings.machine.empty()) machine = std::make_shared<Machine>(parse_machine(settings.machine));
  constexpr double most_apart = 0.05;
  bool balanced = true;
  for (const Model& m : models) {
    if (!settings.model.empty() && settings.model != m.name) continue;
    std::map<std::string, std::pair<double, double>> extremes;  // by kind: the fastest rank's seconds, the slowest one's
    std::printf("\n%s, bf16, attention of one layer over %lld ranks, batch %lld, sequence %lld\n", m.name.c_str(),
                static_cast<long long>(settings.context), static_cast<long long>(settings.batch),
                static_cast<long long>(settings.sequence));
    for (const bench::ContextRank& rank : bench::context_ranks({settings.batch, settings.sequence, m.heads, m.kv_heads, m.dim},
                                                               DType::bf16, static_cast<int>(settings.context), machine)) {
      double measured = 0, predicted = 0;
      for (const Case& c : rank.cases) {
        bench.run(c, copy_rate);
        measured += bench.time_of(c.label);
        predicted += c.predicted;
      }
      std::printf("  %-32s %10.1f us", (rank.label + ", sum").c_str(), measured * 1e6);
      if (predicted > 0) std::printf(", predicted %10.1f us, %+5.1f%%", predicted * 1e6, 100 * (predicted / measured - 1));
      std::printf("\n");
      auto& [fastest, slowest] =
          extremes.try_emplace(rank.label.substr(0, rank.label.find(' ')), measured, measured).first->second;
      fastest = std::min(fastest, measured);
      slowest = std::max(slowest, measured);
    }
    for (const auto& [kind, of_kind] : extremes) {
      const double apart = of_kind.second / of_kind.first - 1;
      std::printf("  %s: the slowest rank takes %.1f%% longer than the fastest\n", kind.c_str(), 100 * apart);
      balanced = balanced && apart <= most_apart;
    }
  }
  return balanced;
}

int run(const Settings& settings) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const std::shared_ptr<Device> device = host.make<Device>("device", settings.device, {});
  device->open(0, 1);
  std::printf("%s\n", device->info().name.c_str());
  Bench bench(*device);
  const double copy_rate = bench.copy_rate();
  std::printf("copy of 1 GiB (cast of f32 to f32): %.0f GB/s, read and written\n", copy_rate * 1e-9);
  if (settings.context > 0) {
    return run_context(settings, bench, copy_rate) ? 0 : 1;
  }
  for (const Model& model : models) {
    if (!settings.model.empty() && settings.model != model.name) continue;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      if (dtype == DType::f32 && model.gradient != DType::f32) continue;
      std::printf("\n%s, %s, gradients %s, batch %lld, sequence %lld\n", model.name.c_str(), std::string(name_of(dtype)).c_str(),
                  std::string(name_of(model.gradient)).c_str(), static_cast<long long>(settings.batch),
                  static_cast<long long>(settings.sequence));
      for (const Case& c : cases_of(model, settings, dtype)) {
        if (c.label.find(settings.only) != std::string::npos) bench.run(c, copy_rate);
      }
    }
  }
  if (settings.model.empty() || settings.model == bench::moe_model) {
    std::printf("\n%s, bf16, one layer's experts, batch %lld, sequence %lld\n", bench::moe_model.c_str(),
                static_cast<long long>(settings.batch), static_cast<long long>(settings.sequence));
    for (const Case& c : bench::moe_cases(settings.batch, settings.sequence)) {
      if (c.label.find(settings.only) != std::string::npos || c.label.starts_with("linear")) bench.run(c, copy_rate);
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  Settings settings;
  const std::map<std::string, std::function<void(const std::string&)>> options = {
      {"--device", [&](const std::string& value) { settings.device = value; }},
      {"--model", [&](const std::string& value) { settings.model = value; }},
      {"--only", [&](const std::string& value) { settings.only = value; }},
      {"--machine", [&](const std::string& value) { settings.machine = value; }},
      {"--context", [&](const std::string& value) { settings.context = std::stoll(value); }},
      {"--batch", [&](const std::string& value) { settings.batch = std::stoll(value); }},
      {"--sequence", [&](const std::string& value) { settings.sequence = std::stoll(value); }},
  };
  try {
    for (int i = 1; i < count; i += 2) {
      const auto option = options.find(arguments[i]);
      if (option == options.end() || i + 1 == count) {
        std::fprintf(stderr,
                     "bench_kernels [--device cuda] [--model qwen3-0.6b|llama-3-8b|qwen3-30b-a3b] [--batch 4] [--sequence 4096] "
                     "[--only TEXT] [--context RANKS [--machine NAME|FILE]]\n");
        return 2;
      }
      option->second(arguments[i + 1]);
    }
    return run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_kernels: %s\n", error.what());
    return 1;
  }
}
