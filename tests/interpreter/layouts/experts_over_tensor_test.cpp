// Experts that ranks of tensor parallelism share, alone and with the axis of experts: values beside one rank, bytes, memory, and
// what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "consist/error.h"
#include "consist/room.h"
#include "core/experts/room_for_rows.h"
#include "core/program/operands.h"
#include "core/program/printer.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

/// Experts in the first and the last of three layers, trained to be balanced. Words that two and four ranks can share, so that
/// tokens move as one message; and some that they cannot.

class ExpertsOverTensor : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const std::string& strategy, int ranks, const Words& more) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks)} + more);
  }
};

const Words plain{"--tp-sp.sequence-parallel=false"};

TEST_P(ExpertsOverTensor, Alone) {
  for (const int ranks : {2, 4}) {
    const std::string strategy = "tp-sp=" + std::to_string(ranks);
    const Words room{"--tp-sp.capacity=" + std::to_string(ranks)};
    expect(strategy, ranks, room);
    expect(strategy, ranks, room + plain);
    expect(strategy, ranks, room + Words{"--accumulation=2", "--recompute=full", "--tp-sp.gather-again=true"});
    expect(strategy, ranks, room + plain + Words{"--accumulation=2", "--recompute=full", "--tp-sp.delay-weight-gradients=false"});
    expect(strategy, ranks, room + Words{"--global-batch=8", "--recompute=moe_route,moe_dispatch", "--pack=off"});
  }
}

TEST_P(ExpertsOverTensor, WithOthers) {
  const Words more{"--tp-sp.capacity=2", "--accumulation=2"};
  for (const char* with : {"ddp", "zero2", "zero3-offload", "pipeline=2", "cp=2"}) {
    const std::string strategy = std::string("tp-sp=2+") + with;
    expect(strategy, 4, more);
    expect(strategy, 4, more + Words{"--recompute=full"});
    expect(strategy, 4, more + plain);
  }
  expect("tp-sp=2+cp=2", 4, more + Words{"--cp.attention=ring"});
  expect("tp-sp=2+pipeline=2+zero2", 8, more);
  expect("tp-sp=2+cp=2+zero3-offload", 8, more);
}

TEST_P(ExpertsOverTensor, WithTheAxisOfExperts) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const Words more{"--ep.dispatch=" + std::string(dispatch), "--ep.capacity=4", "--accumulation=2"};
    const std::string both = "ep=2+tp-sp=2";
    expect(both, 4, more);
    expect(both, 4, more + Words{"--recompute=full", "--tp-sp.gather-again=true"});
    expect(both, 4, more + plain);
    expect(both, 4, more + plain + Words{"--recompute=full"});
    expect(both, 4, more + Words{"--ep.delay-weight-gradients=false", "--tp-sp.delay-weight-gradients=false"});
    for (const char* with : {"ddp", "zero2", "zero3-offload", "pipeline=2", "cp=2"}) {
      expect(both + "+" + with, 8, more);
      expect(both + "+" + with, 8, more + Words{"--recompute=full"});
      expect(both + "+" + with, 8, more + plain);
    }
  }
}

TEST_P(ExpertsOverTensor, WholeOnEachRank) {
  const Words whole{"--tp-sp.experts=whole", "--accumulation=2"};
  expect("tp-sp=2", 2, whole);
  expect("tp-sp=2", 2, whole + plain);
  for (const char* dispatch : {"gather", "all-to-all"})
    expect("ep=2+tp-sp=2", 4, whole + Words{"--ep.capacity=2", "--ep.dispatch=" + std::string(dispatch)});
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsOverTensor,
                         ::testing::Values(Column{"qwen3_fp32", even_words}, Column{"odd_words_fp32", balanced},
                                           Column{"mixtral_fp32", four_experts},
                                           Column{"qwen3_bf16", even_words, {"--precision=bf16"}},
                                           Column{"qwen3_fp8", even_words, {"--precision=fp8"}}),
                         [](const auto& info) { return std::string(info.param.name); });

/// Forward in parts of the batch and of the only sequence, by either strategy and by both.
class ExpertsOverTensorInParts : public ExpertsOverTensor {};

TEST_P(ExpertsOverTensorInParts, OfTensorParallelism) {
  for (const char* parts : {"2", "4"}) {
    const Words more{"--tp-sp.capacity=2", "--tp-sp.overlap-parts=" + std::string(parts)};
    expect("tp-sp=2", 2, more + Words{"--global-batch=8"});
    expect("tp-sp=2", 2, more + Words{"--global-batch=8", "--accumulation=2", "--recompute=full"});
    expect("tp-sp=2", 2, more + Words{"--global-batch=1"});
  }
}

