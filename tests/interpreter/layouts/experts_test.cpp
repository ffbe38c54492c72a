// Mixtures of experts: their layouts beside one rank, the auxiliary loss among what is compared.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "consist/error.h"
#include "core/experts/room_for_rows.h"
#include "core/program/operands.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

/// Experts in the first and the last of three layers, trained to be balanced.

class Experts : public ::testing::TestWithParam<Column> {
 protected:
  /// A group of ep ranks has room for all that can happen.
  void expect(const std::string& strategy, int ranks, const Words& more = {}) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks)} + more);
  }
};

TEST_P(Experts, OnEveryRank) {
  for (const char* data : {"ddp", "zero2", "zero3-offload"}) expect(data, 2, {"--accumulation=2"});
  expect("pipeline=2", 2, {"--accumulation=2"});
  expect("ddp", 1, {"--recompute=full", "--accumulation=2"});
}

TEST_P(Experts, SharedByRanks) {
  const Words room{"--ep.capacity=4"};
  for (const int ranks : {2, 4}) {
    const std::string ep = "ep=" + std::to_string(ranks);
    expect(ep, ranks, room);
    expect(ep, ranks, room + Words{"--accumulation=2", "--recompute=full"});
  }
}

/// Tokens that travel where their experts are, instead of everywhere.
TEST_P(Experts, SharedByAllToAll) {
  const Words sends{"--ep.dispatch=all-to-all", "--ep.capacity=4"};
  for (const int ranks : {2, 4}) {
    const std::string ep = "ep=" + std::to_string(ranks);
    expect(ep, ranks, sends);
    expect(ep, ranks, sends + Words{"--accumulation=2", "--recompute=full"});
  }
}

TEST_P(Experts, PairsByAllToAll) {
  const Words more{"--ep.dispatch=all-to-all", "--ep.capacity=4", "--accumulation=2"};
  for (const char* with : {"ddp", "zero2", "zero3-offload", "tp-sp=2", "pipeline=2", "cp=2"}) {
    expect(std::string("ep=2+") + with, 4, more);
    expect(std::string("ep=2+") + with, 4, more + Words{"--recompute=full"});
  }
  expect("ep=2+tp-sp=2", 4, more + Words{"--tp-sp.sequence-parallel=false"});
}

/// A token's id chooses its experts, wherever the token is.
TEST_P(Experts, OfAStatedLoad) {
  const Words more{"--expert-load=zipf:1", "--accumulation=2"}, room{"--ep.capacity=4"};
  for (const char* with : {"zero3-offload", "pipeline=2", "cp=2"}) expect(with, 2, more);
  expect("ep=2", 2, more + room + Words{"--recompute=full"});
  expect("ep=2+tp-sp=2", 4, more + room + Words{"--ep.dispatch=all-to-all"});
  expect("ep=2+pipeline=2", 4, more + room);
}

TEST_P(Experts, Pairs) {
  const Words more{"--ep.capacity=4", "--accumulation=2"};
  for (const char* with : {"ddp", "zero2", "zero3-offload", "tp-sp=2", "pipeline=2", "cp=2"}) {
    expect(std::string("ep=2+") + with, 4, more);
    expect(std::string("ep=2+") + with, 4, more + Words{"--recompute=full"});
  }
}

/// No rank needs more room than for all rows.
TEST(SharedExperts, ACapacityWithoutBoundsIsRoomForAll) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const auto bytes = [&](const char* capacity) {
      const auto programs =
          compile(config_of({"qwen3-moe"}, {"--strategy=ep=2", "--ranks=2", "--ep.dispatch=" + std::string(dispatch),
                                            "--ep.capacity=" + std::string(capacity)}),
                  0);
      return programs->steps[0].plan.bytes[0];
    };
    for (const char* capacity : {"1e9", "1e12", "1e18", "1e300"}) EXPECT_EQ(bytes(capacity), bytes("2")) << dispatch << capacity;
  }
  expect_one_rank(ModelChoice{"qwen3-moe"}, {"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.capacity=1e18"});
}

