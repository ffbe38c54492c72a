// Frozen weights in blocks of codes (--frozen-weights) under every strategy: exact against one rank, which has the same blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

const ModelChoice four_layers{"llama-untied", R"({"num_hidden_layers": 4})"};
const Words narrow_pair{"--adapter=lora", "--lora.rank=4", "--lora.targets=q_proj,o_proj,up_proj"};

void expect_in_blocks(const Words& words) {
  expect_one_rank(four_layers, words + narrow_pair + Words{"--frozen-weights=nf4:4"});
  expect_one_rank(four_layers, words + Words{"--freeze=*q_proj*,*mlp.*", "--frozen-weights=e4m3:2"});
}

TEST(FrozenBlocks, OneRank) {
  expect_in_blocks({"--accumulation=2"});
  expect_in_blocks({"--recompute=full", "--precision=bf16"});
  expect_in_blocks({"--pack=off"});
}

TEST(FrozenBlocks, DataParallel) {
  expect_in_blocks({"--strategy=ddp", "--ranks=2", "--accumulation=2"});
  expect_in_blocks({"--strategy=zero2", "--ranks=2", "--precision=bf16"});
}

TEST(FrozenBlocks, Offload) {
  expect_in_blocks(
      {"--strategy=zero3-offload", "--ranks=2", "--accumulation=2", "--zero3-offload.param-persistence-threshold=100"});
  expect_in_blocks({"--strategy=zero3-offload", "--ranks=4", "--zero3-offload.param-persistence-threshold=100",
                    "--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu",
                    "--zero3-offload.offload-optimizer.update=cpu"});
}

// Flat slices of the bytes that begin within a block, whose scale another rank has.
TEST(FrozenBlocks, AreGatheredBeforeTheyAreDecoded) {
  expect_in_blocks(
      {"--strategy=zero3-offload", "--ranks=3", "--global-batch=6", "--zero3-offload.param-persistence-threshold=100"});
}

TEST(FrozenBlocks, TensorParallel) {
  expect_in_blocks({"--strategy=tp-sp=2", "--ranks=2", "--accumulation=2"});
  expect_in_blocks({"--strategy=tp-sp=2+zero2", "--ranks=4", "--tp-sp.overlap-parts=2"});
  expect_one_rank(four_heads,
                  {"--strategy=tp-sp=4", "--ranks=4", "--freeze=*_proj*", "--frozen-weights=nf4:1"});  // heads are repeated
}

TEST(FrozenBlocks, ContextParallelAndPipeline) {
  expect_in_blocks({"--strategy=cp=2+ddp", "--ranks=4"});
  expect_in_blocks({"--strategy=pipeline=2", "--ranks=2", "--accumulation=4", "--pipeline.schedule=zero-bubble"});
  expect_in_blocks({"--strategy=tp-sp=2+pipeline=2+zero3-offload", "--ranks=8", "--accumulation=2",
                    "--zero3-offload.param-persistence-threshold=100"});
}

TEST(FrozenBlocks, Experts) {
  const Words blocks{"--adapter=lora", "--lora.rank=2", "--lora.targets=q_proj,o_proj", "--frozen-weights=nf4:2"};
  expect_one_rank(balanced, blocks + Words{"--strategy=ep=2+zero2", "--ranks=4"});
  expect_one_rank(balanced, blocks + Words{"--strategy=tp-sp=2", "--ranks=2"});
}

Program step_with(const Words& words, const ModelChoice& model = four_layers) {
  return compile(config_of(model, words), 0)->steps.front().program;
}

// Frozen matrices of linears are bytes, and nothing else is; experts' are among them.
TEST(FrozenBlocks, HoldFrozenMatricesOfLinearsAlone) {
  for (const Parameter& p : step_with(narrow_pair + Words{"--frozen-weights=nf4:4"}).parameters) {
    const bool is_linear = p.name.find("_proj.weight") != std::string::npos;
    EXPECT_EQ(p.blocks.any(), is_linear) << p.name;
  }
  const Program mixture = step_with({"--adapter=lora", "--lora.targets=q_proj", "--frozen-weights=nf4:2"}, balanced);
  EXPECT_TRUE(std::ranges::any_of(mixture.parameters,
                                  [&](const Parameter& p) { return p.blocks.any() && mixture[p.tensor].shape.rank() == 3; }));
}

// Nothing that was decoded outlives its layer: what backward reads is made again there, once.
TEST(FrozenBlocks, AreDecodedAgainForBackward) {
  for (const char* recompute : {"none", "full"}) {
    const Program program =
        step_with(narrow_pair + Words{"--frozen-weights=nf4:4", "--recompute=" + std::string(recompute), "--pack=off"});
    std::map<TensorId, const Instruction*> makers;
    int forward = 0, backward = 0;
    for (const Instruction& i : program.instructions) {
      for (const TensorId input : i.inputs) {
        const auto maker = makers.find(input);
        if (maker == makers.end()) continue;
        EXPECT_EQ(maker->second->tag.phase, i.tag.phase) << program[input].name;
        EXPECT_EQ(maker->second->tag.layer, i.tag.layer) << program[input].name;
      }
      if (!i.op->remade_in_backward()) continue;
      makers[i.outputs[0]] = &i;
      (i.tag.phase == Phase::forward ? forward : backward)++;
    }
    EXPECT_EQ(forward, 4 * 7);
    EXPECT_EQ(backward, forward - (std::string(recompute) == "none" ? 3 : 0))
        << "the inputs of q, k and v in layer 0 have no gradient";
  }
}

TEST(FrozenBlocks, RefuseWhatTheyCannotHold) {
  EXPECT_THAT(refusal(four_layers, {"--frozen-weights=nf4"}),
              AllOf(HasSubstr("no weight of a linear is frozen"), HasSubstr("--adapter")));
  EXPECT_THAT(refusal(four_layers, {"--freeze=*norm*", "--frozen-weights=nf4"}), HasSubstr("no weight of a linear is frozen"));
  EXPECT_THAT(refusal(four_layers, narrow_pair + Words{"--frozen-weights=nf4"}),
              AllOf(HasSubstr("no whole blocks"), HasSubstr("nf4:32")));
  EXPECT_THAT(refusal(four_layers, narrow_pair + Words{"--frozen-weights=nf4:32", "--strategy=tp-sp=2", "--ranks=2"}),
              AllOf(HasSubstr("a rank holds"), HasSubstr("no whole blocks")));
  EXPECT_THAT(refusal(four_layers, narrow_pair + Words{"--frozen-weights=nf4:4", "--precision=fp8"}),
              AllOf(HasSubstr("8-bit copies"), HasSubstr("--precision bf16")));
}

}  // namespace
}  // namespace consist::interpreter
