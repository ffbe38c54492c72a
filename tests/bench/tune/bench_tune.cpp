// Searches of large cases, and random legal configurations of each: none should be faster than what is found by more than 1%.
//
//   build/bin/bench_tune [--case NAME] [--draws 200] [--seed 1] [--seconds 60] [--best MILLISECONDS]
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/machine_choice.h"
#include "launch/search/tune/search.h"
#include "tests/advise/random_configurations.h"

namespace {

using namespace consist;

struct Case {
  std::string name, model;
  int ranks;
  std::int64_t global_batch, sequence;
  std::string machine;
};

const std::string llama_405b =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248,
        "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false})";

const std::vector<Case> cases{{"llama-3.1-70b", "llama-3.1-70b", 640, 320, 4096, "h100"},
                              {"llama-3.1-70b-1280", "llama-3.1-70b", 640, 1280, 4096, "h100"},
                              {"qwen3-30b-a3b", "qwen3-30b-a3b", 16, 32, 32768, "h200"},
                              {"llama-3.1-405b", llama_405b, 1024, 512, 4096, "h100"}};

struct Asked {
  std::string name;
  std::size_t draws = 200;
  std::uint64_t seed = 1;
  double seconds = 60, best = 0;
};

double passed_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

RunConfig config_of(const Case& c) {
  RunConfig config;
  config.model = c.model;
  config.ranks = c.ranks;
  config.global_batch = c.global_batch;
  config.sequence = c.sequence;
  config.precision = "bf16";
  config.machine = c.machine;
  return config;
}

/// Milliseconds of the best; the search says how it went.
double found_by_search(const Case& c, const std::shared_ptr<const Machine>& machine, const Asked& asked, PluginHost& host) {
  const launch::SearchResult result =
      launch::search({.config = config_of(c), .machine = machine, .most_seconds = asked.seconds}, host);
  if (result.candidates.empty()) return 0;
  const launch::Candidate& best = result.candidates.front();
  std::printf("%s: the search finds %.1f ms in %.1f s; estimated %zu, simulated %zu and %zu whole, open %zu%s\n  %s\n",
              c.name.c_str(), best.prediction.time.seconds * 1e3, result.seconds, result.estimated, result.simulated,
              result.whole, result.open, result.ended_early ? ", ended early" : "", launch::text_of(best.choices).c_str());
  std::fflush(stdout);
  return best.prediction.time.seconds * 1e3;
}

/// True if the search found a configuration and nothing that was drawn is faster.
bool holds(const Case& c, const Asked& asked, PluginHost& host) {
  const auto machine = std::make_shared<const Machine>(parse_machine(c.machine));
  const double best = asked.best > 0 ? asked.best : found_by_search(c, machine, asked, host);
  if (best == 0) return false;
  const auto began = std::chrono::steady_clock::now();
  const test::Drawn drawn = test::Draws(config_of(c), machine, host).faster_than(best / 1e3, asked.draws, asked.seed);
  std::printf(
      "%s: of %zu legal ones (%zu drawn; %zu simulated with few micro-batches, %zu whole, the best %.1f ms) %zu are faster than "
      "%.1f ms by more than 1%%, in %.0f s\n",
      c.name.c_str(), drawn.legal, drawn.drawn, drawn.simulated, drawn.whole, drawn.best * 1e3, drawn.faster.size(), best,
      passed_since(began));
  for (const auto& [seconds, choices] : drawn.faster)
    std::printf("  %.1f ms: %s\n", seconds * 1e3, launch::text_of(choices).c_str());
  std::fflush(stdout);
  return drawn.faster.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  for (int n = 1; n + 1 < argc; n += 2) {
    const std::string option = argv[n], value = argv[n + 1];
    if (option == "--case") asked.name = value;
    if (option == "--draws") asked.draws = std::stoul(value);
    if (option == "--seed") asked.seed = std::stoull(value);
    if (option == "--seconds") asked.seconds = std::stod(value);
    if (option == "--best") asked.best = std::stod(value);
  }
  PluginHost host({});
  bool all_hold = true;
  for (const Case& c : cases) {
    if (asked.name.empty() || asked.name == c.name) all_hold = holds(c, asked, host) && all_hold;
  }
  return all_hold ? 0 : 1;
}
