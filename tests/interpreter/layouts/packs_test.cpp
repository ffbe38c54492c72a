// Packed linears, of sizes that are packed: results of multiples of 16 bytes, weights and biases of multiples of 256.
#include <gtest/gtest.h>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

class Packs : public ::testing::TestWithParam<Column> {};

TEST_P(Packs, TrainAsSeparateLinears) {
  const Words layouts[] = {
      {"--pack=off"},
      {"--pack=on"},
      {"--pack=on", "--accumulation=2", "--recompute=full"},
      {"--pack=on", "--accumulation=2", "--recompute=swiglu,rms_norm"},
      {"--pack=on", "--accumulation=2", "--recompute=rope,attention"},
      {"--pack=on", "--strategy=ddp", "--ranks=2", "--accumulation=2"},
      {"--pack=on", "--strategy=ddp", "--ranks=2", "--ddp.bucket-size=1Ki"},
      {"--pack=on", "--strategy=zero2", "--ranks=2", "--accumulation=2"},
      {"--pack=on", "--strategy=zero2", "--ranks=2", "--accumulation=2", "--zero2.stage=1"},
      {"--pack=on", "--strategy=zero3-offload", "--ranks=2", "--accumulation=2"},
      {"--pack=on", "--strategy=tp-sp=2", "--ranks=2", "--accumulation=2"},
      {"--pack=on", "--strategy=tp-sp=2", "--ranks=2", "--accumulation=2", "--tp-sp.overlap-parts=2"},
      {"--pack=on", "--strategy=tp-sp=2", "--ranks=2", "--tp-sp.overlap-parts=4", "--tp-sp.gather-again=true"},
      {"--pack=on", "--strategy=pipeline=2", "--ranks=2", "--accumulation=2", "--pipeline.schedule=zero-bubble"},
      {"--pack=on", "--strategy=pipeline=2+tp-sp=2", "--ranks=4", "--accumulation=2"}};
  for (const Words& words : layouts) expect_one_rank(GetParam(), words);
}

const std::string untied_head = R"({"tie_word_embeddings":false})";
INSTANTIATE_TEST_SUITE_P(
    Models, Packs,
    ::testing::Values(
        Column{"llama_fp32", {"llama-untied", R"({"tie_word_embeddings":false,"intermediate_size":64,"vocab_size":64})"}},
        Column{"llama_bf16", {"llama-untied", untied_head}, {"--precision=bf16"}},
        Column{"qwen3_fp32", {"qwen3-untied", untied_head}},
        Column{"qwen3_bf16_gradients", {"qwen3-untied", untied_head}, {"--precision=bf16", "--bf16.gradients=bf16"}},
        Column{"qwen2_fp32",
               {"qwen2.5-bias",
                R"({"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":4,"intermediate_size":64,"vocab_size":96})"}},
        Column{"llama_fp8", {"llama-untied", untied_head}, {"--precision=fp8"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist::interpreter
