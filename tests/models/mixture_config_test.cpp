// config.json of mixtures of experts: their numbers, their routers' losses, and which layers are mixtures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/models/config_files.h"

namespace consist {
namespace {

using nlohmann::json;
using test::BuiltModel;
using test::expect_refused;
using test::parse;
using test::qwen_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::ptrdiff_t auxiliary_losses(const Program& program) {
  return std::ranges::count(program.outputs, StepOutput::Kind::auxiliary_loss, &StepOutput::kind);
}

TEST(MixtureConfig, AMixtureWithoutExpertsIsTheDenseModel) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file["head_dim"] = 16;
  const auto architecture = parse(file, "qwen");
  EXPECT_THAT(architecture->config_json(), AllOf(HasSubstr("\"Qwen3ForCausalLM\""), HasSubstr("\"qwen3\"")));
  EXPECT_EQ(BuiltModel(*architecture).shape("model.layers.0.self_attn.q_norm.weight"), "[16]");
  for (const char* field : {"num_experts_per_tok", "moe_intermediate_size"}) {
    json mixture = file;
    mixture[field] = 8;  // without the number of experts
    expect_refused(mixture, field, "qwen");
    mixture[field] = 0;
    EXPECT_EQ(parse(mixture, "qwen")->config_json(), architecture->config_json()) << field;
  }
}

TEST(MixtureConfig, TheNumberOfExpertsHasTheNameThatEitherTransformersWrites) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file.update(json{{"head_dim", 16}, {"num_experts", 6}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 20}});
  json newer = file;
  newer.erase("num_experts");
  newer["num_local_experts"] = 6;  // transformers 5
  EXPECT_EQ(parse(newer, "qwen")->config_json(), parse(file, "qwen")->config_json());
  newer["num_experts"] = 6;
  EXPECT_EQ(parse(newer, "qwen")->config_json(), parse(file, "qwen")->config_json());
  newer["num_experts"] = 8;
  expect_refused(newer, "num_local_experts", "qwen");
}

TEST(MixtureConfig, ReadsAndWritesMixtures) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file.update(json{{"head_dim", 16},
                   {"num_hidden_layers", 5},
                   {"num_experts", 6},
                   {"num_experts_per_tok", 3},
                   {"moe_intermediate_size", 20},
                   {"norm_topk_prob", true},
                   {"output_router_logits", true},
                   {"router_aux_loss_coef", 0.25},
                   {"decoder_sparse_step", 2},
                   {"mlp_only_layers", {1}}});
  const auto architecture = parse(file, "qwen");
  const BuiltModel built(*architecture);
  const std::string hidden = std::to_string(architecture->sizes().hidden);
  for (const int layer : {0, 1, 2, 4})
    EXPECT_NE(built.shape("model.layers." + std::to_string(layer) + ".mlp.up_proj.weight"), "absent") << layer;
  const std::string experts = "model.layers.3.mlp.experts.*.";
  EXPECT_EQ(built.shape(experts + "{gate_proj,up_proj}.weight"), "[6,40," + hidden + "]");
  EXPECT_EQ(built.shape(experts + "down_proj.weight"), "[6," + hidden + ",20]");
  EXPECT_EQ(built.shape("model.layers.3.mlp.gate.weight"), "[6," + hidden + "]");
  EXPECT_EQ(auxiliary_losses(built.program), 1);
  const json written = json::parse(architecture->config_json());
  EXPECT_EQ(written["mlp_only_layers"], (json{0, 1, 2, 4}));
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                            "output_router_logits", "router_aux_loss_coef"})
    EXPECT_EQ(written[field], file[field]) << field;
  EXPECT_EQ(parse(written, "qwen")->config_json(), architecture->config_json());

  for (const auto& [field, value] : std::vector<std::pair<const char*, json>>{{"num_experts_per_tok", 7},
                                                                              {"num_experts", -1},
                                                                              {"moe_intermediate_size", 0},
                                                                              {"decoder_sparse_step", 0},
                                                                              {"mlp_only_layers", {"all"}},
                                                                              {"use_sliding_window", true},
                                                                              {"router_aux_loss_coef", -1},
                                                                              {"router_z_loss_coef", -1},
                                                                              {"n_shared_experts", 1}}) {
    json wrong = file;
    wrong[field] = value;
    expect_refused(wrong, field, "qwen");
  }
  file["output_router_logits"] = false;
  EXPECT_EQ(auxiliary_losses(BuiltModel(*parse(file, "qwen")).program), 0);
}

