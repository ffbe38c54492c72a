// Experts that ranks of context parallelism share, alone and with the axis of experts: values beside one rank, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "consist/error.h"
#include "core/experts/room_for_rows.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

const ModelChoice six{"qwen3-moe", R"({"num_experts": 6})"};
const Words divided{"--cp.experts=divided"};

class ExpertsOverContext : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const std::string& strategy, int ranks, const Words& more) const {
    expect_one_rank(GetParam(), Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks)} + divided + more);
  }
};

TEST_P(ExpertsOverContext, Alone) {
  for (const char* attention : {"gather", "ring", "ulysses"}) {
    const Words more{"--cp.capacity=2", "--cp.attention=" + std::string(attention)};
    expect("cp=2", 2, more);
    expect("cp=2", 2, more + Words{"--accumulation=2", "--recompute=full"});
  }
  expect("cp=4", 4, {"--cp.capacity=4"});
}

TEST_P(ExpertsOverContext, WithTheAxisOfExpertsInEitherOrder) {
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const Words more{"--ep.dispatch=" + std::string(dispatch), "--ep.capacity=4", "--accumulation=2"};
    for (const char* both : {"ep=2+cp=2", "cp=2+ep=2"}) {
      expect(both, 4, more);
      expect(both, 4, more + Words{"--recompute=full", "--cp.attention=ring"});
    }
    for (const char* with : {"ddp", "zero2", "zero3-offload", "pipeline=2"}) expect("cp=2+ep=2+" + std::string(with), 8, more);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsOverContext,
                         ::testing::Values(Column{"qwen3_fp32", even_words}, Column{"mixtral_fp32", four_experts},
                                           Column{"qwen3_bf16", even_words, {"--precision=bf16"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ExpertsOverContextAndTensor, AreDividedOverAllThreeAxes) {
  const Words more{"--strategy=cp=2+ep=2+tp-sp=2", "--ranks=8", "--ep.capacity=4", "--accumulation=2"};
  expect_one_rank(even_words, more + divided);
  expect_one_rank(even_words, more + divided + Words{"--ep.dispatch=all-to-all", "--recompute=full"});
}

TEST(ExpertsOverContextRefused, NumbersThatDoNotDivide) {
  EXPECT_NE(refusal(six, Words{"--strategy=cp=4", "--ranks=4"} + divided).find("or --cp.experts whole"), std::string::npos);
  EXPECT_EQ(refusal(six, {"--strategy=cp=4", "--ranks=4"}), "nothing was refused");
  // Tokens are divided over both axes, and those of context alone cannot be brought together.
  const Words both = Words{"--strategy=cp=2+tp-sp=2", "--ranks=4", "--tp-sp.experts=whole"} + divided;
  EXPECT_THAT([&] { compile(config_of(even_words, both), 0); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("'context' alone")));
}

/// Each rank holds an eighth of the experts over two axes of 2 and 4.
TEST(ExpertsOverContextMemory, ExpertsAreDividedOverBothAxes) {
  const ModelChoice eight{"qwen3-moe", R"({"num_experts": 8})"};
  const auto held = [&](const Words& more) {
    const auto programs = compile(config_of(eight, Words{"--strategy=ep=2+cp=4", "--ranks=8"} + more), 0);
    const Program& program = programs->steps.front().program;
    std::int64_t elements = 0;
    for (const Parameter& parameter : program.parameters) {
      if (parameter.name.find("experts") != std::string::npos) elements += program.local(parameter.tensor).elements();
    }
    EXPECT_GT(elements, 0);
    return elements;
  };
  EXPECT_EQ(4 * held(divided), held({}));
}

}  // namespace
}  // namespace consist::interpreter
