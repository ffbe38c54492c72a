// Experts that ranks share, with the batch in parts that take turns (--ep.parts): values beside one rank, and what the step looks
// like.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/lower/waits.h"
#include "core/program/operands.h"
#include "core/program/printer.h"
#include "tests/golden_text.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

/// Experts in the first and the last of three layers, trained to be balanced.

/// Parts of the batch that take turns: the router's statistics, and so its balance loss, stay those of the whole batch.
class ExpertsInTurns : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const std::string& strategy, int ranks, const Words& more) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks)} + more);
  }
};

TEST_P(ExpertsInTurns, Alone) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const Words more{"--ep.dispatch=" + std::string(dispatch), "--ep.capacity=4"};
    expect("ep=2", 2, more + Words{"--ep.parts=2"});
    expect("ep=2", 2, more + Words{"--ep.parts=4"});
    expect("ep=4", 4, more + Words{"--ep.parts=2", "--ep.delay-weight-gradients=false"});
    expect("ep=2", 2, more + Words{"--ep.parts=2", "--accumulation=2", "--recompute=full"});
    expect("ep=2", 2, more + Words{"--ep.parts=2", "--recompute=moe_swiglu,rms_norm", "--pack=off"});
  }
}

TEST_P(ExpertsInTurns, WithOthers) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const Words more{"--ep.dispatch=" + std::string(dispatch), "--ep.capacity=4", "--ep.parts=2", "--global-batch=16"};
    for (const char* with : {"ddp", "zero2", "zero3-offload", "tp-sp=2", "pipeline=2", "cp=2"}) {
      expect(std::string("ep=2+") + with, 4, more + Words{"--accumulation=2"});
      expect(std::string("ep=2+") + with, 4, more + Words{"--accumulation=2", "--recompute=full"});
    }
    for (const char* with : {"tp-sp=2+zero3-offload", "tp-sp=2+pipeline=2", "pipeline=2+zero2", "cp=2+ddp"})
      expect(std::string("ep=2+") + with, 8, more);
    expect("ep=2+tp-sp=2", 4, more + Words{"--tp-sp.sequence-parallel=false"});
    expect("ep=2+tp-sp=2", 4, more + Words{"--tp-sp.overlap-parts=2"});
    for (const char* attention : {"ring", "ulysses"})
      expect("ep=2+cp=2", 4, more + Words{"--cp.attention=" + std::string(attention)});
    for (const char* schedule : {"gpipe", "1f1b", "zero-bubble", "zero-bubble-h2"})
      expect("ep=2+pipeline=2", 4, more + Words{"--accumulation=4", "--pipeline.schedule=" + std::string(schedule)});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsInTurns,
                         ::testing::Values(Column{"qwen3_fp32", balanced}, Column{"mixtral_fp32", four_experts},
                                           Column{"qwen3_bf16", balanced, {"--precision=bf16"}}),
                         [](const auto& info) { return std::string(info.param.name); });

/// Attention reads where documents begin, of which each part has its own sequences.
TEST(InTurns, Documents) {
  const Words more{"--synthetic.fields=document_start", "--ep.capacity=2", "--ep.parts=2"};
  expect_one_rank(balanced, Words{"--strategy=ep=2", "--ranks=2"} + more);
  expect_one_rank(balanced, Words{"--strategy=ep=2+pipeline=2", "--ranks=4", "--accumulation=2"} + more);
}

/// Statistics that are not trained on are counted all the same.
TEST(InTurns, RoutersThatNothingBalances) {
  const ModelChoice free{"mixtral", R"({"output_router_logits": false, "router_z_loss_coef": 0})"};
  const Words more{"--synthetic.fields=loss_mask", "--ep.capacity=4", "--ep.parts=2", "--global-batch=16"};
  expect_one_rank(free, Words{"--strategy=ep=2+zero2", "--ranks=4", "--accumulation=2"} + more);
  expect_one_rank(free, Words{"--strategy=ep=2+pipeline=2", "--ranks=4"} + more);
}