/// Routers choose for tokens whose targets do not count, too; ranks and micro-batches have different numbers of those that do.
TEST_P(Experts, TrainToBeBalancedOnMaskedTargets) {
  const Words masked{"--synthetic.fields=loss_mask", "--accumulation=2"}, room{"--ep.capacity=4"};
  for (const char* with : {"ddp", "zero2", "pipeline=2"}) expect(with, 2, masked);
  for (const char* dispatch : {"gather", "all-to-all"})
    expect("ep=2", 2, masked + room + Words{"--ep.dispatch=" + std::string(dispatch)});
  for (const char* with : {"tp-sp=2", "cp=2", "pipeline=2"})
    expect(std::string("ep=2+") + with, 4, masked + room + Words{"--recompute=full"});
}

/// A mask affects the language-model loss alone: with SGD, the part of a step that a balance loss adds is the same with and
/// without.
TEST(SharedExperts, AMaskDoesNotChangeWhatTheBalanceLossAdds) {
  const auto step = [](double weight, const Words& more) {
    const ModelChoice model{"qwen3-moe", R"({"router_aux_loss_coef": )" + std::to_string(weight) + "}"};
    const Words words{"--optimizer=sgd", "--max-norm=0"};
    return run(*compile(config_of(model, words + more), 0), {.steps = 1});
  };
  const Words masked{"--synthetic.fields=loss_mask"};
  const Outcome with = step(0.5, {}), without = step(0, {}), masked_with = step(0.5, masked), masked_without = step(0, masked);
  EXPECT_NEAR(masked_with.auxiliary_losses.at(0), with.auxiliary_losses.at(0), 1e-12);
  EXPECT_GT(with.auxiliary_losses.at(0), 0.1);
  EXPECT_GT(std::abs(masked_with.losses.at(0) - with.losses.at(0)), 1e-6)
      << "the mask changes nothing, so that this says nothing";
  double largest = 0;
  for (const auto& [name, values] : with.values) {
    if (name.find("mlp.gate.weight.gradient") == std::string::npos) continue;
    for (std::size_t e = 0; e < values.size(); ++e) {
      const double added = values[e] - without.values.at(name)[e];
      EXPECT_NEAR(masked_with.values.at(name)[e] - masked_without.values.at(name)[e], added, 1e-12) << name;
      largest = std::max(largest, std::abs(added));
    }
  }
  EXPECT_GT(largest, 1e-6);
}

/// A rank's stages of which some have experts and some have not.
TEST(SharedExperts, InterleavedStages) {
  const ModelChoice four_layers{"qwen3-moe", R"({"num_hidden_layers": 4})"};
  expect_one_rank(four_layers, {"--strategy=ep=2+pipeline=2", "--ranks=4", "--ep.capacity=2", "--accumulation=2",
                                "--pipeline.schedule=interleaved", "--pipeline.chunks=2"});
  expect_one_rank(four_layers, {"--strategy=ep=2+pipeline=2", "--ranks=4", "--ep.capacity=2", "--accumulation=2",
                                "--pipeline.schedule=interleaved", "--pipeline.chunks=2", "--ep.parts=2"});
}

TEST_P(Experts, Triples) {
  const Words more{"--ep.capacity=4", "--accumulation=1"};
  for (const char* with :
       {"tp-sp=2+zero3-offload", "tp-sp=2+pipeline=2", "pipeline=2+zero2", "pipeline=2+ddp", "cp=2+zero2", "cp=2+ddp"}) {
    expect(std::string("ep=2+") + with, 8, more);
    expect(std::string("ep=2+") + with, 8, more + Words{"--ep.dispatch=all-to-all"});
  }
}

