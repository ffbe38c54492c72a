// Context parallelism: sequences divided over ranks, attention by heads, on gathered keys and around a ring, alone and combined, beside
// one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "consist/error.h"
#include "consist/op.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

constexpr const char* kinds[] = {"gather", "ring", "ulysses"};

Words attention(const std::string& kind) {
  return {"--cp.attention=" + kind};
}

class ContextParallel : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const std::string& strategy, int ranks, const Words& more) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks)} + more);
  }
};

TEST_P(ContextParallel, Alone) {
  for (const char* kind : kinds) {
    expect("cp=2", 2, attention(kind));
    expect("cp=2", 2, attention(kind) + Words{"--accumulation=2", "--recompute=full", "--max-norm=0.01"});
    expect("cp=2", 2, attention(kind) + Words{"--accumulation=2", "--recompute=attention,rope", "--pack=off"});
    expect("cp=4", 4, attention(kind) + Words{"--sequence=16", "--accumulation=4"});
    expect("cp=2", 2, attention(kind) + Words{"--cp.delay-weight-gradients=false", "--accumulation=2"});
  }
  expect("cp=2", 2, {"--cp.queries-beside-gathers=false", "--accumulation=2", "--recompute=full"});
  expect("cp=2", 2, {"--cp.gather-again=false", "--accumulation=2"});
  expect("cp=2", 2, {"--cp.gather-again=false", "--cp.queries-beside-gathers=false", "--cp.delay-weight-gradients=false"});
}

TEST_P(ContextParallel, MasksAndDocuments) {
  for (const char* kind : kinds) {
    for (const char* fields : {"loss_mask", "document_start", "loss_mask,document_start"}) {
      const Words more = attention(kind) + Words{"--synthetic.fields=" + std::string(fields)};
      expect("cp=2", 2, more + Words{"--accumulation=2"});
      expect("cp=2+ddp", 4, more + Words{"--sequence=12", "--recompute=full"});
    }
  }
}

TEST_P(ContextParallel, BesideDataParallel) {
  for (const char* kind : kinds) {
    for (const char* data : {"ddp", "zero2", "zero3-offload"}) {
      expect(std::string("cp=2+") + data, 4, attention(kind));
      expect(std::string(data) + "+cp=2", 4, attention(kind) + Words{"--accumulation=2", "--recompute=full"});
    }
    expect("cp=4+zero3-offload", 8, attention(kind) + Words{"--sequence=8", "--zero3-offload.param-persistence-threshold=100"});
    expect("cp=2+zero3-offload", 4, attention(kind) + Words{"--zero3-offload.offload-optimizer.device=cpu", "--accumulation=2"});
  }
}

TEST_P(ContextParallel, BesidePipelines) {
  for (const char* kind : kinds) {
    for (const char* schedule : {"1f1b", "zero-bubble"})
      expect("cp=2+pipeline=2", 4, attention(kind) + Words{"--accumulation=4", "--pipeline.schedule=" + std::string(schedule)});
    expect("cp=2+pipeline=2+ddp", 8, attention(kind) + Words{"--accumulation=2", "--recompute=full"});
  }
}

// Stages that meet anywhere within a layer, also between the products of keys and of values: what is moved around their gather
// leaves the order in which the stages' messages meet. With one micro-batch a part's receives stand directly in front of it.
TEST_P(ContextParallel, BesidePipelinesCutAtAnyOp) {
  for (const char* speeds : {"1:0.2", "1:0.4", "1:0.6", "1:0.8", "1:1", "1:1.3", "1:2", "1:4"}) {
    const Words more{"--pipeline.cut=operators", "--pipeline.rank-speeds=" + std::string(speeds)};
    expect("cp=2+pipeline=2", 4, more + Words{"--accumulation=1", "--cp.gather-again=false"});
    expect("pipeline=2+cp=2", 4, more + Words{"--accumulation=1", "--pipeline.schedule=zero-bubble-h2"});
    expect("pipeline=2+cp=2", 4, more + Words{"--accumulation=2", "--recompute=full"});
  }
}

TEST_P(ContextParallel, BesideTensorParallel) {
  expect("cp=2+tp-sp=2", 4, {});
  expect("tp-sp=2+cp=2", 4, {"--accumulation=2", "--tp-sp.logits-bytes=1500"});
  expect("cp=2+tp-sp=2", 4, {"--tp-sp.sequence-parallel=false", "--recompute=full"});
  expect("cp=2+tp-sp=2", 4, {"--tp-sp.overlap-parts=2", "--tp-sp.gather-again=true"});
  expect("cp=2+tp-sp=2+ddp", 8, {"--accumulation=2"});
  expect("cp=2+tp-sp=2+zero3-offload", 8, {"--recompute=full"});
  expect("cp=2+tp-sp=2", 4, attention("ring"));
  expect("tp-sp=2+cp=2+ddp", 8, attention("ring") + Words{"--accumulation=2", "--recompute=full"});
}