/// Whose losses have the weight of the targets that count, of all parts together.
TEST(InTurns, RoutersThatTrainOnMaskedTargets) {
  const Words more{"--synthetic.fields=loss_mask", "--ep.capacity=4", "--ep.parts=2", "--global-batch=16", "--accumulation=2"};
  for (const ModelChoice& model : {balanced, four_experts}) {
    expect_one_rank(model, Words{"--strategy=ep=2", "--ranks=2"} + more);
    expect_one_rank(model, Words{"--strategy=ep=2+pipeline=2", "--ranks=4"} + more);
  }
}

/// Layouts of three and more axes, frozen parameters, states on the host.
TEST(InTurns, BesideRarerChoices) {
  const Words more{"--ep.capacity=4", "--ep.parts=2", "--global-batch=32"};
  expect_one_rank(balanced, Words{"--strategy=ep=2+zero3-offload=2x2", "--ranks=8"} + more);
  expect_one_rank(balanced,
                  Words{"--strategy=ep=2+zero3-offload", "--ranks=4", "--zero3-offload.offload-optimizer.device=cpu"} + more);
  expect_one_rank(balanced, Words{"--strategy=ep=2+zero2", "--ranks=4", "--freeze=*norm*,model.embed_tokens.*"} + more);
  expect_one_rank(four_experts, Words{"--strategy=ep=2+tp-sp=2+cp=2", "--ranks=8"} + more);
  expect_one_rank(ModelChoice{"mixtral", R"({"num_hidden_layers": 4})"},
                  {"--strategy=ep=2+pipeline=4", "--ranks=8", "--accumulation=4", "--global-batch=64", "--ep.parts=4",
                   "--recompute=full", "--ep.capacity=4"});
}

Program step_of(const ModelChoice& model, const Words& words) {
  return compile(config_of(model, words), 0)->steps.front().program;
}

TEST(InTurns, Golden) {
  const ModelChoice one_layer{"mixtral", R"({"num_hidden_layers": 1})"};
  test::expect_golden("ep_in_turns", to_text(step_of(one_layer, {"--strategy=ep=2", "--ranks=2", "--ep.parts=2"})));
}

/// Messages of tokens of a step.
std::vector<std::size_t> messages_of_tokens(const Program& step, Phase phase) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < step.instructions.size(); ++i) {
    const Instruction& c = step.instructions[i];
    if (!c.op->is_collective() || c.op->movement() == Movement::all_reduce || c.tag.phase != phase || c.tag.layer < 0) continue;
    found.push_back(i);
  }
  return found;
}

std::int64_t bytes_of_tokens(const Program& step) {
  std::int64_t sum = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const std::size_t i : messages_of_tokens(step, phase)) {
      const Instruction& c = step.instructions[i];
      sum += c.op->bytes_sent(message_bytes(step, c), step.mesh.size_of(c.attributes.axes("axis")));
    }
  }
  return sum;
}

TEST(InTurns, TheSameBytesTravel) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    // 64 tokens of a rank, all of which have an expert on each rank.
    const Words words{"--strategy=ep=4", "--ranks=4",       "--global-batch=16",
                      "--sequence=16",   "--ep.capacity=4", "--ep.dispatch=" + std::string(dispatch)};
    const std::int64_t whole = bytes_of_tokens(step_of(four_experts, words + Words{"--ep.parts=1"}));
    EXPECT_GT(whole, 0);
    for (const char* parts : {"2", "4"})
      EXPECT_EQ(bytes_of_tokens(step_of(four_experts, words + Words{"--ep.parts=" + std::string(parts)})), whole)
          << dispatch << " " << parts;
  }
}

/// Counts the messages of tokens with a product of another part, or of attention, between them and their first reader.
int hidden(const Program& step, Phase phase) {
  int count = 0;
  for (const std::size_t i : messages_of_tokens(step, phase)) {
    const TensorId made = step.instructions[i].outputs[0];
    for (std::size_t j = i + 1; j < step.instructions.size(); ++j) {
      const Instruction& next = step.instructions[j];
      if (next.op->touches_memory() && std::ranges::count(next.inputs, made) != 0) break;
      if (next.op->expert_weights() < 0 && !next.op->attends()) continue;
      ++count;
      break;
    }
  }
  return count;
}

