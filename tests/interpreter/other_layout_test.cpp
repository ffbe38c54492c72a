// A checkpoint that goes to another layout and back: which layout is chosen, that it holds for every strategy, and that a part, a
// name or a step that is wrong there is noticed with its tensor.
#include "core/prove/other_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/prove/one_rank.h"
#include "core/prove/proof.h"
#include "core/prove/small_run.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::prove {
namespace {

using interpreter::config_of;
using interpreter::ModelChoice;
using interpreter::Outcome;
using interpreter::plugin_host;
using interpreter::RankPrograms;
using interpreter::RunOptions;
using interpreter::Words;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> layouts_for(const Words& words) {
  std::vector<std::string> texts;
  for (const RunConfig& config : other_layouts(plan_run(config_of({"qwen3-moe"}, words), plugin_host())))
    texts.push_back(layout_text(config));
  return texts;
}

TEST(OtherLayout, HasOtherSizesAndAnotherFamily) {
  EXPECT_THAT(layouts_for({"--strategy=ep=4+zero3-offload", "--ranks=8"}),
              ElementsAre("ep=2+ddp=2 on 4 ranks", "ep=2+zero3-offload=2 on 4 ranks", "ep=4+ddp=2 on 8 ranks",
                          "zero2=8 on 8 ranks", "zero3-offload=8 on 8 ranks", "ddp=8 on 8 ranks", "cp=2 on 2 ranks",
                          "ep=2 on 2 ranks", "tp-sp=2 on 2 ranks", "pipeline=2 on 2 ranks"));
  EXPECT_THAT(layouts_for({"--strategy=tp-sp=2", "--ranks=2", "--global-batch=3"}),
              ElementsAre("cp=2 on 2 ranks", "ep=2 on 2 ranks", "pipeline=2 on 2 ranks"));
  EXPECT_THAT(layouts_for({"--strategy=zero2=2x2", "--ranks=4"}), Contains("zero3-offload=4 on 4 ranks"));
}

const ModelChoice four_heads{"qwen3-tied", R"({"num_attention_heads": 4, "num_key_value_heads": 4})"};

/// The statement on another layout of the proof of a run.
Statement other_layout(const ModelChoice& model, const Words& words) {
  const Proof proof = prove(plan_run(config_of(model, words), plugin_host()), {.full_size = false});
  for (const Statement& s : proof.statements) {
    if (s.name == "other layout") return s;
  }
  return {.name = "", .text = "there is none", .wrong = {}, .seconds = 0};
}

void expect_resumed_on(const std::string& layout, const ModelChoice& model, const Words& words) {
  const Statement statement = other_layout(model, words);
  EXPECT_THAT(statement.text, HasSubstr(" resumed on " + layout + ", ")) << interpreter::text_of(model, words);
  EXPECT_THAT(statement.wrong, IsEmpty()) << interpreter::text_of(model, words);
}

TEST(OtherLayout, ResumesCheckpointsOfEveryStrategy) {
  expect_resumed_on("zero2=4 on 4 ranks", {"llama-tied"}, {"--strategy=ddp", "--ranks=4", "--precision=bf16"});
  expect_resumed_on("zero3-offload=3 on 3 ranks", {"llama-untied"}, {"--strategy=zero2", "--ranks=3", "--global-batch=6"});
  expect_resumed_on(
      "ddp=2 on 2 ranks", {"llama-tied"},
      {"--strategy=zero3-offload", "--ranks=2", "--precision=bf16", "--zero3-offload.offload-optimizer.device=cpu"});
  expect_resumed_on("zero2=2 on 2 ranks", {"llama-untied"}, {"--strategy=tp-sp=2", "--ranks=2", "--precision=fp8"});
  expect_resumed_on("tp-sp=2+zero3-offload=2 on 4 ranks", four_heads, {"--strategy=tp-sp=4+zero2", "--ranks=8"});
  expect_resumed_on("zero2=2 on 2 ranks", {"llama-tied"}, {"--strategy=pipeline=2", "--ranks=2", "--accumulation=2"});
  expect_resumed_on("pipeline=2+zero2=2 on 4 ranks", {"llama-tied"},
                    {"--strategy=pipeline=2+ddp", "--ranks=4", "--accumulation=2"});
  expect_resumed_on("cp=2 on 2 ranks", {"llama-untied"}, {"--strategy=cp=4", "--ranks=4"});
}

TEST(OtherLayout, ResumesCheckpointsOfExperts) {
  expect_resumed_on("ep=2 on 2 ranks", {"mixtral"}, {"--strategy=ep=4", "--ranks=4", "--accumulation=2"});
  expect_resumed_on("ep=2+zero2=2 on 4 ranks", {"qwen3-moe"}, {"--strategy=ep=2+ddp", "--ranks=4", "--precision=bf16"});
  expect_resumed_on("ep=2+tp-sp=2+ddp=2 on 8 ranks", {"qwen3-moe"}, {"--strategy=ep=2+tp-sp=2+zero3-offload", "--ranks=8"});
}

TEST(OtherLayout, ResumesStatesOfEveryOptimizer) {
  expect_resumed_on("zero2=2 on 2 ranks", {"llama-tied"}, {"--strategy=ddp", "--ranks=2", "--optimizer=lion"});
  expect_resumed_on("zero2=2 on 2 ranks", {"llama-tied"},
                    {"--strategy=ddp", "--ranks=2", "--optimizer=sgd", "--sgd.momentum=0.5"});
  expect_resumed_on("zero2=2 on 2 ranks", {"llama-tied"}, {"--strategy=ddp", "--ranks=2", "--optimizer=muon"});
}

TEST(OtherLayout, SaysWhyThereIsNone) {
  const ModelChoice odd{"llama-untied", R"({"num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 3})"};
  const Statement statement = other_layout(odd, {"--strategy=ddp", "--ranks=1", "--global-batch=1", "--sequence=9"});
  EXPECT_THAT(statement.text, AllOf(StartsWith("none of several ranks goes together with the small run; cp=2 on 2 ranks: "),
                                    HasSubstr("; tp-sp=2 on 2 ranks: "), HasSubstr("; pipeline=2 on 2 ranks: ")));
  EXPECT_THAT(statement.wrong, IsEmpty());
}

