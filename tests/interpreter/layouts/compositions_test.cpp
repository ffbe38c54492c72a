// Strategies combined over one mesh, with activations kept and recomputed.
#include <gtest/gtest.h>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

class Compositions : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const std::string& strategy, int ranks, const Words& more) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks)} + more);
  }
};

constexpr const char* data_parallel[] = {"ddp", "zero2", "zero3-offload"};

TEST_P(Compositions, Pairs) {
  for (const char* recompute : {"none", "full"}) {
    const Words more{"--accumulation=2", "--recompute=" + std::string(recompute)};
    for (const char* data : data_parallel) {
      expect(std::string("tp-sp=2+") + data, 4, more);
      expect(std::string("pipeline=2+") + data, 4, more);
    }
    expect("tp-sp=2+pipeline=2", 4, more);
  }
}

TEST_P(Compositions, Triples) {
  for (const char* recompute : {"none", "full"}) {
    for (const char* data : data_parallel)
      expect(std::string("tp-sp=2+pipeline=2+") + data, 8, {"--accumulation=2", "--recompute=" + std::string(recompute)});
  }
}

TEST_P(Compositions, EachAloneRecomputed) {
  expect("ddp", 1, {"--recompute=full"});
  for (const int ranks : {2, 4}) {
    for (const char* data : data_parallel)
      expect(data, ranks, {"--recompute=full", "--accumulation=" + std::to_string(4 / ranks)});
    expect("tp-sp=" + std::to_string(ranks), ranks, {"--recompute=full"});
    expect("pipeline=2", 2, {"--recompute=full", "--accumulation=" + std::to_string(ranks)});
  }
  for (const char* what : {"swiglu,rms_norm", "attention,rope", "swiglu,rms_norm,attention,rope"})
    expect("zero3-offload", 2, {"--recompute=" + std::string(what), "--accumulation=2"});
  for (const char* strategy : {"ddp", "zero2", "zero3-offload", "tp-sp=2", "pipeline=2"})
    expect(strategy, 2, {"--recompute=full", "--recompute-layers=1-1", "--accumulation=2"});
}

// Micro-batches of two sequences that take turns.
TEST_P(Compositions, HalvesThatTakeTurns) {
  const std::string halves = "--tp-sp.overlap-parts=2";
  expect("tp-sp=2+zero2", 4, {"--accumulation=1", halves, "--recompute=full"});
  expect("tp-sp=2+zero3-offload", 4, {"--accumulation=1", halves});
  expect("tp-sp=2+pipeline=2", 4, {"--accumulation=2", halves});
  expect("tp-sp=2+pipeline=2+ddp", 8, {"--accumulation=1", halves, "--recompute=full"});
}

// A vocabulary that ranks cannot share: the head's gradient of a tied table is summed over tokens before the embedding's joins
// it.
TEST(TiedTables, OfOddVocabularies) {
  const ModelChoice model{"llama-tied", R"({"vocab_size":37})"};
  const Words once[] = {{"--strategy=tp-sp=2+zero2", "--zero2.stage=1"},
                        {"--strategy=tp-sp=2+zero3-offload", "--zero3-offload.reduce-each-micro-batch=false"},
                        {"--strategy=tp-sp=2+zero2", "--zero2.stage=2"},
                        {"--strategy=tp-sp=2+ddp"}};
  for (const Words& words : once) expect_one_rank(model, words + Words{"--ranks=4", "--accumulation=2"});
}

TEST_P(Compositions, OverTheHost) {
  const Words host{"--zero3-offload.offload-optimizer.device=cpu", "--zero3-offload.param-persistence-threshold=100",
                   "--zero3-offload.max-reuse-distance=0", "--accumulation=2"};
  for (const char* update : {"device", "cpu"}) {
    const Words more = host + Words{"--zero3-offload.offload-optimizer.update=" + std::string(update)};
    expect("tp-sp=2+zero3-offload", 4, more);
    expect("pipeline=2+zero3-offload", 4, more);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Compositions,
    ::testing::Values(
        Column{"llama_fp32", {"llama-tied", R"({"tie_word_embeddings":false})"}},
        Column{"qwen3_tied_fp32", {"qwen3-untied", R"({"tie_word_embeddings":true})"}},
        Column{"biases_fp32",
               {"qwen2.5-bias", R"({"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":96})"}},
        Column{"llama_bf16", {"llama-tied", R"({"tie_word_embeddings":false})"}, {"--precision=bf16"}},
        Column{"qwen3_tied_fp8", {"qwen3-untied", R"({"tie_word_embeddings":true})"}, {"--precision=fp8"}},
        Column{"llama_fp8_gathers", {"llama-tied"}, {"--precision=fp8", "--fp8.gathers=true"}},
        Column{"llama_fp8_delayed", {"llama-tied"}, {"--precision=fp8", "--fp8.scaling=delayed", "--fp8.amax-history-len=4"}},
        Column{"llama_fp8_block", {"llama-tied"}, {"--precision=fp8", "--fp8.scaling=block"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist::interpreter
