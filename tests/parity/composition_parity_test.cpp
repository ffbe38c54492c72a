// Strategies combined over one mesh give the losses of one rank: all pairs, and three triples on eight ranks, with activations
// kept and recomputed; and each strategy alone with them recomputed.
#include <gtest/gtest.h>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

class CompositionParity : public testing::TestWithParam<ChangedModel> {};

TEST_P(CompositionParity, LossesAreThoseOfOneRank) {
  std::vector<std::vector<std::string>> layouts;
  const auto add = [&](const std::string& strategy, int ranks, const char* recompute, std::vector<std::string> options = {}) {
    layouts.push_back({"--strategy=" + strategy, "--ranks=" + std::to_string(ranks), "--recompute", recompute});
    if (options.empty()) options = {"--accumulation=2"};
    layouts.back().insert(layouts.back().end(), options.begin(), options.end());
  };
  const std::vector<const char*> data_parallel{"ddp", "zero2", "zero3-offload"};
  for (const char* recompute : {"none", "full"}) {
    for (const char* data : data_parallel) {
      add(std::string("tp-sp=2+") + data, 4, recompute);
      add(std::string("pipeline=2+") + data, 4, recompute);
      add(std::string("tp-sp=2+pipeline=2+") + data, 8, recompute);
    }
    add("tp-sp=2+pipeline=2", 4, recompute);
  }
  // Alone, strategies keep their activations in the other tests of layouts.
  add("ddp", 1, "full");
  for (const int ranks : {2, 4}) {
    for (const char* data : data_parallel) add(data, ranks, "full", {"--accumulation=" + std::to_string(4 / ranks)});
    add("tp-sp=" + std::to_string(ranks), ranks, "full");
  }
  // Micro-batches of two sequences that take turns; 8-bit products take them together.
  if (GetParam().precision != std::string("fp8")) {
    const std::string halves = "--tp-sp.overlap-parts=2";
    add("tp-sp=2+zero2", 4, "full", {"--accumulation=1", halves});
    add("tp-sp=2+zero3-offload", 4, "none", {"--accumulation=1", halves});
    add("tp-sp=2+pipeline=2", 4, "none", {"--accumulation=2", halves});
    add("tp-sp=2+pipeline=2+ddp", 8, "full", {"--accumulation=1", halves});
  }
  test::expect_losses_of_one_rank(GetParam(), layouts);
}

const nlohmann::json tied{{"tie_word_embeddings", true}}, untied{{"tie_word_embeddings", false}};
INSTANTIATE_TEST_SUITE_P(Configurations, CompositionParity,
                         testing::Values(ChangedModel{"llama_fp32", "llama-tied", untied, "fp32"},
                                         ChangedModel{"llama_bf16", "llama-tied", untied, "bf16"},
                                         ChangedModel{"qwen3_tied_fp32", "qwen3-untied", tied, "fp32"},
                                         ChangedModel{"qwen3_tied_bf16", "qwen3-untied", tied, "bf16"},
                                         ChangedModel{"llama_fp8", "llama-tied", untied, "fp8"},
                                         ChangedModel{"qwen3_tied_fp8", "qwen3-untied", tied, "fp8"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