TEST_P(ExpertsOverTensorInParts, BesideTheAxisOfExperts) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const Words more{"--ep.dispatch=" + std::string(dispatch), "--ep.capacity=4"}, batch{"--global-batch=16"};
    const std::string both = "ep=2+tp-sp=2";
    expect(both, 4, more + batch + Words{"--ep.parts=2", "--accumulation=2"});
    expect(both, 4, more + batch + Words{"--ep.parts=2", "--recompute=full"} + plain);
    expect(both, 4, more + batch + Words{"--ep.parts=1", "--tp-sp.overlap-parts=2"});
    expect(both, 4, more + batch + Words{"--ep.parts=2", "--tp-sp.overlap-parts=2"});
    expect(both, 4, more + Words{"--global-batch=2", "--tp-sp.overlap-parts=2"});
    expect(both + "+zero2", 8, more + batch + Words{"--ep.parts=2", "--tp-sp.overlap-parts=2"});
    expect(both + "+pipeline=2", 8, more + batch + Words{"--ep.parts=2", "--accumulation=2"});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsOverTensorInParts,
                         ::testing::Values(Column{"qwen3_fp32", even_words}, Column{"mixtral_fp32", four_experts},
                                           Column{"qwen3_bf16", even_words, {"--precision=bf16"}}),
                         [](const auto& info) { return std::string(info.param.name); });

/// States on the host, frozen experts, other optimizers, tokens that do not count.
TEST(SharedOverTensor, BesideRarerChoices) {
  const Words more{"--strategy=ep=2+tp-sp=2+zero3-offload", "--ranks=8", "--ep.capacity=4"};
  expect_one_rank(even_words,
                  more + Words{"--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu"});
  for (const char* optimizer : {"sgd", "lion", "muon"}) {
    expect_one_rank(even_words, more + Words{"--optimizer=" + std::string(optimizer)});
    expect_one_rank(four_experts, Words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.capacity=2", "--max-norm=0.01",
                                        "--optimizer=" + std::string(optimizer)});
  }
  expect_one_rank(even_words, more + Words{"--freeze=model.layers.0.mlp.*"});
  const ModelChoice free{"mixtral", R"({"output_router_logits": false, "router_z_loss_coef": 0})"};
  expect_one_rank(free, Words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.capacity=2", "--synthetic.fields=loss_mask"});
  expect_one_rank(even_words,
                  Words{"--strategy=tp-sp=2+ddp", "--ranks=4", "--tp-sp.capacity=2", "--synthetic.fields=document_start"});
  const ModelChoice five_layers{"qwen3-moe", R"({"num_hidden_layers": 5, "vocab_size": 64})"};
  expect_one_rank(five_layers, more + Words{"--offload-activations=all", "--accumulation=2"});
}

TEST(SharedOverTensor, AreRefusedWhereTheyCannotBe) {
  const ModelChoice six{"qwen3-moe", R"({"num_experts": 6, "vocab_size": 64})"};
  EXPECT_EQ(refusal(six, {"--strategy=tp-sp=4", "--ranks=4"}),
            "tp-sp=4: the model has 6 experts, which 4 ranks cannot share equally; choose a size for tp-sp that divides them, or "
            "--tp-sp.experts whole (strategy 'tp-sp')");
  EXPECT_NE(refusal(six, {"--strategy=ep=2+tp-sp=2", "--ranks=4"}).find("6 experts, which 4 ranks (of the axes expert+tensor)"),
            std::string::npos);
  EXPECT_EQ(refusal(six, {"--strategy=tp-sp=4", "--ranks=4", "--tp-sp.experts=whole"}), "nothing was refused");
  EXPECT_EQ(refusal(six, {"--strategy=ep=2+tp-sp=2", "--ranks=4", "--tp-sp.experts=whole"}), "nothing was refused");
  // One room for both.
  const std::string twice = refusal(even_words, {"--strategy=ep=2+tp-sp=2", "--ranks=4", "--tp-sp.capacity=2"});
  EXPECT_NE(twice.find("--tp-sp.capacity is given, but another strategy divides experts as well (over expert)"),
            std::string::npos)
      << twice;
}

Program first_step(const ModelChoice& model, const Words& words) {
  return compile(config_of(model, words), 0)->steps.front().program;
}

