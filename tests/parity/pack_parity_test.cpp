// Packed linears train as the linears that they are made of: losses, gradient norms and evaluations with and without. Under
// other strategies: tests/interpreter.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

class PackParity : public testing::TestWithParam<ChangedModel> {};

TEST_P(PackParity, LossesAreThoseOfSeparateLinears) {
  const std::vector<std::vector<std::string>> configurations{
      {"--pack=off"},
      {"--pack=on", "--accumulation=2", "--recompute=swiglu,rms_norm"},
      {"--pack=on", "--strategy=tp-sp=2", "--ranks=2", "--accumulation=2", "--tp-sp.overlap-parts=2"}};
  test::expect_losses_of_one_rank(GetParam(), configurations);
}

// Sizes that are packed: results of multiples of 16 bytes, weights and biases of multiples of 256.
const nlohmann::json untied{{"tie_word_embeddings", false}},
    biased{{"hidden_size", 64}, {"num_attention_heads", 4}, {"num_key_value_heads", 4}, {"intermediate_size", 64}};
INSTANTIATE_TEST_SUITE_P(Configurations, PackParity,
                         testing::Values(ChangedModel{"llama_bf16", "llama-untied", untied, "bf16"},
                                         ChangedModel{"qwen2_fp32", "qwen2.5-bias", biased, "fp32"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
