// Tensor and sequence parallelism: models whose heads, words and channels ranks share in every way there is.
#include <gtest/gtest.h>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

class TensorParallel : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const std::string& strategy, int ranks, const Words& more) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks)} + more);
  }
};

TEST_P(TensorParallel, OfTwo) {
  expect("tp-sp=2", 2, {});
  expect("tp-sp=2", 2, {"--tp-sp.sequence-parallel=false", "--accumulation=2"});
  expect("tp-sp=2", 2, {"--accumulation=2", "--tp-sp.logits-bytes=1500", "--tp-sp.delay-weight-gradients=false"});
  expect("tp-sp=2", 2, {"--accumulation=2", "--tp-sp.logits-bytes=1500", "--recompute=full"});
  expect("tp-sp=2", 2, {"--tp-sp.overlap-parts=4", "--tp-sp.gather-again=true"});
  expect("tp-sp=2", 2, {"--tp-sp.gather-again=true", "--accumulation=2"});
  expect("tp-sp=2", 2, {"--tp-sp.overlap-parts=4", "--pack=off"});
}

TEST_P(TensorParallel, OfFour) {
  expect("tp-sp=4", 4, {"--tp-sp.overlap-parts=2", "--accumulation=2"});
  expect("tp-sp=4", 4, {"--accumulation=4", "--recompute=full"});
  expect("tp-sp=4", 4, {"--tp-sp.sequence-parallel=false", "--recompute=full"});
  expect("tp-sp=4", 4, {"--tp-sp.gather-again=true", "--tp-sp.overlap-parts=2"});
  expect("tp-sp=4+ddp", 8, {"--accumulation=2", "--ddp.bucket-size=1Ki"});
  expect("tp-sp=2+ddp", 4, {"--accumulation=2", "--ddp.bucket-size=10Ki"});
}

// Stretches of single sequences, which only a vocabulary that divides allows.
TEST_P(TensorParallel, StretchesOfSequences) {
  if (GetParam().model.golden == "llama-untied") return;
  expect("tp-sp=2", 2, {"--accumulation=8", "--tp-sp.overlap-parts=2", "--tp-sp.gather-again=true"});
  expect("tp-sp=2", 2, {"--accumulation=8", "--tp-sp.overlap-parts=4", "--sequence=16"});
}

// llama-tied: as many key/value heads as heads. qwen3: two key/value heads for four ranks. llama-untied: 101 words, which nobody
// can share. biases: of q, k and v. A pad token, whose row gets no gradient, on the last rank's part of the vocabulary.
INSTANTIATE_TEST_SUITE_P(
    Models, TensorParallel,
    ::testing::Values(Column{"llama_tied_fp32", {"llama-tied"}},
                      Column{"qwen3_tied_fp32", {"qwen3-untied", R"({"tie_word_embeddings":true,"pad_token_id":-2})"}},
                      Column{"llama_untied_fp32", {"llama-untied"}},
                      Column{"biases_fp32",
                             {"qwen2.5-bias",
                              R"({"hidden_size":64,"num_attention_heads":8,"num_key_value_heads":2,"vocab_size":96})"}},
                      Column{"llama_tied_bf16", {"llama-tied"}, {"--precision=bf16"}},
                      Column{"qwen3_tied_fp8", {"qwen3-untied", R"({"tie_word_embeddings":true})"}, {"--precision=fp8"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist::interpreter
