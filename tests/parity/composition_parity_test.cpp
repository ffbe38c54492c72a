// Strategies combined over one mesh give the losses of one rank: all pairs, and three triples on eight ranks.
#include <gtest/gtest.h>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

class CompositionParity : public testing::TestWithParam<ChangedModel> {};

TEST_P(CompositionParity, LossesAreThoseOfOneRank) {
  std::vector<std::vector<std::string>> layouts;
  const std::vector<std::string> whole{"--recompute", "none"}, again{"--recompute", "full"};
  const auto add = [&](const std::string& strategy, const char* ranks, bool recompute, const char* accumulation = "2") {
    layouts.push_back({"--strategy=" + strategy, "--ranks=" + std::string(ranks), "--accumulation=" + std::string(accumulation)});
    const std::vector<std::string>& activations = recompute ? again : whole;
    layouts.back().insert(layouts.back().end(), activations.begin(), activations.end());
  };
  bool recompute = false;  // in turns
  for (const char* data : {"ddp", "zero2", "zero3-offload"}) {
    add(std::string("tp-sp=2+") + data, "4", recompute);
    add(std::string("pipeline=2+") + data, "4", !recompute);
    add(std::string("tp-sp=2+pipeline=2+") + data, "8", recompute);
    recompute = !recompute;
  }
  add("tp-sp=2+pipeline=2", "4", true);
  // Micro-batches of two sequences that take turns; 8-bit products take them together.
  const auto add_halves = [&](const char* strategy, const char* ranks, bool recompute, const char* accumulation) {
    if (GetParam().precision == std::string("fp8")) return;
    add(strategy, ranks, recompute, accumulation);
    layouts.back().emplace_back("--tp-sp.overlap-parts=2");
  };
  add_halves("tp-sp=2+zero2", "4", true, "1");
  add_halves("tp-sp=2+zero3-offload", "4", false, "1");
  add_halves("tp-sp=2+pipeline=2", "4", false, "2");
  add_halves("tp-sp=2+pipeline=2+ddp", "8", true, "1");
  test::expect_losses_of_one_rank(GetParam(), layouts);
}

const nlohmann::json tied{{"tie_word_embeddings", true}}, untied{{"tie_word_embeddings", false}};
INSTANTIATE_TEST_SUITE_P(MakeUps, CompositionParity,
                         testing::Values(ChangedModel{"llama_fp32", "llama-tied", untied, "fp32"},
                                         ChangedModel{"llama_bf16", "llama-tied", untied, "bf16"},
                                         ChangedModel{"qwen3_tied_fp32", "qwen3-untied", tied, "fp32"},
                                         ChangedModel{"qwen3_tied_bf16", "qwen3-untied", tied, "bf16"},
                                         ChangedModel{"llama_fp8", "llama-tied", untied, "fp8"},
                                         ChangedModel{"qwen3_tied_fp8", "qwen3-untied", tied, "fp8"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
