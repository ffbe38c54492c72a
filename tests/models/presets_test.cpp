// Every preset: its sizes against published counts, and against what the built program holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "consist/error.h"
#include "core/program/verifier.h"
#include "tests/models/families.h"

namespace consist {
namespace {

using test::BuiltModel;
using ::testing::HasSubstr;

struct PresetOf {
  std::string family, name;
};
void PrintTo(const PresetOf& preset, std::ostream* out) {
  *out << preset.name;
}

std::vector<PresetOf> all_presets() {
  std::vector<PresetOf> list;
  for (const char* family : {"llama", "qwen", "mixtral"}) {
    for (const ModelPreset& preset : test::family(family)->presets()) list.push_back({family, preset.name});
  }
  return list;
}

class EveryPreset : public ::testing::TestWithParam<PresetOf> {
 protected:
  std::unique_ptr<Architecture> architecture_ = test::family(GetParam().family)->from_preset(GetParam().name);
};

TEST_P(EveryPreset, HoldsTheParametersThatItsSizesSay) {
  const BuiltModel built(*architecture_);
  verify(built.program);
  std::int64_t parameters = 0;
  std::set<std::string> names;
  for (const Parameter& p : built.program.parameters) {
    parameters += built.program[p.tensor].shape.elements();
    EXPECT_TRUE(names.insert(p.name).second) << p.name << " twice";
  }
  EXPECT_EQ(architecture_->sizes().parameters, parameters);
}

TEST_P(EveryPreset, CountsTheWeightsOfItsMatrixProducts) {
  const BuiltModel built(*architecture_);
  std::int64_t elements = 0, choices = 0;
  for (const Instruction& i : built.program.instructions) {
    if (i.op->name() == "linear" || i.op->name() == "lm_head_loss") elements += built.program[i.inputs[1]].shape.elements();
    if (i.op->name() != "moe_dispatch") continue;
    // A token meets some of the experts.
    choices = built.program[i.inputs[1]].shape[2];
  }
  for (const Instruction& i : built.program.instructions) {
    if (i.op->name() != "grouped_linear") continue;
    const Shape& w = built.program[i.inputs[1]].shape;
    elements += choices * w[1] * w[2];
  }
  EXPECT_EQ(architecture_->sizes().matmul_parameters, elements);
}

TEST_P(EveryPreset, InitialisesAndDecaysByRank) {
  const BuiltModel built(*architecture_);
  for (const Parameter& p : built.program.parameters) {
    const bool matrix = built.program[p.tensor].shape.rank() >= 2;
    const bool bias = p.name.ends_with(".bias");
    EXPECT_EQ(p.decay, matrix) << p.name;
    EXPECT_FLOAT_EQ(p.init_std, matrix ? 0.02F : 0.0F) << p.name;
    EXPECT_FLOAT_EQ(p.init_mean, matrix || bias ? 0.0F : 1.0F) << p.name;
  }
}

TEST_P(EveryPreset, TagsInstructionsWithTheirLayer) {
  const BuiltModel built(*architecture_);
  std::map<int, int> attentions;
  for (const Instruction& i : built.program.instructions) {
    if (i.op->name() == "attention") ++attentions[i.tag.layer];
    if (i.op->name() == "embedding" || i.op->name() == "lm_head_loss") {
      EXPECT_EQ(i.tag.layer, -1);
    }
  }
  ASSERT_EQ(attentions.size(), static_cast<std::size_t>(architecture_->sizes().layers));
  EXPECT_EQ(attentions.begin()->first, 0);
  EXPECT_EQ(attentions.rbegin()->first, architecture_->sizes().layers - 1);
  for (const auto& [layer, count] : attentions) EXPECT_EQ(count, 1) << "in layer " << layer;
}

TEST_P(EveryPreset, ComesBackFromItsConfigJson) {
  const std::string json = architecture_->config_json();
  const auto again = test::family(GetParam().family)->from_config(json);
  EXPECT_EQ(again->config_json(), json);
  const BuiltModel first(*architecture_), second(*again);
  ASSERT_EQ(first.program.parameters.size(), second.program.parameters.size());
  for (std::size_t p = 0; p < first.program.parameters.size(); ++p) {
    const Parameter &a = first.program.parameters[p], &b = second.program.parameters[p];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(first.program[a.tensor].shape, second.program[b.tensor].shape) << a.name;
  }
}

TEST_P(EveryPreset, IsKnownByItsFamilyOnly) {
  const std::string other = GetParam().family == "llama" ? "qwen" : "llama";
  EXPECT_THROW(test::family(other)->from_preset(GetParam().name), UsageError);
  EXPECT_THROW(test::family(other)->from_config(architecture_->config_json()), DataError);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryPreset, ::testing::ValuesIn(all_presets()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
  return name;
});

// Counts as the models' cards state them, or as the sum over the tensors of the published safetensors files (a tied head once).
TEST(PublishedModels, HaveTheirPublishedParameterCounts) {
  const std::map<std::string, std::int64_t> llama{{"llama-2-7b", 6'738'415'616},   {"llama-2-13b", 13'015'864'320},
                                                  {"llama-2-70b", 68'976'648'192}, {"llama-3-8b", 8'030'261'248},
                                                  {"llama-3.1-8b", 8'030'261'248}, {"llama-3.1-70b", 70'553'706'496},
                                                  {"llama-3.2-1b", 1'235'814'400}, {"llama-3.2-3b", 3'212'749'824}};
  const std::map<std::string, std::int64_t> qwen{
      {"qwen2.5-0.5b", 494'032'768}, {"qwen3-0.6b", 596'049'920},   {"qwen3-1.7b", 1'720'574'976}, {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360},   {"qwen3-14b", 14'768'307'200}, {"qwen3-32b", 32'762'123'264}};
  for (const auto& [name, count] : llama) EXPECT_EQ(test::family("llama")->from_preset(name)->sizes().parameters, count) << name;
  for (const auto& [name, count] : qwen) EXPECT_EQ(test::family("qwen")->from_preset(name)->sizes().parameters, count) << name;
}

struct PublishedModel {
  std::string family, preset;
  std::size_t parameters;
  std::map<std::string, std::string> shapes;
};

TEST(PublishedModels, UseTheNamesAndShapesOfTheirCheckpoints) {
  const PublishedModel published[] = {
      {"llama",
       "llama-3-8b",
       291,
       {{"model.embed_tokens.weight", "[128256,4096]"},
        {"model.layers.0.self_attn.q_proj.weight", "[4096,4096]"},
        {"model.layers.31.self_attn.k_proj.weight", "[1024,4096]"},
        {"model.layers.31.mlp.gate_proj.weight", "[14336,4096]"},
        {"model.layers.31.mlp.down_proj.weight", "[4096,14336]"},
        {"model.layers.31.input_layernorm.weight", "[4096]"},
        {"model.layers.31.post_attention_layernorm.weight", "[4096]"},
        {"model.layers.0.self_attn.q_proj.bias", "absent"},
        {"model.norm.weight", "[4096]"},
        {"lm_head.weight", "[128256,4096]"}}},
      {"qwen",
       "qwen3-0.6b",
       310,
       {{"model.layers.27.self_attn.q_proj.weight", "[2048,1024]"},
        {"model.layers.27.self_attn.v_proj.weight", "[1024,1024]"},
        {"model.layers.27.self_attn.o_proj.weight", "[1024,2048]"},
        {"model.layers.27.self_attn.q_norm.weight", "[128]"},
        {"model.layers.27.self_attn.k_norm.weight", "[128]"},
        {"lm_head.weight", "absent"}}},
      {"qwen",
       "qwen2.5-0.5b",
       290,
       {{"model.layers.0.self_attn.q_proj.bias", "[896]"},
        {"model.layers.0.self_attn.k_proj.bias", "[128]"},
        {"model.layers.0.self_attn.v_proj.bias", "[128]"},
        {"model.layers.0.self_attn.o_proj.bias", "absent"},
        {"model.layers.0.self_attn.q_norm.weight", "absent"}}},
  };
  for (const PublishedModel& expected : published) {
    const BuiltModel model(*test::family(expected.family)->from_preset(expected.preset));
    EXPECT_EQ(model.program.parameters.size(), expected.parameters) << expected.preset;
    for (const auto& [name, shape] : expected.shapes) EXPECT_EQ(model.shape(name), shape) << expected.preset << ": " << name;
  }
}

TEST(PublishedModels, UseATiedEmbeddingAsTheHead) {
  const BuiltModel tied(*test::family("qwen")->from_preset("qwen3-tiny"));
  const Instruction& last = tied.program.instructions.back();
  ASSERT_EQ(last.op->name(), "lm_head_loss");
  EXPECT_EQ(last.inputs[1], tied.find("model.embed_tokens.weight")->tensor);
  EXPECT_DOUBLE_EQ(last.attributes.real("scale"), 0.25);
}

TEST(Presets, AnUnknownOneIsAUsageErrorThatNamesIt) {
  try {
    test::family("llama")->from_preset("llama-9-1b");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("llama-9-1b"));
  }
}

}  // namespace
}  // namespace consist
