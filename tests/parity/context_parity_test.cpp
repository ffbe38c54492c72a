// Context parallelism gives the losses of one rank, in processes of their own, with kernels, batches and evaluations as training has
// them. All combinations run in the interpreter (tests/interpreter).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

class ContextParity : public testing::TestWithParam<ChangedModel> {};

TEST_P(ContextParity, LossesAreThoseOfOneRank) {
  test::expect_losses_of_one_rank(GetParam(), {{"--strategy=cp=2", "--ranks=2", "--accumulation=2"},
                                               {"--strategy=cp=2", "--ranks=2", "--cp.attention=ulysses"},
                                               {"--strategy=cp=2+ddp", "--ranks=4", "--cp.attention=ulysses"},
                                               {"--strategy=cp=2", "--ranks=2", "--cp.attention=ring", "--accumulation=2"},
                                               {"--strategy=cp=4", "--ranks=4", "--cp.attention=ring", "--recompute=full"},
                                               {"--strategy=cp=2+zero2", "--ranks=4", "--cp.attention=ring"},
                                               {"--strategy=cp=2+zero3-offload", "--ranks=4", "--recompute=full"},
                                               {"--strategy=cp=2+tp-sp=2+zero2", "--ranks=4"}});
}

const nlohmann::json grouped{{"num_attention_heads", 4}, {"num_key_value_heads", 2}};
// Chunks of 20 tokens: neither ranks' parts nor documents, which cross their borders, begin at whole tiles.
const std::vector<std::string> fields{"--sequence=80", "--synthetic.fields=loss_mask,document_start"};
INSTANTIATE_TEST_SUITE_P(Configurations, ContextParity,
                         testing::Values(ChangedModel{"qwen3_fp32", "qwen3-untied", grouped, "fp32"},
                                         ChangedModel{"documents_fp32", "qwen3-untied", grouped, "fp32", "cpu", fields},
                                         ChangedModel{"llama_bf16", "llama-tied", {{"tie_word_embeddings", true}}, "bf16"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