/// Sizes, strategies, schedules, precisions and optimizers by chance, always the same.
TEST(SharedExperts, SeededConfigurations) {
  std::mt19937 random(11);
  const auto one_of = [&](std::initializer_list<const char*> words) {
    return std::string(*(words.begin() + random() % words.size()));
  };
  int compiled = 0;
  for (int n = 0; n < 40; ++n) {
    const std::string ep = one_of({"2", "2", "4"});
    const nlohmann::json changes{{"num_experts", std::stoi(one_of({"4", "8", "12"}))},
                                 {"num_experts_per_tok", std::stoi(one_of({"1", "2", "4"}))},
                                 {"moe_intermediate_size", std::stoi(one_of({"4", "12", "16"}))},
                                 {"norm_topk_prob", random() % 2 == 0},
                                 {"router_z_loss_coef", random() % 2 == 0 ? 0.01 : 0.0},
                                 {"tie_word_embeddings", random() % 2 == 0},
                                 {"mlp_only_layers", random() % 2 == 0 ? nlohmann::json{1} : nlohmann::json::array()}};
    Words words{"--ep.capacity=" + ep,
                "--ep.dispatch=" + one_of({"gather", "all-to-all"}),
                "--accumulation=" + one_of({"1", "2"}),
                "--ep.parts=" + one_of({"0", "1", "2"}),
                "--global-batch=32",
                "--recompute=" + one_of({"none", "full", "moe_swiglu", "moe_route,moe_dispatch"}),
                "--precision=" + one_of({"fp32", "bf16", "fp8"}),
                "--pack=" + one_of({"on", "off"}),
                "--max-norm=" + one_of({"0", "0.01", "1"}),
                "--optimizer=" + one_of({"adamw", "adamw", "sgd", "lion", "muon"})};
    std::string strategy = "ep=" + ep;
    int ranks = std::stoi(ep);
    const bool with_data = random() % 3 != 0;
    if (with_data) {
      strategy = one_of({"ddp=2+", "zero2=2+", "zero3-offload=2+"}) + strategy;
      ranks *= 2;
    }
    if (ranks < 8 && random() % 3 != 0) {
      const std::string other = one_of({"tp-sp=2", "pipeline=2", "cp=2"});
      strategy += "+" + other;
      ranks *= 2;
      if (other == "pipeline=2") words.push_back("--pipeline.schedule=" + one_of({"gpipe", "1f1b", "zero-bubble"}));
      if (other == "tp-sp=2") {
        words.push_back("--tp-sp.overlap-parts=" + one_of({"1", "2"}));
        words.push_back("--tp-sp.experts=" + one_of({"divided", "divided", "whole"}));
        words.front() = "--ep.capacity=8";
      }
    }
    words.push_back("--strategy=" + strategy);
    words.push_back("--ranks=" + std::to_string(ranks));
    const ModelChoice model{"qwen3-moe", changes.dump()};
    try {
      for (const std::string& wrong : check(model, words, static_cast<std::uint64_t>(n)))
        ADD_FAILURE() << text_of(model, words) << "\n" << wrong;
      ++compiled;
    } catch (const UsageError&) {
      continue;
    }
  }
  EXPECT_GT(compiled, 30);
}

