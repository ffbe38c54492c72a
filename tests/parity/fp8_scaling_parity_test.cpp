// fp8 with every kind of scales: each layout gives the losses of one rank. Channels are no multiple of a block, and parts of them
// even less, so that blocks begin elsewhere on each rank.
#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

class Fp8ScalingParity : public testing::TestWithParam<ChangedModel> {};

TEST_P(Fp8ScalingParity, EveryLayoutGivesTheLossesOfOneRank) {
  test::expect_losses_of_one_rank(GetParam(), {{"--strategy=zero2", "--ranks=2", "--accumulation=2"},
                                               {"--strategy=zero3-offload", "--ranks=2", "--zero3-offload.max_reuse_distance=0"},
                                               {"--strategy=tp-sp=2+pipeline=2", "--ranks=4", "--accumulation=4"}});
}

ChangedModel model(const char* name, const char* golden, const char* scaling) {
  return {name,
          golden,
          {{"hidden_size", 160},
           {"intermediate_size", 352},
           {"num_attention_heads", 4},
           {"num_key_value_heads", 2},
           {"head_dim", 40},
           {"vocab_size", 128}},
          "fp8",
          "cpu",
          {std::string("--fp8.scaling=") + scaling},
          "fp8 of 160 channels"};
}

INSTANTIATE_TEST_SUITE_P(Scalings, Fp8ScalingParity,
                         testing::Values(model("llama_delayed", "llama-untied", "delayed"),
                                         model("qwen3_row", "qwen3-tied", "row"), model("llama_block", "llama-untied", "block")),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
