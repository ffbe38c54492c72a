// Gemma 3 as a plugin of its own (tests/external/gemma): it trains, generates and is evaluated as transformers does it, and every
// layout trains it as one rank does. It has no op and no kernel of its own.
#include "tests/external/transformers_model.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ExternalGemma : public test::TransformersModel {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugin_ = built("gemma");
  }

  static inline std::string plugin_;
};

TEST_F(ExternalGemma, LossesOfFiveStepsAreThoseOfTransformers) {
  expect_losses_of_transformers(plugin_, "gemma3");
}

TEST_F(ExternalGemma, EveryLayoutTrainsAsOneRankDoes) {
  const std::vector<double> one = losses_of_model(plugin_, "gemma3", {});
  for (const char* strategy : {"tp-sp=2", "zero3-offload=2", "pipeline=2", "cp=2"}) {
    SCOPED_TRACE(strategy);
    expect_same(losses_of_model(plugin_, "gemma3", {"--ranks", "2", "--strategy", strategy}), one);
  }
}

// Scale and windows in each way of dividing a sequence, in fp64.
TEST_F(ExternalGemma, LayoutsAreProven) {
  expect_proven(plugin_, "gemma3",
                {{"tp-sp=2"},
                 {"cp=2", "--cp.attention", "ring"},
                 {"cp=2", "--cp.attention", "ulysses"},
                 {"cp=2", "--cp.attention", "gather"}});
}

TEST_F(ExternalGemma, GreedyTokensAreThoseOfTransformers) {
  expect_greedy_tokens(plugin_, "gemma3");
}

TEST_F(ExternalGemma, AnEvaluationHasTheLossOfTransformers) {
  expect_evaluated_loss(plugin_, "gemma3");
}

TEST_F(ExternalGemma, ItConformsAndHasThePublishedSizes) {
  EXPECT_THAT(consist({"check", plugin_ + "model-gemma.so"}), HasSubstr("model 'gemma' conforms\n"));
  const Words explain{"explain", "--plugin", plugin_, "--model",  "gemma3-1b", "--sequence",
                      "1024",    "--batch",  "1",     "--device", "cpu"};
  EXPECT_THAT(consist(explain), HasSubstr("window=512"));
  Words in_numbers = explain;
  in_numbers.push_back("--json");
  EXPECT_EQ(json::parse(consist(in_numbers)).at("parameters"), 999885952);
}

}  // namespace
}  // namespace consist