// llama-tied: as many key/value heads as heads. qwen3: norms of heads, two key/value heads, windows. Biases of q, k and v.
INSTANTIATE_TEST_SUITE_P(
    Models, ContextParallel,
    ::testing::Values(
        Column{"llama_tied_fp32", {"llama-tied"}},
        Column{
            "qwen3_windows_fp32",
            {"qwen3-untied",
             R"({"use_sliding_window":true,"sliding_window":3,"layer_types":["sliding_attention","full_attention"],"num_hidden_layers":2})"}},
        Column{"biases_fp32",
               {"qwen2.5-bias", R"({"hidden_size":64,"num_attention_heads":8,"num_key_value_heads":2,"vocab_size":96})"}},
        Column{"llama_tied_bf16", {"llama-tied"}, {"--precision=bf16"}},
        Column{"qwen3_tied_fp8", {"qwen3-untied", R"({"tie_word_embeddings":true})"}, {"--precision=fp8"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(ContextParallel, ParametersAreThoseOfAllRanks) {
  for (const char* kind : kinds) {
    expect("cp=4+ddp=1", 4, attention(kind) + Words{"--ddp.bucket-size=4Ki"});
    expect("cp=4+zero3-offload=1", 4, attention(kind) + Words{"--zero3-offload.param-persistence-threshold=100", "--recompute=full"});
    expect("cp=2+zero2=2+ddp=2", 8, attention(kind) + Words{"--accumulation=2"});
  }
}

/// Bytes that a rank sends over the axis "context" by op, in the forward and backward part of two layers.
std::map<std::string, std::int64_t> sent(const Words& words) {
  const auto programs = compile(config_of(four_heads, words), 0);
  const Program& program = programs->steps[0].program;
  std::map<std::string, std::int64_t> bytes;
  for (const Instruction& i : program.instructions) {
    if (!i.op->is_collective() || i.tag.layer < 0) continue;
    std::int64_t moved = 0;
    for (const TensorId input : i.inputs) moved += program.bytes(input);
    bytes[std::string(i.op->name())] += i.op->bytes_sent(moved, program.mesh.size_of(i.queue.axes()));
  }
  return bytes;
}

// docs/ops.md, plugins/strategies/cp/README.md: per layer and micro-batch, of the elements of queries and of keys of all tokens.
TEST(ContextParallelBytes, AreThoseOfTheFormulas) {
  constexpr std::int64_t layers = 2, tokens = 8 * 16, element = 4, ranks = 2, head_dim = 12;
  constexpr std::int64_t queries = tokens * 4 * head_dim * element, keys = tokens * 2 * head_dim * element;
  const Words words{"--strategy=cp=2", "--ranks=2", "--sequence=16"};
  constexpr std::int64_t once = layers * 2 * keys * (ranks - 1) / ranks;
  EXPECT_THAT(sent(words),
              ::testing::UnorderedElementsAre(::testing::Pair("all_gather", 2 * once), ::testing::Pair("reduce_scatter", once)));
  EXPECT_THAT(sent(words + Words{"--cp.gather-again=false"}),
              ::testing::UnorderedElementsAre(::testing::Pair("all_gather", once), ::testing::Pair("reduce_scatter", once)));
  EXPECT_THAT(sent(words + attention("ulysses")),
              ::testing::UnorderedElementsAre(
                  ::testing::Pair("all_to_all", layers * 2 * (2 * queries + 2 * keys) * (ranks - 1) / ranks / ranks)));
}

// Keys and values go round in forward and in backward, their gradients in f32 once and home: whatever the number of ranks.
TEST(ContextParallelBytes, OfARingAreThoseOfTheFormula) {
  for (const auto& [precision, element] : {std::pair("fp32", 4), std::pair("bf16", 2)}) {
    for (const std::int64_t ranks : {2, 4}) {
      const std::int64_t layers = 2, keys = 2 * ranks * 16 * 2 * 12;  // sequences of 16 tokens, two for each of 2 heads of 12
      const Words words{"--strategy=cp=" + std::to_string(ranks), "--ranks=" + std::to_string(ranks), "--sequence=16",
                        "--global-batch=" + std::to_string(2 * ranks), "--precision=" + std::string(precision)};
      EXPECT_THAT(sent(words + attention("ring")),
                  ::testing::UnorderedElementsAre(
                      ::testing::Pair("shift", layers * 2 * (2 * keys * element * (ranks - 1) / ranks + 4 * keys))));
    }
  }
}

// Beside attention to a part the next one is on its way, and attention waits for no other.
TEST(ContextParallelOverlap, TheNextPartTravelsBesideAttention) {
  const auto programs =
      compile(config_of(four_heads, {"--strategy=cp=4", "--ranks=4", "--sequence=16", "--cp.attention=ring"}), 0);
  const Program& program = programs->steps[0].program;
  const std::vector<Instruction>& all = program.instructions;
  const auto is = [&](std::size_t i, const char* op) { return all[i].op->name() == op; };
  int parts = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!is(i, "attention_part") && !is(i, "attention_part_grad")) continue;
    const std::int64_t shift = all[i].attributes.integer("shift");
    parts += shift == 0 ? 0 : 1;
    const TensorId keys = all[i].inputs[is(i, "attention_part") ? 1 : 2];
    for (std::size_t m = i; m-- > 0;) {  // the message that brought them stands before attention to the part before
      if (std::find(all[m].outputs.begin(), all[m].outputs.end(), keys) == all[m].outputs.end()) continue;
      if (shift == 0) break;
      EXPECT_TRUE(is(m, "shift"));
      std::size_t between = 0;
      for (std::size_t b = m; b < i; ++b) between += is(b, std::string(all[i].op->name()).c_str()) ? 1U : 0U;
      EXPECT_EQ(between, 1U);
      break;
    }
  }
  EXPECT_EQ(parts, 2 * 2 * 3);  // of two layers
}

TEST(ContextParallelRefuses, SequencesThatTheRanksCannotShare) {
  EXPECT_THAT(refusal(four_heads, {"--strategy=cp=2", "--ranks=2", "--sequence=6"}),
              ::testing::AllOf(::testing::HasSubstr("cp=2: --sequence is 6"), ::testing::HasSubstr("in two chunks each"),
                               ::testing::HasSubstr("choose a multiple of 4")));
  EXPECT_THAT(refusal(four_heads, {"--strategy=cp=4", "--ranks=4", "--sequence=6", "--cp.attention=ulysses"}),
              ::testing::HasSubstr("choose a multiple of 4"));
  EXPECT_EQ(refusal(four_heads, {"--strategy=cp=2", "--ranks=2", "--sequence=6", "--cp.attention=ulysses"}),
            "nothing was refused");
  EXPECT_THAT(refusal(four_heads, {"--strategy=cp=2+tp-sp=2", "--ranks=4", "--sequence=12", "--tp-sp.sequence-parallel=true"}),
              ::testing::HasSubstr("nothing was refused"));
  EXPECT_THAT(refusal(four_heads, {"--strategy=cp=2+tp-sp=4", "--ranks=8", "--sequence=12"}),
              ::testing::HasSubstr("choose a multiple of 8"));
}

TEST(ContextParallelRefuses, HeadsThatTheRanksCannotShare) {
  EXPECT_THAT(refusal(four_heads, {"--strategy=cp=8", "--ranks=8", "--sequence=16", "--cp.attention=ulysses"}),
              ::testing::AllOf(::testing::HasSubstr("the number of attention heads is 4"),
                               ::testing::HasSubstr("--cp.attention gather")));
  EXPECT_THAT(refusal(four_heads, {"--strategy=cp=2+tp-sp=2", "--ranks=4", "--cp.attention=ulysses"}),
              ::testing::HasSubstr("heads of attention are divided"));
  EXPECT_THAT(refusal(four_heads, {"--strategy=cp=4+tp-sp=2", "--ranks=8", "--sequence=16", "--cp.attention=ulysses"}),
              ::testing::HasSubstr("heads of attention are divided"));
}

// A stage that begins between the products for keys and values is sent both keys and what they are made of: two messages, whose
// order no computation beside the gathers changes.
TEST(ContextParallelStages, ThatBeginWithinAttention) {
  const ModelChoice narrow{"llama-tied", R"({"head_dim":8,"hidden_size":8,"intermediate_size":16,"num_attention_heads":4,
                                             "num_key_value_heads":4,"num_hidden_layers":2,"vocab_size":37})"};
  for (const char* schedule : {"1f1b", "zero-bubble-h2"}) {
    for (const char* again : {"true", "false"})
      expect_one_rank(narrow, {"--strategy=cp=4+pipeline=2", "--ranks=8", "--accumulation=1", "--global-batch=3", "--sequence=8",
                               "--cp.gather-again=" + std::string(again), "--pipeline.schedule=" + std::string(schedule)});
  }
}

}  // namespace
}  // namespace consist::interpreter
