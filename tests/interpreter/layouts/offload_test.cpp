// Activations that wait for backward on the host: the same numbers as without, and those of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "core/interpreter/order_check.h"
#include "core/passes/offload_activations.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

const std::string offload = "--offload-activations=all";

int copies_in(const RankPrograms& programs) {
  int copies = 0;
  for (const Planned& step : programs.steps) {
    for (const Instruction& i : step.program.instructions)
      copies += i.queue.is_copy() && std::string_view(i.tag.inserted_by) == offload_name ? 1 : 0;
  }
  return copies;
}

class OffloadedActivations : public ::testing::TestWithParam<Column> {
 protected:
  void expect(Words words) const {
    const Column& column = GetParam();
    words = column.precision + words;
    // Two runs of one program differ by no bit, so that nothing but the copies can be the cause of a difference.
    const std::string text = text_of(column.model, words);
    const auto without = compile(config_of(column.model, words), 512),
               with = compile(config_of(column.model, words + Words{offload}), 512);
    EXPECT_GT(copies_in(*with), 0) << text;
    EXPECT_EQ(copies_in(*without), 0) << text;
    std::vector<std::string> wrong;
    check_ranks(with->steps, wrong);
    check_ranks(with->evaluations, wrong);
    const Outcome expected = run(*without, {}), found = run(*with, {.order = 7});
    for (std::string& difference : differences(*with, found)) wrong.push_back(std::move(difference));
    EXPECT_THAT(wrong, ::testing::IsEmpty()) << text;
    EXPECT_EQ(found.losses, expected.losses) << text;
    EXPECT_EQ(found.grad_norms, expected.grad_norms) << text;
    EXPECT_EQ(found.values, expected.values) << text;
  }
};

TEST_P(OffloadedActivations, OnOneRank) {
  for (const char* recompute : {"none", "swiglu,rms_norm", "full"}) {
    for (const char* accumulation : {"1", "3"})
      expect({"--recompute=" + std::string(recompute), "--accumulation=" + std::string(accumulation),
              "--global-batch=" + std::string(accumulation[0] == '3' ? "6" : "8")});
  }
  expect({"--pack=off"});
}

TEST_P(OffloadedActivations, WithEachStrategy) {
  for (const char* data : {"ddp", "zero2", "zero3-offload"})
    expect({"--strategy=" + std::string(data), "--ranks=2", "--accumulation=2"});
  expect({"--strategy=tp-sp=2", "--ranks=2"});
  expect({"--strategy=cp=2", "--ranks=2"});
  expect({"--strategy=cp=2", "--ranks=2", "--cp.attention=ring"});
  for (const char* schedule : {"gpipe", "1f1b", "zero-bubble", "zero-bubble-h2"})
    expect({"--strategy=pipeline=2", "--ranks=2", "--accumulation=4", "--pipeline.schedule=" + std::string(schedule)});
}

TEST_P(OffloadedActivations, WithStrategiesCombined) {
  expect({"--strategy=tp-sp=2+pipeline=2", "--ranks=4", "--accumulation=2", "--recompute=full"});
  expect({"--strategy=cp=2+zero3-offload", "--ranks=4", "--accumulation=2"});
  expect({"--strategy=pipeline=2+zero3-offload", "--ranks=4", "--accumulation=2", "--zero3-offload.offload-optimizer.device=cpu",
          "--zero3-offload.offload-param.device=cpu", "--zero3-offload.param-persistence-threshold=100"});
  if (GetParam().precision != Words{"--precision=fp8"})  // whose linears multiply tokens that were quantized together
    expect({"--strategy=tp-sp=2+zero2", "--ranks=4", "--tp-sp.overlap-parts=2"});
}

INSTANTIATE_TEST_SUITE_P(
    Models, OffloadedActivations,
    ::testing::Values(Column{"llama_fp32", {"llama-tied", R"({"num_hidden_layers":6})"}},
                      Column{"llama_packed_bf16",
                             {"llama-untied", R"({"num_hidden_layers":6,"intermediate_size":64,"vocab_size":64})"},
                             {"--precision=bf16"}},
                      Column{"qwen3_fp8", {"qwen3-untied", R"({"num_hidden_layers":6})"}, {"--precision=fp8"}}),
    [](const auto& info) { return std::string(info.param.name); });

// A receive is asked for long before its message comes: a copy of what it brings, if it stood there, would hold up the copies
// that compute waits for before it sends what the other rank waits for.
TEST(OffloadedPipelines, CopiesDoNotWaitForMessagesThatWereOnlyAskedFor) {
  const ModelChoice model{"qwen2.5-bias",
                          R"({"hidden_size":32,"num_attention_heads":8,"num_key_value_heads":4,"num_hidden_layers":6})"};
  for (const char* accumulation : {"1", "3"})
    expect_one_rank(model,
                    {"--strategy=pipeline=3", "--ranks=3", "--global-batch=6", "--accumulation=" + std::string(accumulation),
                     "--pipeline.schedule=interleaved", "--pack=off", offload});
}

// Rows of experts are kept with room behind them that nobody wrote.
TEST(OffloadedExperts, WithEachDispatch) {
  const Column model{"experts", {"qwen3-moe", R"({"num_hidden_layers":5})"}};
  for (const char* recompute : {"none", "full"}) {
    const Words more{offload, "--recompute=" + std::string(recompute), "--accumulation=2"};
    expect_one_rank(model, Words{"--strategy=ddp", "--ranks=2"} + more);
    expect_one_rank(model, Words{"--strategy=ep=2", "--ranks=2", "--ep.capacity=4"} + more);
    expect_one_rank(model,
                    Words{"--strategy=ep=2+zero3-offload", "--ranks=4", "--ep.capacity=4", "--ep.dispatch=all-to-all"} + more);
  }
}

}  // namespace
}  // namespace consist::interpreter
