// Pipelines: every schedule, numbers of stages and micro-batches, cuts, and what runs beside them.
#include <gtest/gtest.h>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

class Pipelines : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const std::string& strategy, int ranks, int micro_batches, const Words& more) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks),
                                      "--accumulation=" + std::to_string(micro_batches)} +
                                    more);
  }
};

constexpr const char* schedules[] = {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"};

TEST_P(Pipelines, EverySchedule) {
  for (const char* schedule : schedules) {
    for (const int stages : {2, 4}) {
      for (const char* recompute : {"none", "full"}) {
        expect("pipeline=" + std::to_string(stages), stages, 4,
               {"--pipeline.schedule=" + std::string(schedule), "--recompute=" + std::string(recompute)});
      }
    }
  }
}

TEST_P(Pipelines, AnyNumberOfMicroBatches) {
  for (const int micro_batches : {1, 2, 8}) {
    for (const char* schedule : schedules)
      expect("pipeline=4", 4, micro_batches, {"--pipeline.schedule=" + std::string(schedule)});
  }
}

TEST_P(Pipelines, OtherCuts) {
  expect("pipeline=4", 4, 4, {"--pipeline.send-first=false"});
  expect("pipeline=4", 4, 4, {"--pipeline.cut=blocks"});
  expect("pipeline=2", 2, 2, {"--pipeline.cut=operators"});
  expect("pipeline=2", 2, 2, {"--pipeline.cut=layers", "--pipeline.schedule=interleaved", "--pipeline.chunks=4"});
  // Two stages of a single op each, which the residual goes past.
  expect("pipeline=4", 4, 4, {"--pipeline.cut=operators", "--pipeline.rank-speeds=1:0.001:0.001:1"});
  // Within the first layer, whose residual is the embedding: a partial sum that the norm before attention already made whole.
  expect("tp-sp=2+pipeline=2", 4, 2,
         {"--tp-sp.sequence-parallel=false", "--pipeline.cut=blocks", "--pipeline.rank-speeds=0.001:1"});
}

TEST_P(Pipelines, BesideOthers) {
  for (const char* schedule : {"1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    const Words more{"--pipeline.schedule=" + std::string(schedule)};
    expect("pipeline=2+ddp", 4, 4, more);
    expect("zero2+pipeline=2", 4, 4, more);
    expect("zero2+pipeline=2", 4, 4, more + Words{"--zero2.stage=2"});
    expect("zero3-offload+pipeline=2", 4, 4, more);
    expect("tp-sp=2+pipeline=2", 4, 4, more);
  }
}

// Weights that travel in bf16 are used before another chunk's 8-bit parts are made: they cannot share a message.
TEST(PipelinesOfTwoChunks, EightBitGathersBesideOthers) {
  const ModelChoice four_layers{"qwen3-tied", R"({"num_hidden_layers":4})"};
  for (const char* zero : {"zero2", "zero3-offload"})
    expect_one_rank(four_layers, {std::string("--strategy=pipeline=2+") + zero, "--ranks=4", "--accumulation=2", "--global-batch=8",
                                  "--pipeline.schedule=interleaved", "--pipeline.chunks=2", "--precision=fp8", "--fp8.gathers=true",
                                  "--fp8.bf16-first=1"});
}

const std::string deep = R"({"num_hidden_layers":8})";
INSTANTIATE_TEST_SUITE_P(Models, Pipelines,
                         ::testing::Values(Column{"llama_untied_fp32", {"llama-untied", deep}},
                                           Column{"qwen3_tied_fp32",
                                                  {"qwen3-untied", R"({"num_hidden_layers":8,"tie_word_embeddings":true})"}},
                                           Column{"llama_untied_bf16", {"llama-untied", deep}, {"--precision=bf16"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist::interpreter