INSTANTIATE_TEST_SUITE_P(Models, Experts,
                         ::testing::Values(Column{"qwen3_fp32", balanced}, Column{"mixtral_fp32", four_experts},
                                           Column{"qwen3_bf16", balanced, {"--precision=bf16"}},
                                           Column{"qwen3_fp8", balanced, {"--precision=fp8"}},
                                           Column{"qwen3_fp8_delayed", balanced, {"--precision=fp8", "--fp8.scaling=delayed"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SharedExperts, AreRefusedWhereTheyCannotBe) {
  const auto refusal = [](const ModelChoice& model, const Words& words) -> std::string {
    try {
      compile(config_of(model, words), 0);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({"qwen3-tied"}, {"--strategy=ep=2", "--ranks=2"}).find("no experts"), std::string::npos);
  EXPECT_NE(refusal(balanced, {"--strategy=ep=3", "--ranks=3", "--global-batch=9"}).find("8 experts"), std::string::npos);
}

/// Bytes that rank 0 sends in a step, by the formulas of the strategy's README.md.
TEST(SharedExperts, SendAsManyBytesAsTheirFormulasSay) {
  const std::int64_t ranks = 4, tokens = 64, hidden = 32, choices = 1, layers = 2, room = 32;  // 1.25 x 64 x 1/4, in sixteens
  const ModelChoice model{"qwen3-moe", R"({"num_experts_per_tok": 1})"};
  const auto bytes = [&](const char* dispatch) {
    const Words words{"--strategy=ep=4", "--ranks=4", "--global-batch=8", "--sequence=32",
                      "--ep.dispatch=" + std::string(dispatch)};
    const auto programs = compile(config_of(model, words), 0);
    const Program& step = programs->steps.front().program;
    std::int64_t sum = 0;
    for (const Instruction& i : step.instructions) {
      // Sums over ranks, of statistics and of parameters' gradients, are not of tokens.
      const bool of_tokens = i.op->is_collective() && i.op->movement() != Movement::all_reduce && i.tag.phase != Phase::optimizer;
      if (of_tokens) sum += i.op->bytes_sent(message_bytes(step, i), step.mesh.size_of(i.attributes.axes("axis")));
    }
    return sum;
  };
  // There and back, forward and backward; experts, weights and their gradients.
  const std::int64_t of_token = 4 * hidden * 4 + 12 * choices;
  EXPECT_EQ(bytes("gather"), layers * (ranks - 1) * tokens * of_token);
  EXPECT_EQ(bytes("all-to-all"), layers * (ranks - 1) * room * of_token);
}

TEST(SharedExperts, AStepWithoutRoomChangesNothing) {
  for (const char* optimizer : {"adamw", "sgd", "lion", "muon", "adamw --ep.dispatch=all-to-all"}) {
    Words words{"--strategy=ep=2", "--ranks=2", "--ep.capacity=0.5"};
    std::istringstream options("--optimizer=" + std::string(optimizer));
    for (std::string word; options >> word;) words.push_back(word);
    const auto programs = compile(config_of(balanced, words), 0);
    const Outcome found = run(*programs, {.steps = 1, .without_room = true});
    EXPECT_GT(found.overflow, 0) << optimizer;
    for (const auto& [name, values] : found.before) EXPECT_EQ(found.values.at(name), values) << optimizer << " " << name;
  }
}

TEST(SharedExperts, SayWhatHadNoRoom) {
  const auto first = [](const Words& more) -> Program {
    const Words words{"--strategy=ep=2", "--ranks=2", "--ep.capacity=0.5", "--sequence=64", "--global-batch=8"};
    return compile(config_of(balanced, words + more), 0)->steps.front().program;
  };
  const Program gather = first({}), sends = first({"--ep.dispatch=all-to-all"});
  // Half of 512 tokens x 4 choices / 2 ranks. Of a rank's 256 tokens all but one of 70 have one of 4 experts among the 4 of 8 that they
  // chose: half of 252.3, in sixteens.
  const std::int64_t rows = 512, tokens = 128;
  EXPECT_EQ(least_room(gather).rows, rows);
  EXPECT_EQ(least_room(gather).tokens, 0);
  EXPECT_EQ(least_room(sends).rows, rows);
  EXPECT_EQ(least_room(sends).tokens, tokens);
  const std::string unchanged = ". Nothing was changed: weights and states are those before the step. A rank has room for 512 rows";
  const std::string end = " times as much (the capacity that was given to the strategy of the experts, times that) all would have found a place";
  EXPECT_EQ(overflow_text(gather, 64), "experts had no room for 64 rows of tokens" + unchanged + "; with 1.13" + end);
  EXPECT_EQ(overflow_text(sends, 56),
            "there was no room for 56 tokens, on their way to the ranks of their experts or as rows there" + unchanged +
                " and for 128 tokens from each rank; with 1.44" + end);
}

TEST(SharedExperts, AStageWithoutExpertsKnowsNoRoom) {
  const ModelChoice last_alone{"qwen3-moe", R"({"mlp_only_layers": [0, 1]})"};
  const auto programs = compile(config_of(last_alone, {"--strategy=ep=2+pipeline=2", "--ranks=4", "--accumulation=2"}), 0);
  int without = 0;
  for (const Planned& step : programs->steps) {
    const std::string text = overflow_text(step.program, 8);
    EXPECT_EQ(text.find("experts had no room for 8 rows of tokens. Nothing was changed"), 0U) << text;
    const bool none = least_room(step.program).rows == 0;
    EXPECT_EQ(text.find("A rank has room for 0"), std::string::npos) << text;
    EXPECT_EQ(text.find("Begin with more room") != std::string::npos, none) << text;
    without += none ? 1 : 0;
  }
  EXPECT_EQ(without, 2);
}

}  // namespace
}  // namespace consist::interpreter
