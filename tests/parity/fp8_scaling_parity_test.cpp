// fp8 with every kind of scales: each layout gives the losses of one rank. Channels are no multiple of a block, and parts of them
// even less, so that blocks begin elsewhere on each rank.
#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

using Layouts = std::vector<std::vector<std::string>>;

struct Scaling {
  ChangedModel model;
  Layouts layouts;  ///< those of all scalings: tests/interpreter/scalings_test.cpp
};

void PrintTo(const Scaling& scaling, std::ostream* out) {
  *out << scaling.model.name;
}

class Fp8ScalingParity : public testing::TestWithParam<Scaling> {};

TEST_P(Fp8ScalingParity, LayoutsGiveTheLossesOfOneRank) {
  test::expect_losses_of_one_rank(GetParam().model, GetParam().layouts);
}

const std::vector<std::string> zero2{"--strategy=zero2", "--ranks=2", "--accumulation=2"},
    zero3{"--strategy=zero3-offload", "--ranks=2", "--zero3-offload.max-reuse-distance=0"},
    composed{"--strategy=tp-sp=2+pipeline=2", "--ranks=4", "--accumulation=4"};

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
                         testing::Values(Scaling{model("llama_delayed", "llama-untied", "delayed"), {zero2}},
                                         Scaling{model("qwen3_row", "qwen3-tied", "row"), {composed}},
                                         Scaling{model("llama_block", "llama-untied", "block"), {zero3, composed}}),
                         [](const auto& info) { return std::string(info.param.model.name); });

}  // namespace
}  // namespace consist