/// The rows of the first dispatch that a rank has room for.
std::int64_t rows_of(const Words& words) {
  return least_room(first_step(even_words, Words{"--sequence=64", "--global-batch=8"} + words)).rows;
}

TEST(SharedOverTensor, OneCapacityIsOfAll) {
  const std::int64_t choices = 8 * 64 * 4;
  EXPECT_EQ(rows_of({"--strategy=tp-sp=2", "--ranks=2"}), choices / 2 * 5 / 4);
  EXPECT_EQ(rows_of({"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.capacity=1.5"}), choices / 2 * 3 / 2);
  EXPECT_EQ(rows_of({"--strategy=ep=2+tp-sp=2", "--ranks=4"}), choices / 4 * 5 / 4);
  EXPECT_EQ(rows_of({"--strategy=ep=2+tp-sp=2", "--ranks=4", "--ep.capacity=2"}), choices / 4 * 2);
  EXPECT_EQ(rounded_room(1, 2), 32);
  EXPECT_EQ(rounded_room(33, 2), 64);
  EXPECT_EQ(rounded_room(0, 1), 16);
}

TEST(SharedOverTensor, ACapacityHoldsWhereItsStrategyHasOneRank) {
  const auto text = [](const Words& words) { return to_text(first_step(even_words, words)); };
  const Words over_tensor{"--strategy=tp-sp=4", "--ranks=4"}, beside_ep{"--strategy=ep=1+tp-sp=4", "--ranks=4"};
  const std::string expected = text(over_tensor + Words{"--tp-sp.capacity=2"});
  EXPECT_EQ(text(beside_ep + Words{"--ep.capacity=2"}), expected);
  EXPECT_EQ(text({"--strategy=tp-sp=4+ep=1", "--ranks=4", "--ep.capacity=2"}), expected);
  EXPECT_EQ(text({"--strategy=cp=1+tp-sp=4", "--ranks=4", "--cp.experts=divided", "--cp.capacity=2"}), expected);
  EXPECT_EQ(text(beside_ep), text(over_tensor));
  EXPECT_EQ(text(beside_ep + Words{"--tp-sp.capacity=2"}), expected) << "ep says nothing but what is usual";
  EXPECT_EQ(text({"--strategy=ep=1", "--ranks=1", "--ep.capacity=2"}), text({"--strategy=ddp", "--ranks=1"}))
      << "nobody divides experts";
  EXPECT_EQ(refusal(even_words, beside_ep + Words{"--ep.capacity=2", "--tp-sp.capacity=3"}),
            "--tp-sp.capacity is given, but another strategy, of one rank, says how much room experts have; state the capacity "
            "there (strategy 'tp-sp')");
  EXPECT_NE(refusal(even_words, {"--strategy=ep=4+tp-sp=1", "--ranks=4", "--tp-sp.capacity=2"}).find("(over expert)"),
            std::string::npos);
}

TEST(SharedOverTensor, AStepWithoutRoomChangesNothing) {
  for (const Words& layout :
       {Words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.capacity=0.5"},
        Words{"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.capacity=0.5"} + plain,
        Words{"--strategy=ep=2+tp-sp=2", "--ranks=4", "--ep.capacity=0.5"},
        Words{"--strategy=ep=2+tp-sp=2", "--ranks=4", "--ep.capacity=0.5", "--ep.dispatch=all-to-all"} + plain,
        // Every token can be sent, since there is room for sixteen; rows of a quarter of them have room.
        Words{"--strategy=ep=2+tp-sp=2", "--ranks=4", "--ep.capacity=0.25", "--ep.dispatch=all-to-all", "--sequence=16",
              "--global-batch=4"} +
            plain}) {
    const auto programs = compile(config_of(even_words, layout), 0);
    const Outcome found = run(*programs, {.steps = 1, .without_room = true});
    EXPECT_GT(found.overflow, 0) << layout[0];
    for (const auto& [name, values] : found.before) EXPECT_EQ(found.values.at(name), values) << layout[0] << " " << name;
  }
}

/// Bytes that rank 0 sends over `axis` in forward and backward.
std::int64_t bytes_over(const Program& step, const std::string& axis, bool sums_for_all) {
  std::int64_t sum = 0;
  for (const Instruction& i : step.instructions) {
    if (!i.op->is_collective() || i.tag.phase == Phase::optimizer || step.mesh.text(i.attributes.axes("axis")) != axis) continue;
    if ((i.op->movement() == Movement::all_reduce) == sums_for_all)
      sum += i.op->bytes_sent(message_bytes(step, i), step.mesh.size_of(i.attributes.axes("axis")));
  }
  return sum;
}

