// Strategies combined over one mesh give the losses of one rank, in processes of their own. All combinations run in the
// interpreter (tests/interpreter).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

class CompositionParity : public testing::TestWithParam<ChangedModel> {};

TEST_P(CompositionParity, LossesAreThoseOfOneRank) {
  std::vector<std::vector<std::string>> layouts{
      {"--strategy=tp-sp=2+pipeline=2+zero3-offload", "--ranks=8", "--recompute=full", "--accumulation=2"},
      {"--strategy=pipeline=2+ddp", "--ranks=4", "--accumulation=2"},
      {"--strategy=zero3-offload=2+ddp=2", "--ranks=4", "--accumulation=1", "--zero3-offload.offload-optimizer.device=cpu"},
      {"--strategy=zero2=2+ddp=2", "--ranks=4", "--accumulation=1"},
      {"--strategy=tp-sp=2+zero2", "--ranks=4", "--recompute=full", "--accumulation=1"}};
  // Micro-batches of two sequences that take turns; 8-bit products take them together.
  if (GetParam().precision != std::string("fp8")) layouts.back().push_back("--tp-sp.overlap-parts=2");
  test::expect_losses_of_one_rank(GetParam(), layouts);
}

const nlohmann::json tied{{"tie_word_embeddings", true}}, untied{{"tie_word_embeddings", false}};
INSTANTIATE_TEST_SUITE_P(Configurations, CompositionParity,
                         testing::Values(ChangedModel{"llama_fp32", "llama-tied", untied, "fp32"},
                                         ChangedModel{"qwen3_tied_bf16", "qwen3-untied", tied, "bf16"},
                                         ChangedModel{"llama_fp8", "llama-tied", untied, "fp8"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
