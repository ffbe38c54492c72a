// Tensor parallel runs give the losses of one rank: models whose heads, words and channels ranks share in every way there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using Json = nlohmann::json;
using test::ChangedModel;

class TensorParallelParity : public testing::TestWithParam<ChangedModel> {};

TEST_P(TensorParallelParity, LossesAreThoseOfOneRank) {
  const std::vector<std::vector<std::string>> layouts = {
      {"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=false"},
      {"--strategy=tp-sp=2", "--ranks=2", "--accumulation=2", "--tp-sp.logits-bytes=1500", "--tp-sp.gather-again"},
      {"--strategy=tp-sp=4", "--ranks=4", "--tp-sp.overlap-parts=2", "--accumulation=2"}};
  test::expect_losses_of_one_rank(GetParam(), layouts);
}

// llama-untied: 101 words, which nobody can share. qwen3: two key/value heads for four ranks; a pad token, whose row gets no
// gradient, on the last rank's part of the vocabulary. biases: Qwen2.5's, of q, k and v. The rest of the matrix:
// tests/interpreter.
INSTANTIATE_TEST_SUITE_P(
    Configurations, TensorParallelParity,
    testing::Values(
        ChangedModel{"llama_untied_fp32", "llama-untied", Json::object(), "fp32"},
        ChangedModel{"qwen3_tied_bf16", "qwen3-untied", {{"tie_word_embeddings", true}, {"pad_token_id", -2}}, "bf16"},
        ChangedModel{"biases_fp32",
                     "qwen2.5-bias",
                     {{"hidden_size", 64}, {"num_attention_heads", 8}, {"num_key_value_heads", 2}, {"vocab_size", 96}},
                     "fp32"}),
    [](const auto& info) { return std::string(info.param.name); });

/// Refused before anything starts, with the reason.
TEST(TensorParallel, RefusesWhatRanksCannotShare) {
  const std::string golden = std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/";
  const auto refused = [&](const std::string& model, const std::string& ranks, const std::string& sequence, const char* why) {
    const test::ChildResult result = test::run_child(
        {CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--dataset=synthetic", "--from-scratch",
         "--model=" + golden + model, "--sequence=" + sequence, "--steps=1", "--ranks=" + ranks, "--strategy=tp-sp=" + ranks});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.output, testing::HasSubstr(why));
  };
  refused("qwen3-tied", "2", "16", "the number of attention heads is 7");
  refused("llama-rope-scaled", "3", "16", "which the ranks cannot share equally; choose a multiple of 3");
  refused("llama-tied", "4", "18", "--sequence is 18");
}

}  // namespace
}  // namespace consist