TEST(InTurns, OnePartComputesBesideTheOthersMessages) {
  const ModelChoice model{"mixtral", R"({"num_hidden_layers": 4})"};
  for (const char* accumulation : {"1", "2"}) {
    const Words words{"--strategy=ep=2", "--ranks=2", "--ep.delay-weight-gradients=false",
                      "--accumulation=" + std::string(accumulation)};
    const Program whole = step_of(model, words + Words{"--ep.parts=1"}), turns = step_of(model, words + Words{"--ep.parts=2"});
    const int micro_batches = accumulation[0] - '0';
    EXPECT_EQ(hidden(whole, Phase::forward), 0);
    // Tokens, experts and weights of each part and layer are gathered, sums of all layers but the last are scattered. The last
    // part's experts are at work beside the others' sums; only the sums of the last layer's second part have nothing beside them.
    EXPECT_EQ(messages_of_tokens(turns, Phase::forward).size(), 2U * 4 * 3 * micro_batches + 2U * 3 * micro_batches);
    EXPECT_EQ(hidden(turns, Phase::forward), (2 * 4 * 3 + 2 * 3) * micro_batches);
    EXPECT_GT(hidden(turns, Phase::backward), 2 * hidden(whole, Phase::backward));
  }
}

TEST(InTurns, GradientsOfWeightsRunBesideMessagesOfTheWhole) {
  const Words words{"--strategy=ep=2", "--ranks=2", "--ep.parts=1"};
  const auto beside = [&](const char* delay) {
    const Program step = step_of(four_experts, words + Words{"--ep.delay-weight-gradients=" + std::string(delay)});
    int count = 0;
    for (const std::size_t i : messages_of_tokens(step, Phase::backward)) {
      const TensorId made = step.instructions[i].outputs[0];
      for (std::size_t j = i + 1; j < step.instructions.size(); ++j) {
        if (std::ranges::count(step.instructions[j].inputs, made) != 0) break;
        if (!step.instructions[j].op->makes_weight_gradients()) continue;
        ++count;
        break;
      }
    }
    return count;
  };
  EXPECT_GT(beside("true"), beside("false"));
}

/// The automatic choice leaves a batch whole if the model's messages are short beside the launches of twice the kernels.
TEST(InTurns, SmallBatchesStayWhole) {
  const auto cut = [](const Words& more) {
    const Program step = step_of(four_experts, Words{"--strategy=ep=2", "--ranks=2"} + more);
    return std::ranges::any_of(step.instructions, [](const Instruction& i) { return i.op->name() == "join"; });
  };
  EXPECT_FALSE(cut({}));
  EXPECT_TRUE(cut({"--ep.parts=2"}));
  EXPECT_FALSE(cut({"--ep.parts=1"}));
}

TEST(InTurns, AreRefusedWhereTheBatchCannotBeCut) {
  const Words two{"--strategy=ep=2", "--ranks=2"};
  EXPECT_NE(refusal(balanced, two + Words{"--ep.parts=3"}).find("--ep.parts is 3, but --batch is 4"), std::string::npos);
  EXPECT_NE(refusal(balanced, two + Words{"--ep.parts=2", "--precision=fp8"}).find("8-bit floats"), std::string::npos);
  EXPECT_NE(refusal(balanced, two + Words{"--ep.parts=-1"}).find("must be 0 (automatic) to 16"), std::string::npos);
}

TEST(InTurns, AStepWithoutRoomChangesNothing) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const auto programs = compile(config_of(balanced, {"--strategy=ep=2", "--ranks=2", "--ep.capacity=0.5", "--ep.parts=2",
                                                       "--ep.dispatch=" + std::string(dispatch)}),
                                  0);
    const Outcome found = run(*programs, {.steps = 1, .without_room = true});
    EXPECT_GT(found.overflow, 0) << dispatch;
    for (const auto& [name, values] : found.before) EXPECT_EQ(found.values.at(name), values) << dispatch << " " << name;
  }
}

}  // namespace
}  // namespace consist::interpreter
