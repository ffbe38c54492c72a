// Frozen parameters (--freeze, --train-only) under every strategy: exact against one rank, which itself trains what is left as if
// nothing were frozen; and neither gradients, states, messages nor products for what is frozen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "consist/error.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

const Words choices{
    "--freeze=model.embed_tokens.weight",                   // the embedding, or a tied table
    "--freeze=model.embed_tokens.weight,model.layers.0.*",  // the lower half
    "--train-only=*norm*",                                  // no matrix at all
    "--train-only=model.layers.1.mlp.*",                    // below and above only frozen ones
};
const Words more_choices{
    "--freeze=model.layers.*",            // all between the tables
    "--freeze=*q_proj*,*mlp.gate_proj*",  // of products that are packed, some
    "--train-only=model.norm.weight",     // nothing of any layer: earlier stages train nothing
    "--train-only=*v_proj*",
};

class Frozen : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const Words& words, const Words& chosen = choices) const {
    for (const std::string& choice : chosen) expect_one_rank(GetParam(), words + Words{choice});
  }
};

TEST_P(Frozen, OneRank) {
  expect({"--accumulation=2", "--recompute=full"}, choices + more_choices);
}

TEST_P(Frozen, DataParallel) {
  expect({"--strategy=ddp", "--ranks=2", "--accumulation=2"});
  expect({"--strategy=zero2", "--ranks=2", "--accumulation=2"}, choices + more_choices);
  expect({"--strategy=zero2", "--ranks=2", "--accumulation=2", "--zero2.stage=1"});
}

TEST_P(Frozen, Offload) {
  expect({"--strategy=zero3-offload", "--ranks=2", "--accumulation=2", "--zero3-offload.param-persistence-threshold=100"},
         choices + more_choices);
  expect({"--strategy=zero3-offload", "--ranks=2", "--zero3-offload.param-persistence-threshold=100",
          "--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu",
          "--zero3-offload.offload-optimizer.update=cpu"});
}

TEST_P(Frozen, TensorParallel) {
  expect({"--strategy=tp-sp=2", "--ranks=2", "--accumulation=2", "--tp-sp.logits-bytes=1500"}, choices + more_choices);
  expect({"--strategy=tp-sp=2+zero2", "--ranks=4", "--tp-sp.overlap-parts=2"});
}

TEST_P(Frozen, Pipeline) {
  expect({"--strategy=pipeline=2", "--ranks=2", "--accumulation=4", "--pipeline.schedule=zero-bubble"}, choices + more_choices);
  for (const char* schedule : {"1f1b", "gpipe"})
    expect({"--strategy=pipeline=2", "--ranks=2", "--accumulation=2", "--pipeline.schedule=" + std::string(schedule)},
           more_choices);
  expect({"--strategy=tp-sp=2+pipeline=2+zero2", "--ranks=8", "--accumulation=2"}, more_choices);
}

const ModelChoice deep_untied{"llama-untied", R"({"num_hidden_layers": 4})"},
    tied{"qwen3-tied", R"({"num_attention_heads": 4, "num_key_value_heads": 2})"};

INSTANTIATE_TEST_SUITE_P(Models, Frozen,
                         ::testing::Values(Column{"untied", deep_untied}, Column{"tied_bf16", tied, {"--precision=bf16"}},
                                           Column{"fp8", deep_untied, {"--precision=fp8"}}),
                         [](const auto& info) { return std::string(info.param.name); });

// Stages that are cut within the first layer, as where a head alone trains, which then costs more than the layers.
TEST(FrozenParameters, OfStagesThatBeginWithinALayer) {
  const ModelChoice shallow{"qwen3-tied", R"({"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
                                              "tie_word_embeddings": false, "vocab_size": 64})"};
  const Words words{"--tp-sp.sequence-parallel=false", "--pipeline.cut=blocks", "--pipeline.rank-speeds=0.001:1", "--sequence=16"};
  for (const char* choice : {"lm_head.weight", "model.norm.weight", "model.layers.1.*"}) {
    const Words chosen = words + Words{"--train-only=" + std::string(choice)};
    expect_one_rank(shallow, chosen + Words{"--strategy=tp-sp=2+pipeline=2", "--ranks=4"});
    expect_one_rank(shallow, chosen + Words{"--strategy=cp=2+tp-sp=2+pipeline=2", "--ranks=8"});
  }
}

/// A run of one rank whose norm is not limited, so that no gradient depends on another.
const Outcome& outcome(const Words& words) {
  return one_rank(*compile(config_of(deep_untied, Words{"--max-norm=0"} + words), 0));
}

