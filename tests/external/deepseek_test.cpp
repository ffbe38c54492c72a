// DeepSeek-V2 and -V3 as a plugin of its own (tests/external/deepseek): latent attention, and experts beside a shared one,
// without an op and a kernel of its own. They train, generate and are evaluated as transformers does it, in every layout.
#include "tests/external/transformers_model.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ExternalDeepSeekFamily : public test::TransformersModel {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugin_ = built("deepseek");
  }

  static inline std::string plugin_;
};

class ExternalDeepSeek : public ExternalDeepSeekFamily, public ::testing::WithParamInterface<const char*> {};

TEST_P(ExternalDeepSeek, LossesOfFiveStepsAreThoseOfTransformers) {
  expect_losses_of_transformers(plugin_, GetParam());
}

TEST_P(ExternalDeepSeek, EveryLayoutTrainsAsOneRankDoes) {
  const std::vector<double> one = losses_of_model(plugin_, GetParam(), {});
  for (const char* strategy : {"tp-sp=2", "zero3-offload=2", "pipeline=2", "cp=2"}) {
    SCOPED_TRACE(strategy);
    expect_same(losses_of_model(plugin_, GetParam(), {"--ranks", "2", "--strategy", strategy}), one);
  }
}

// Heads of two parts in each way of dividing them or a sequence, in fp64.
TEST_P(ExternalDeepSeek, LayoutsAreProven) {
  expect_proven(plugin_, GetParam(),
                {{"tp-sp=2"}, {"zero3-offload=2"}, {"cp=2", "--cp.attention", "ring"}, {"cp=2", "--cp.attention", "ulysses"}});
}

TEST_P(ExternalDeepSeek, GreedyTokensAreThoseOfTransformers) {
  expect_greedy_tokens(plugin_, GetParam());
}

TEST_P(ExternalDeepSeek, AnEvaluationHasTheLossOfTransformers) {
  expect_evaluated_loss(plugin_, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Models, ExternalDeepSeek, ::testing::Values("deepseek-v2", "deepseek-v3"),
                         [](const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param).substr(9); });

// Each rank of tp-sp=2 has the columns of half of the heads: no weight of attention's heads is whole on a rank, no head is
// divided.
TEST_F(ExternalDeepSeekFamily, TensorParallelismDividesTheHeads) {
  const std::string text = consist({"explain", "--plugin", plugin_, "--model", golden("deepseek-v3"), "--sequence", "32",
                                    "--batch", "2", "--device", "cpu", "--ranks", "2", "--strategy", "tp-sp=2"});
  EXPECT_THAT(text, HasSubstr("self_attn.q_b_proj.weight f32[56,20]{tensor:S0}"));
  EXPECT_THAT(text, HasSubstr("self_attn.kv_b_proj.weight f32[96,12]{tensor:S0}"));
  EXPECT_THAT(text, HasSubstr("self_attn.o_proj.weight f32[32,64]{tensor:S1}"));
}

TEST_F(ExternalDeepSeekFamily, WhatWouldBeComputedOtherwiseIsRefused) {
  const auto refusal = [&](const char* model, const char* field, const json& value) {
    const std::string folder = *folder_ / (std::string(model) + "-" + field);
    std::filesystem::create_directory(folder);
    json config = json::parse(std::ifstream(golden(model) + "/config.json"));
    config[field] = value;
    std::ofstream(folder + "/config.json") << config;
    const test::ChildResult result = test::run_child({prefix_ + "/bin/consist", "explain", "--plugin", plugin_, "--model", folder,
                                                      "--sequence", "32", "--batch", "1", "--device", "cpu"});
    EXPECT_EQ(result.status, 1) << result.output;
    return result.output;
  };
  EXPECT_THAT(refusal("deepseek-v3", "first_k_dense_replace", 1), HasSubstr("would choose experts by sigmoids and a bias"));
  EXPECT_THAT(refusal("deepseek-v2", "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}),
              HasSubstr(R"("rope_type" is "yarn")"));
  EXPECT_THAT(refusal("deepseek-v2", "num_experts_per_tok", 5), HasSubstr("between 1 and \"n_routed_experts\", which is 4"));
  EXPECT_THAT(refusal("deepseek-v2", "topk_method", "group_limited_greedy"), HasSubstr("this plugin supports \"greedy\""));
}

TEST_F(ExternalDeepSeekFamily, ItConformsAndHasThePublishedSizes) {
  EXPECT_THAT(consist({"check", plugin_ + "model-deepseek.so"}), HasSubstr("model 'deepseek' conforms\n"));
  EXPECT_EQ(json::parse(consist({"explain", "--plugin", plugin_, "--model", "deepseek-v2-lite", "--sequence", "1024", "--batch",
                                 "1", "--device", "cpu", "--json"}))
                .at("parameters"),
            15706484224);
}

}  // namespace
}  // namespace consist
