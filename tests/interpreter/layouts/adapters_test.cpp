// Models with an adapter (--adapter) under every strategy: exact against one rank; neither gradients, states nor products for the
// model's own weights; and which placements the two narrow matrices have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "consist/error.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

const Words lora{"--adapter=lora", "--lora.rank=4", "--lora.alpha=6", "--lora.targets=all-linear"};
const Words attention_alone{"--adapter=lora", "--lora.rank=2", "--lora.targets=q_proj,v_proj,layers.0.self_attn.o_proj"};

class Adapted : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const Words& words) const {
    expect_one_rank(GetParam(), words + lora);
    expect_one_rank(GetParam(), words + attention_alone);
  }
};

TEST_P(Adapted, OneRank) {
  expect({"--accumulation=2", "--recompute=full"});
  expect({"--pack=off", "--optimizer=muon"});
}

TEST_P(Adapted, DataParallel) {
  expect({"--strategy=ddp", "--ranks=2", "--accumulation=2"});
  expect({"--strategy=zero2", "--ranks=2", "--accumulation=2"});
  expect({"--strategy=zero2", "--ranks=2", "--zero2.stage=1"});
}

TEST_P(Adapted, Offload) {
  expect({"--strategy=zero3-offload", "--ranks=2", "--accumulation=2", "--zero3-offload.param-persistence-threshold=100"});
  expect({"--strategy=zero3-offload", "--ranks=2", "--zero3-offload.param-persistence-threshold=100",
          "--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu",
          "--zero3-offload.offload-optimizer.update=cpu"});
}

TEST_P(Adapted, TensorParallel) {
  expect({"--strategy=tp-sp=2", "--ranks=2", "--accumulation=2", "--tp-sp.logits-bytes=1500"});
  expect({"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=false", "--recompute=full"});
  expect({"--strategy=tp-sp=2+zero2", "--ranks=4", "--tp-sp.overlap-parts=2"});
}

TEST_P(Adapted, ContextParallel) {
  expect({"--strategy=cp=2+ddp", "--ranks=4"});
  expect({"--strategy=cp=2+zero2", "--ranks=2", "--cp.attention=gather"});
}

TEST_P(Adapted, Pipeline) {
  expect({"--strategy=pipeline=2", "--ranks=2", "--accumulation=4", "--pipeline.schedule=zero-bubble"});
  expect({"--strategy=pipeline=2", "--ranks=2", "--accumulation=2", "--pipeline.schedule=1f1b", "--pipeline.cut=blocks"});
  expect({"--strategy=tp-sp=2+pipeline=2+zero2", "--ranks=8", "--accumulation=2"});
}

const ModelChoice deep_adapted{"llama-untied", R"({"num_hidden_layers": 4})"};