/// A run of zero2, whose checkpoint tp-sp=2 resumes.
class PlantedElsewhere : public ::testing::Test {
 protected:
  PlantedElsewhere()
      : plan_(small_run(plan_run(config_of({"llama-untied"}, {"--strategy=zero2", "--ranks=2"}), plugin_host())).plan),
        here_(interpreter::compile(plan_, 256)),
        one_(interpreter::compile(alone(*here_), 0)),
        found_(interpreter::run(*here_, options_)),
        expected_(interpreter::run(*one_, options_)),
        there_(plan_run(layout("tp-sp=2 on 2 ranks"), plugin_host()), 256) {}

  RunConfig layout(const std::string& text) const {
    for (RunConfig& config : other_layouts(plan_)) {
      if (layout_text(config) == text) return config;
    }
    throw std::logic_error("no " + text);
  }
  std::vector<std::string> wrong() {
    return there_and_back({*here_, found_.saved, *one_, expected_, options_, tolerance}, there_);
  }

  static std::vector<ParameterState>& states(RankPrograms& programs, std::size_t rank, const std::string& of) {
    for (Parameter& p : programs.steps.at(rank).program.parameters) {
      if (p.name == of) return p.states;
    }
    throw std::logic_error("no " + of);
  }
  static void exchange_first_moments(RankPrograms& programs) {
    for (const std::size_t rank : {0U, 1U})
      std::swap(states(programs, rank, first).at(0).tensor, states(programs, rank, second).at(0).tensor);
  }
  /// Expects that all lines but the last `others` name one of these tensors.
  static void expect_only(const std::vector<std::string>& lines, const std::string& where,
                          const std::vector<std::string>& tensors, std::size_t others) {
    ASSERT_GT(lines.size(), others);
    for (std::size_t n = 0; n + others < lines.size(); ++n) {
      const auto named = [&](const std::string& tensor) { return lines[n].starts_with(where + ", " + tensor); };
      EXPECT_TRUE(std::ranges::any_of(tensors, named)) << lines[n];
    }
  }

  static constexpr const char *first = "model.layers.0.self_attn.o_proj.weight",
                              *second = "model.layers.1.self_attn.o_proj.weight";
  const RunOptions options_{.order = 3, .steps = 3};
  const Plan plan_;
  std::unique_ptr<RankPrograms> here_, one_;
  Outcome found_, expected_;
  ProgramsWithRoom there_;
};

TEST_F(PlantedElsewhere, NothingIsWrongWithoutAnError) {
  EXPECT_THAT(wrong(), IsEmpty());
}

TEST_F(PlantedElsewhere, AStateThatTakesAnotherPart) {
  for (const std::size_t rank : {0U, 1U}) {
    Program& program = there_->steps.at(rank).program;
    Placement& part = program[states(*there_, rank, second).at(0).tensor].placements[0];
    ASSERT_EQ(part, Placement::shard(1));
    part = Placement::shard(0);
  }
  const std::vector<std::string> lines = wrong();
  expect_only(lines, "resumed on tp-sp=2 on 2 ranks", {second}, 1);
  EXPECT_THAT(lines.back(), HasSubstr("tp-sp=2 on 2 ranks differs from one rank in resuming one rank's checkpoint, too: " +
                                      std::string(second)));
}

TEST_F(PlantedElsewhere, StatesThatAreTakenForEachOther) {
  exchange_first_moments(*there_);
  expect_only(wrong(), "resumed on tp-sp=2 on 2 ranks", {first, second}, 1);
}

TEST_F(PlantedElsewhere, AStateThatTheCheckpointLacks) {
  found_.saved.values.erase(second + std::string(".moment2"));
  EXPECT_THAT(wrong(), ElementsAre("resumed on tp-sp=2 on 2 ranks, the checkpoint has no '" + std::string(second) + ".moment2'"));
}

TEST_F(PlantedElsewhere, StatesThatAreTakenForEachOtherOnTheWayBack) {
  exchange_first_moments(*here_);
  expect_only(wrong(), "saved on tp-sp=2 on 2 ranks and resumed on this layout", {first, second}, 0);
}

}  // namespace
}  // namespace consist::prove
