// DeepSeek-V2 and -V3 as a plugin of its own (tests/external/deepseek): latent attention, and experts beside a shared one,
// without an op and a kernel of its own. They train, generate and are evaluated as transformers does it, in every layout.
#include <algorithm>

#include "core/weights/safetensors.h"
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

  static std::vector<float> tensor_of(const std::string& folder, const std::string& name) {
    const SafetensorsFile file(folder + "/model.safetensors");
    std::vector<float> values(static_cast<std::size_t>(file.shape(name).elements()));
    file.read_f32(name, 0, values);
    return values;
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

INSTANTIATE_TEST_SUITE_P(Models, ExternalDeepSeek, ::testing::Values("deepseek-v2", "deepseek-v3", "deepseek-v3-experts"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           std::string name = std::string(info.param).substr(9);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class ExternalDeepSeekExperts : public ExternalDeepSeekFamily, public ::testing::WithParamInterface<const char*> {};

// Each rank has some of the experts.
TEST_P(ExternalDeepSeekExperts, ExpertParallelismTrainsAsOneRankDoes) {
  expect_same(losses_of_model(plugin_, GetParam(), {"--ranks", "2", "--strategy", "ep=2"}),
              losses_of_model(plugin_, GetParam(), {}));
  expect_proven(plugin_, GetParam(), {{"ep=2"}, {"ep=2", "--ep.dispatch", "all-to-all"}});
}

INSTANTIATE_TEST_SUITE_P(Models, ExternalDeepSeekExperts, ::testing::Values("deepseek-v2", "deepseek-v3-experts"),
                         [](const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param).substr(9, 2); });

// The bias of V3's router decides which experts a token goes to, and nothing trains it.
TEST_F(ExternalDeepSeekFamily, TheRoutersBiasStaysAsItIs) {
  const std::string exported = *folder_ / "biased-export", bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  consist({"train",
           "--plugin",
           plugin_,
           "--model",
           golden("deepseek-v3-experts"),
           "--dataset",
           "synthetic",
           "--precision",
           "fp32",
           "--device",
           "cpu",
           "--batch",
           "2",
           "--sequence",
           "16",
           "--steps",
           "2",
           "--learning-rate",
           "1e-2",
           "--train-only",
           "*mlp*",
           "--export",
           exported,
           "--archive",
           *folder_ / "biased.h5"});
  EXPECT_EQ(tensor_of(exported, bias), tensor_of(golden("deepseek-v3-experts"), bias));
  EXPECT_THAT(test::run_child({prefix_ + "/bin/consist", "explain", "--plugin", plugin_, "--model", golden("deepseek-v3-experts"),
                               "--sequence", "16", "--batch", "1", "--device", "cpu", "--train-only", "*correction_bias"})
                  .output,
              HasSubstr("names only biases of routers"));
  EXPECT_NE(tensor_of(exported, "model.layers.1.mlp.gate.weight"),
            tensor_of(golden("deepseek-v3-experts"), "model.layers.1.mlp.gate.weight"));
}

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
  EXPECT_THAT(refusal("deepseek-v3-experts", "n_group", 3), HasSubstr("groups must have as many of the experts"));
  EXPECT_THAT(refusal("deepseek-v3-experts", "topk_group", 5), HasSubstr("at most \"n_group\", which is 4"));
  EXPECT_THAT(refusal("deepseek-v3-experts", "num_experts_per_tok", 5),
              HasSubstr("the groups that are kept have only 4 experts"));
  EXPECT_THAT(refusal("deepseek-v3-experts", "scoring_func", "softmax"), HasSubstr("this plugin supports \"sigmoid\""));
  EXPECT_THAT(refusal("deepseek-v2", "rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}}),
              HasSubstr("supported are default, linear, llama3 and yarn"));
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