TEST(FrozenParameters, KeepTheirValuesAndTheOthersTrainAsBefore) {
  const Outcome &all = outcome({}), &some = outcome({"--freeze=model.embed_tokens.weight,model.layers.0.*"});
  EXPECT_EQ(some.losses[0], all.losses[0]);
  EXPECT_NE(some.losses[1], all.losses[1]);
  for (const auto& [name, values] : all.after_first_step) {
    const bool frozen = name.starts_with("model.embed_tokens.") || name.starts_with("model.layers.0.");
    const auto here = some.after_first_step.find(name);
    if (frozen && name.find(".moment") != std::string::npos) {
      EXPECT_EQ(here, some.after_first_step.end()) << name;
    } else {
      ASSERT_NE(here, some.after_first_step.end()) << name;
      EXPECT_EQ(here->second == values, !frozen) << name;
    }
  }
}

/// The step of rank 0.
Program step_of(const Words& words) {
  return compile(config_of(deep_untied, words), 0)->steps.front().program;
}

std::size_t count(const Program& program, const std::string& op) {
  return static_cast<std::size_t>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                                [&](const Instruction& i) { return i.op->name() == op; }));
}

TEST(FrozenParameters, HaveNoGradientNoStateAndNoMessage) {
  for (const char* strategy : {"ddp", "zero2", "zero3-offload", "tp-sp=2"}) {
    const Program program = step_of({"--strategy=" + std::string(strategy), "--ranks=2", "--precision=bf16", "--pack=off",
                                     "--freeze=model.embed_tokens.weight,model.layers.0.*"});
    std::set<std::string> frozen;
    for (const Parameter& p : program.parameters) {
      if (p.trainable) continue;
      frozen.insert(p.name);
      EXPECT_EQ(p.gradient, no_tensor) << p.name;
      EXPECT_EQ(p.master, no_tensor) << p.name;
      EXPECT_TRUE(p.states.empty()) << p.name;
    }
    EXPECT_THAT(frozen, ::testing::Contains("model.layers.0.mlp.up_proj.weight"));
    for (const Instruction& i : program.instructions) {
      EXPECT_FALSE(i.tag.phase == Phase::backward && i.tag.layer == 0) << strategy << ": " << i.op->name();
      for (TensorId output : i.outputs) {
        if (output == no_tensor) continue;
        for (const std::string& name : frozen) {
          EXPECT_FALSE(program[output].name.starts_with(name + ".")) << strategy << ": " << program[output].name;
          if (i.op->is_collective() && std::string_view(strategy) != "zero3-offload") {
            EXPECT_NE(program[output].name, name) << strategy;
          }
        }
      }
    }
  }
}

TEST(FrozenParameters, CostNoProduct) {
  const Words words{"--pack=off"};
  const Program all = step_of(words),
                half = step_of(words + Words{"--freeze=model.embed_tokens.weight,model.layers.0.*,model.layers.1.*"});
  EXPECT_EQ(count(half, "linear"), count(all, "linear"));
  EXPECT_EQ(2 * count(half, "linear_weight_grad"), count(all, "linear_weight_grad"));
  EXPECT_EQ(2 * count(half, "attention_grad"), count(all, "attention_grad"));
  // Nobody wants the gradient of what enters the lowest layer that trains.
  EXPECT_EQ(count(step_of(words + Words{"--train-only=lm_head.weight"}), "rms_norm_grad"), 0U);
  EXPECT_EQ(count(step_of(words + Words{"--train-only=*norm*"}), "linear_weight_grad"), 0U);
}

TEST(FrozenParameters, PatternsThatMatchNothingOrEverythingAreRefused) {
  using ::testing::AllOf, ::testing::HasSubstr;
  EXPECT_THAT(refusal(deep_untied, {"--freeze=model.layer.0.*"}),
              AllOf(HasSubstr("--freeze 'model.layer.0.*' matches no parameter"), HasSubstr("Did you mean 'model.layers.0")));
  EXPECT_THAT(refusal(deep_untied, {"--train-only=lm_haed.weight"}),
              AllOf(HasSubstr("--train-only"), HasSubstr("Did you mean 'lm_head.weight'?")));
  EXPECT_THAT(refusal(deep_untied, {"--freeze=*"}), HasSubstr("nothing would be trained"));
  EXPECT_THAT(refusal(deep_untied, {"--freeze=model.norm.weight,"}), HasSubstr("empty pattern"));
  EXPECT_THROW(parse_freeze("a", "b"), UsageError);
}

}  // namespace
}  // namespace consist::interpreter