INSTANTIATE_TEST_SUITE_P(Models, Adapted,
                         ::testing::Values(Column{"untied", deep_adapted}, Column{"tied_bf16", four_heads, {"--precision=bf16"}},
                                           Column{"fp8", deep_adapted, {"--precision=fp8", "--fp8.except=*lora_*"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Adapters, RepeatKeyAndValueHeadsWhereRanksAreMore) {
  expect_one_rank(four_heads, lora + Words{"--strategy=tp-sp=4", "--ranks=4"});
  expect_one_rank(four_heads, lora + Words{"--strategy=cp=4", "--ranks=4", "--cp.attention=ulysses"});
}

TEST(Adapters, StandBesideExperts) {
  const Words beside{"--adapter=lora", "--lora.rank=2", "--lora.targets=q_proj,o_proj"};
  expect_one_rank(balanced, beside + Words{"--strategy=ep=2+zero2", "--ranks=4"});
  EXPECT_THAT(refusal(balanced, lora), ::testing::HasSubstr("experts"));
}

/// The step of rank 0.
Program adapted_step(const Words& words) {
  return compile(config_of(deep_adapted, words), 0)->steps.front().program;
}

TEST(Adapters, TrainAndKeepStatesOfTheirOwnParametersAlone) {
  for (const char* strategy : {"ddp", "zero2", "zero3-offload", "tp-sp=2"}) {
    const Program program =
        adapted_step(lora + Words{"--strategy=" + std::string(strategy), "--ranks=2", "--precision=bf16", "--pack=off"});
    std::size_t trained = 0;
    for (const Parameter& p : program.parameters) {
      const bool added = p.name.find(".lora_") != std::string::npos;
      trained += added ? 1 : 0;
      EXPECT_EQ(p.trainable, added) << p.name;
      EXPECT_EQ(p.gradient != no_tensor, added) << p.name;
      EXPECT_EQ(p.master != no_tensor, added) << p.name;
      EXPECT_EQ(!p.states.empty(), added) << p.name;
    }
    EXPECT_EQ(trained, 4U * 7 * 2) << strategy;
    const auto gradients = std::count_if(program.instructions.begin(), program.instructions.end(),
                                         [](const Instruction& i) { return i.op->name() == "linear_weight_grad"; });
    EXPECT_EQ(gradients, 4 * 7 * 2) << strategy;
  }
}

TEST(Adapters, AreCutAsTheWeightBesideThem) {
  const Program program = adapted_step(lora + Words{"--strategy=tp-sp=2", "--ranks=2"});
  const auto placement = [&](const std::string& name) {
    const auto found = std::find_if(program.parameters.begin(), program.parameters.end(),
                                    [&](const Parameter& p) { return p.name == "model.layers.0." + name + ".weight"; });
    return program[found->tensor].placements[0];
  };
  for (const char* module : {"self_attn.q_proj", "mlp.up_proj"}) {
    EXPECT_EQ(placement(module), Placement::shard(0));
    EXPECT_EQ(placement(std::string(module) + ".lora_A"), Placement::replicate());
    EXPECT_EQ(placement(std::string(module) + ".lora_B"), Placement::shard(0));
  }
  for (const char* module : {"self_attn.o_proj", "mlp.down_proj"}) {
    EXPECT_EQ(placement(module), Placement::shard(1));
    EXPECT_EQ(placement(std::string(module) + ".lora_A"), Placement::shard(1));
    EXPECT_EQ(placement(std::string(module) + ".lora_B"), Placement::replicate());
  }
}

// Of many tokens, too: slices of the narrow activation's channels would be a message for each token.
TEST(Adapters, MoveNothingAlongTheRank) {
  for (const char* whole : {"--tp-sp.sequence-parallel=true", "--tp-sp.sequence-parallel=false"}) {
    const Program program = adapted_step(lora + Words{"--strategy=tp-sp=2", "--ranks=2", whole});
    for (const Instruction& i : program.instructions) {
      if (i.op->is_collective()) EXPECT_NE(i.attributes.integer_or("dim", -1), 2) << program[i.inputs[0]].name;
    }
  }
}

TEST(Adapters, RefuseWhatNamesNothing) {
  using ::testing::AllOf, ::testing::HasSubstr;
  EXPECT_THAT(refusal(deep_adapted, {"--adapter=lora", "--lora.targets=q_porj"}),
              AllOf(HasSubstr("'q_porj' names no linear"), HasSubstr("down_proj"), HasSubstr("q_proj")));
  EXPECT_THAT(refusal(deep_adapted, {"--adapter=lora", "--lora.targets=lm_head"}), HasSubstr("names no linear"));
  EXPECT_THAT(refusal(deep_adapted, {"--adapter=lora", "--lora.targets=q_proj,"}), HasSubstr("empty name"));
  EXPECT_THAT(refusal(deep_adapted, {"--adapter=lora", "--lora.dropout=0.1"}), HasSubstr("--lora.dropout"));
  EXPECT_THAT(refusal(deep_adapted, {"--adapter=lora", "--train-only=*norm*"}), HasSubstr("--train-only"));
  EXPECT_THAT(refusal(deep_adapted, {"--lora.rank=4"}), HasSubstr("'lora' is not part of this configuration"));
  EXPECT_THAT(refusal(deep_adapted, {"--adapter=lola"}), HasSubstr("there is no adapter 'lola'"));
}

}  // namespace
}  // namespace consist::interpreter