/// By the formulas of the READMEs of tp-sp and ep: what is sent more than where every rank of the axis has all experts.
TEST(SharedOverTensor, SendAsManyBytesAsTheirFormulasSay) {
  const std::int64_t layers = 2, tp = 2, ep = 2, all = 8 * 32, hidden = 32, choices = 4;
  const std::int64_t of_token =
      4 * hidden * 4 + 12 * choices;  // there and back, forward and backward; experts, weights, their gradients
  const auto more = [&](const Words& words, const std::string& axis, bool sums_for_all) {
    const Words common = Words{"--sequence=32", "--global-batch=8"} + words;
    return bytes_over(first_step(even_words, common), axis, sums_for_all) -
           bytes_over(first_step(even_words, common + Words{"--tp-sp.experts=whole"}), axis, sums_for_all);
  };
  const Words alone{"--strategy=tp-sp=2", "--ranks=2"}, both{"--strategy=ep=2+tp-sp=2", "--ranks=4", "--ep.capacity=4"},
      sent{"--strategy=ep=2+tp-sp=2", "--ranks=4", "--ep.capacity=1", "--ep.dispatch=all-to-all"};
  EXPECT_EQ(more(alone, "tensor", false), layers * (tp - 1) * (all / tp) * of_token);
  // Without sequence parallelism: the sums, the gradients of tokens, and those of the weights of choices.
  EXPECT_EQ(more(alone + plain, "tensor", true), layers * 2 * (tp - 1) * (all / tp) * (2 * hidden * 4 + 4 * choices));
  EXPECT_EQ(more(both, "tensor", false), layers * (tp - 1) * ep * (all / (tp * ep)) * of_token);
  EXPECT_EQ(more(both, "expert", false), 0)
      << "a rank sends its own tokens to those of other nodes, whoever has which experts there";
  const std::int64_t room =
      all / (tp * ep);  // of 70 choices of 4 of 8 experts one has none of a group's 4: 63.1 of 64, in sixteens
  EXPECT_EQ(more(sent, "tensor", false), layers * (tp - 1) * ep * room * of_token);
  EXPECT_EQ(more(sent, "expert", false), 0);
  const std::int64_t over_expert =
      bytes_over(first_step(even_words, Words{"--sequence=32", "--global-batch=8"} + sent), "expert", false);
  EXPECT_EQ(over_expert, layers * (ep - 1) * room * of_token);
}

/// Parameters of experts, their gradients and their states: 1/tp of each.
TEST(SharedOverTensor, MemoryOfExpertsFalls) {
  const auto of_experts = [](const Words& words) {
    const Program step = first_step(even_words, words);
    std::int64_t bytes = 0, gradients = 0;
    for (const Parameter& parameter : step.parameters) {
      if (parameter.name.find("experts") == std::string::npos) continue;
      bytes += step.bytes(parameter.tensor);
      gradients += step.bytes(parameter.gradient);
    }
    return std::pair(bytes, gradients);
  };
  // Two layers have 8 experts each of three matrices of 32 x 16 in fp32.
  const std::int64_t all = std::int64_t{2} * 8 * 3 * 32 * 16 * 4;
  EXPECT_EQ(of_experts({"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.experts=whole"}), std::pair(all, all));
  EXPECT_EQ(of_experts({"--strategy=tp-sp=2", "--ranks=2"}), std::pair(all / 2, all / 2));
  EXPECT_EQ(of_experts({"--strategy=ep=2+tp-sp=2", "--ranks=4"}), std::pair(all / 4, all / 4));
  EXPECT_EQ(of_experts({"--strategy=ep=2+tp-sp=2", "--ranks=4", "--tp-sp.experts=whole"}), std::pair(all / 2, all / 2));
}

/// Rows that have no room are counted on all ranks once, without a message per layer.
TEST(SharedOverTensor, CountWhatHasNoRoomOncePerStep) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const Program step =
        first_step(even_words, Words{"--strategy=ep=2+tp-sp=2", "--ranks=4", "--ep.dispatch=" + std::string(dispatch)} + plain);
    const auto counted = std::ranges::count_if(step.instructions, [&](const Instruction& i) {
      return i.op->is_collective() && i.tag.phase == Phase::forward &&
             step[i.inputs[0]].name.find("overflow") != std::string::npos;
    });
    EXPECT_LE(counted, 1) << dispatch;
  }
}

}  // namespace
}  // namespace consist::interpreter
