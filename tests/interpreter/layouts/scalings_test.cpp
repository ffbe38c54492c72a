// fp8 with every kind of scales: channels are no multiple of a block, and parts of them even less, so that blocks begin elsewhere
// on each rank.
#include <gtest/gtest.h>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

class Scalings : public ::testing::TestWithParam<Column> {};

TEST_P(Scalings, EveryLayout) {
  const Words layouts[] = {{"--strategy=ddp", "--ranks=2"},
                           {"--accumulation=2", "--recompute=full"},
                           {"--strategy=zero2", "--ranks=2", "--accumulation=2"},
                           {"--strategy=zero3-offload", "--ranks=2", "--zero3-offload.max-reuse-distance=0"},
                           {"--strategy=tp-sp=2", "--ranks=2"},
                           {"--strategy=pipeline=2", "--ranks=2", "--accumulation=2"},
                           {"--strategy=tp-sp=2+pipeline=2", "--ranks=4", "--accumulation=4"}};
  for (const Words& words : layouts) expect_one_rank(GetParam(), words + Words{"--global-batch=4"});
}

const std::string wide =
    R"({"hidden_size":136,"intermediate_size":144,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":34,"vocab_size":32})";
INSTANTIATE_TEST_SUITE_P(Scales, Scalings,
                         ::testing::Values(Column{"delayed",
                                                  {"llama-untied", wide},
                                                  {"--precision=fp8", "--fp8.scaling=delayed", "--fp8.amax-history-len=2"}},
                                           Column{"row", {"qwen3-tied", wide}, {"--precision=fp8", "--fp8.scaling=row"}},
                                           Column{"block", {"llama-untied", wide}, {"--precision=fp8", "--fp8.scaling=block"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist::interpreter