TEST(MixtureConfig, RoutersMayTrainOnTheirZLoss) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file.update(json{{"head_dim", 16},
                   {"num_hidden_layers", 5},
                   {"num_experts", 6},
                   {"mlp_only_layers", {1}},
                   {"num_experts_per_tok", 3},
                   {"router_aux_loss_coef", 0.25},
                   {"router_z_loss_coef", 0.5}});
  const auto attributes = [](const Architecture& architecture) {
    const BuiltModel built(architecture, 2, 8, 0.25);
    EXPECT_EQ(auxiliary_losses(built.program), 1);
    for (const Instruction& i : built.program.instructions) {
      if (i.op->name() == "balance_loss") return std::pair(i.attributes.real("balance"), i.attributes.real("z"));
    }
    return std::pair(-1.0, -1.0);
  };
  const double tokens = 16, layers = 4, micro_batch = 0.25 * tokens;  // its part of the mean over all that are summed
  const auto alone = parse(file, "qwen");
  EXPECT_DOUBLE_EQ(attributes(*alone).first, 0);
  EXPECT_DOUBLE_EQ(attributes(*alone).second, micro_batch * 0.5 / (tokens * layers));
  EXPECT_EQ(json::parse(alone->config_json())["router_z_loss_coef"], 0.5);
  const auto by_option = test::family("qwen", {{"router-z-loss", "0.125"}})->from_config(file.dump());
  EXPECT_DOUBLE_EQ(attributes(*by_option).second, micro_batch * 0.125 / (tokens * layers));
  file["output_router_logits"] = true;
  EXPECT_DOUBLE_EQ(attributes(*parse(file, "qwen")).first, micro_batch * 0.25 * 6 / (tokens * layers * tokens * layers));
  EXPECT_DOUBLE_EQ(attributes(*parse(file, "qwen")).second, micro_batch * 0.5 / (tokens * layers));
  EXPECT_EQ(attributes(*test::family("mixtral", {{"router-z-loss", "0.5"}})->from_preset("mixtral-tiny")).second,
            micro_batch * 0.5 / (tokens * 4));
  try {
    test::family("qwen", {{"router-z-loss", "0.125"}})->from_preset("qwen3-tiny");
    FAIL() << "a dense model has no routers";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--qwen.router-z-loss"), HasSubstr("no experts")));
  }
}

TEST(MixtureConfig, AnOptionSaysHowMuchRoutersTrainToBeBalanced) {
  const auto balance = [](const char* family, const char* preset, const char* weight) {
    const auto architecture = test::family(family, {{"router-balance-loss", weight}})->from_preset(preset);
    const json written = json::parse(architecture->config_json());
    EXPECT_EQ(written["output_router_logits"], std::string(weight) != "0") << "an export says what it was trained with";
    const BuiltModel built(*architecture, 2, 8, 1.0 / 16);
    for (const Instruction& i : built.program.instructions) {
      if (i.op->name() == "balance_loss") return i.attributes.real("balance") * 16 * 4 * 16 * 4 / 8;
    }
    EXPECT_EQ(auxiliary_losses(built.program), 0);
    return 0.0;
  };
  EXPECT_EQ(balance("qwen", "qwen3-moe-tiny", "0"), 0);
  EXPECT_EQ(balance("mixtral", "mixtral-tiny", "0"), 0);
  EXPECT_DOUBLE_EQ(balance("qwen", "qwen3-moe-tiny", "0.25"), 0.25);
  EXPECT_DOUBLE_EQ(balance("mixtral", "mixtral-tiny", "0.25"), 0.25);
  try {
    test::family("qwen", {{"router-balance-loss", "0.1"}})->from_preset("qwen3-tiny");
    FAIL() << "a dense model has no routers";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--qwen.router-balance-loss"), HasSubstr("no experts")));
  }
}

}  // namespace
}  // namespace consist
