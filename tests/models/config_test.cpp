// config.json: published files' forms are read, fields that would change the computation are refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "tests/models/families.h"

namespace consist {
namespace {

using nlohmann::json;
using test::BuiltModel;
using testing::AllOf;
using testing::HasSubstr;

json llama_json() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 256,
    "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": null, "tie_word_embeddings": false,
    "attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false, "pretraining_tp": 1, "initializer_range": 0.02,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": true})");
}

json qwen_json(const char* architecture, const char* type) {
  json file = llama_json();
  file["architectures"] = {architecture};
  file["model_type"] = type;
  file["use_sliding_window"] = false;
  file["sliding_window"] = 4096;  // as Qwen2.5's files have it beside use_sliding_window: false
  file["max_window_layers"] = 2;
  file.erase("mlp_bias");
  return file;
}

std::unique_ptr<Architecture> parse(const json& file, const char* family = "llama") {
  return test::family(family)->from_config(file.dump());
}

void expect_refused(const json& file, const std::string& field, const char* family = "llama") {
  try {
    parse(file, family);
    FAIL() << "accepted: " << file.dump();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(field));
  }
}

/// Rotary table of `architecture`, [positions, head_dim].
std::vector<float> rope_table(const Architecture& architecture, std::int64_t positions) {
  const BuiltModel built(architecture, 1, positions);
  EXPECT_EQ(built.program.constants.size(), 1U);
  const Constant& constant = built.program.constants.at(0);
  EXPECT_EQ(built.program[constant.tensor].shape, (Shape{positions, architecture.sizes().head_dim}));
  std::vector<float> table(static_cast<std::size_t>(positions * architecture.sizes().head_dim));
  constant.fill(table);
  return table;
}

TEST(LlamaConfig, ReadsWhatAPublishedFileSays) {
  const auto architecture = parse(llama_json());
  const ModelSizes sizes = architecture->sizes();
  EXPECT_EQ(sizes.hidden, 64);
  EXPECT_EQ(sizes.layers, 2);
  EXPECT_EQ(sizes.heads, 4);
  EXPECT_EQ(sizes.kv_heads, 2);
  EXPECT_EQ(sizes.head_dim, 16);
  EXPECT_EQ(sizes.vocabulary, 128);
  EXPECT_EQ(sizes.max_sequence, 256);
  const BuiltModel built(*architecture);
  EXPECT_EQ(built.shape("lm_head.weight"), "[128,64]");
  EXPECT_EQ(built.shape("model.layers.1.mlp.up_proj.weight"), "[96,64]");
  for (const Instruction& i : built.program.instructions) {
    if (i.op->name() == "rms_norm") {
      EXPECT_DOUBLE_EQ(i.attributes.real("epsilon"), 1e-5);
    }
  }
}

TEST(LlamaConfig, FillsInWhatOldFilesLeaveOut) {
  json file = llama_json();
  for (const char* field : {"num_key_value_heads", "rope_theta", "rope_scaling", "attention_bias", "attention_dropout",
                            "mlp_bias", "initializer_range", "rms_norm_eps", "hidden_act", "tie_word_embeddings"}) {
    file.erase(field);
  }
  const auto architecture = parse(file);
  EXPECT_EQ(architecture->sizes().kv_heads, 4);
  const json written = json::parse(architecture->config_json());
  EXPECT_EQ(written["rope_theta"], 10000.0);
  EXPECT_EQ(written["rms_norm_eps"], 1e-6);
  EXPECT_EQ(written["tie_word_embeddings"], false);
}

TEST(LlamaConfig, TakesAHeadDimOfItsOwn) {
  json file = llama_json();
  file["head_dim"] = 24;
  EXPECT_EQ(BuiltModel(*parse(file)).shape("model.layers.0.self_attn.q_proj.weight"), "[96,64]");
}

TEST(LlamaConfig, NeedsAHeadDimWhereHeadsDoNotDivideTheHiddenSize) {
  json file = llama_json();
  file["hidden_size"] = 66;
  expect_refused(file, "head_dim");
  file["head_dim"] = 16;
  EXPECT_EQ(parse(file)->sizes().head_dim, 16);
}

TEST(LlamaConfig, NamesAFieldThatIsMissing) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    json file = llama_json();
    file.erase(field);
    expect_refused(file, field);
    file[field] = nullptr;
    expect_refused(file, field);
  }
}

TEST(LlamaConfig, NamesAFieldThatIsMalformed) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "max_position_embeddings"}) {
    for (const json& value : {json(0), json(-4), json("64"), json(6.5), json::array(), json(true), json(1ULL << 63)}) {
      json file = llama_json();
      file[field] = value;
      expect_refused(file, field);
    }
  }
  for (const char* field : {"rms_norm_eps", "rope_theta", "initializer_range"}) {
    for (const json& value : {json(-1.0), json("1e-5"), json::object()}) {
      json file = llama_json();
      file[field] = value;
      expect_refused(file, field);
    }
  }
  json file = llama_json();
  file["tie_word_embeddings"] = "yes";
  expect_refused(file, "tie_word_embeddings");
  file = llama_json();
  file["num_key_value_heads"] = 3;
  expect_refused(file, "num_key_value_heads");
  file = llama_json();
  file["head_dim"] = 15;
  expect_refused(file, "head_dim");
}

TEST(LlamaConfig, RefusesSizesWhoseProductsOverflow) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "head_dim"}) {
    json file = llama_json();
    file["head_dim"] = 16;
    file[field] = std::int64_t{1} << 40;
    expect_refused(file, field);
  }
}

TEST(LlamaConfig, RefusesByNameWhatItWouldComputeWrongly) {
  const std::vector<std::pair<const char*, json>> fields{{"hidden_act", "gelu"},
                                                         {"attention_bias", true},
                                                         {"mlp_bias", true},
                                                         {"attention_dropout", 0.1},
                                                         {"use_sliding_window", true},
                                                         {"sliding_window", 4096},
                                                         {"layer_types", {"full_attention", "sliding_attention"}},
                                                         {"is_causal", false},
                                                         {"quantization_config", {{"quant_method", "gptq"}}},
                                                         {"partial_rotary_factor", 0.5},
                                                         {"num_experts", 8},
                                                         {"num_local_experts", 8},
                                                         {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
                                                         {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}},
                                                         {"rope_scaling", {{"rope_type", "longrope"}}},
                                                         {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.0}}},
                                                         {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}},
                                                         {"rope_scaling", "linear"}};
  for (const auto& [field, value] : fields) {
    json file = llama_json();
    file[field] = value;
    expect_refused(file, field);
  }
}

TEST(LlamaConfig, NamesTheUnknownRopeType) {
  json file = llama_json();
  file["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  expect_refused(file, "yarn");
}

TEST(LlamaConfig, RefusesTextThatIsNoJsonObject) {
  const auto llama = test::family("llama");
  for (const char* text : {"", "{", "[1]", "\"a\"", "{\"architectures\": [\"LlamaForCausalLM\"]", "\xff\xfe"}) {
    EXPECT_THROW(llama->from_config(text), DataError) << text;
  }
}

/// The id whose row of the embedding gets no gradient; -1: there is none.
std::int64_t padding_id(const json& file) {
  const BuiltModel built(*parse(file));
  for (const Instruction& i : built.program.instructions) {
    if (i.op->name() == "embedding") return i.attributes.integer_or("padding_id", -1);
  }
  ADD_FAILURE() << "no embedding";
  return -1;
}

TEST(LlamaConfig, ThePadTokensRowGetsNoGradient) {
  json file = llama_json();
  EXPECT_EQ(padding_id(file), -1);
  file["pad_token_id"] = nullptr;
  EXPECT_EQ(padding_id(file), -1);
  file["pad_token_id"] = 0;
  EXPECT_EQ(padding_id(file), 0);
  file["pad_token_id"] = -1;  // as nn.Embedding counts: the last row
  EXPECT_EQ(padding_id(file), 127);
  EXPECT_EQ(json::parse(parse(file)->config_json())["pad_token_id"], -1);
  for (const std::int64_t beyond : {128, -129}) {
    file["pad_token_id"] = beyond;
    expect_refused(file, "pad_token_id");
  }
}

TEST(LlamaConfig, RefusesAModelTypeThatContradictsTheArchitecture) {
  json file = llama_json();
  file["model_type"] = "mistral";
  expect_refused(file, "\"mistral\"");
  file["model_type"] = 7;
  expect_refused(file, "model_type");
  file.erase("model_type");
  EXPECT_EQ(parse(file)->config_json(), parse(llama_json())->config_json());
  expect_refused(qwen_json("Qwen2ForCausalLM", "qwen3"), "model_type", "qwen");
}

TEST(LlamaConfig, HandsTheTokenIdsOnToAnExport) {
  json file = llama_json();
  file["eos_token_id"] = {2, 7};
  file["pad_token_id"] = 5;
  const json written = json::parse(parse(file)->config_json());
  EXPECT_EQ(written["bos_token_id"], 1);
  EXPECT_EQ(written["eos_token_id"], json({2, 7}));
  EXPECT_EQ(written["pad_token_id"], 5);
}

// Expected values: cos and sin of transformers 4.57.1's LlamaRotaryEmbedding on head_dim 128, rope_theta 10000 or (llama3)
// 500000.
struct TablePoint {
  std::int64_t position, channel;
  float cosine, sine;
};

void expect_table(const json& file, const std::vector<TablePoint>& points) {
  const std::vector<float> table = rope_table(*parse(file), 8192);
  for (const TablePoint& p : points) {
    const auto at = static_cast<std::size_t>(p.position * 128 + p.channel);
    // One unit in the last place of a frequency moves the angle of position 8191 by up to 1e-3.
    const float tolerance = 1e-6F + 1.2e-7F * static_cast<float>(p.position);
    EXPECT_NEAR(table[at], p.cosine, tolerance) << "position " << p.position << ", channel " << p.channel;
    EXPECT_NEAR(table[at + 64], p.sine, tolerance) << "position " << p.position << ", channel " << p.channel;
  }
}

json wide_llama_json() {
  json file = llama_json();
  file["hidden_size"] = 512;
  file["head_dim"] = 128;
  file["rope_theta"] = 10000.0;
  return file;
}

TEST(RopeTable, IsThatOfTransformers) {
  expect_table(wide_llama_json(), {{0, 3, 1, 0},
                                   {1, 0, 0.540302336F, 0.841470957F},
                                   {7, 5, -0.964519262F, -0.264012605F},
                                   {4095, 1, -0.742445707F, 0.669906199F},
                                   {8191, 20, -0.362002552F, 0.932177126F},
                                   {8191, 0, -0.646390498F, -0.763006806F}});
}

TEST(RopeTable, LinearScalingIsThatOfTransformers) {
  json file = wide_llama_json();
  const std::vector<TablePoint> points{{1, 0, 0.968912423F, 0.247403964F},
                                       {7, 5, 0.658333898F, 0.752726078F},
                                       {4095, 1, 0.824274004F, 0.566191077F},
                                       {8191, 20, -0.466476321F, 0.884533703F},
                                       {8191, 0, 0.842757821F, -0.538292885F}};
  file["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  expect_table(file, points);
  file["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  expect_table(file, points);
}

TEST(RopeTable, Llama3ScalingIsThatOfTransformers) {
  json file = wide_llama_json();
  file["rope_theta"] = 500000.0;
  file["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}};
  const std::vector<TablePoint> points{{1, 0, 0.540302336F, 0.841470957F},
                                       {7, 5, -0.807743967F, 0.589533508F},
                                       {4095, 1, 0.870796502F, -0.491643608F},
                                       {8191, 20, -0.848267138F, -0.529568493F},
                                       {8191, 0, -0.646390498F, -0.763006806F}};
  expect_table(file, points);

  // At position 1 the sine is the frequency, to f32: kept, on the ramp, and divided by the factor.
  const std::vector<float> table = rope_table(*parse(file), 2);
  const std::vector<std::pair<std::size_t, float>> frequencies{
      {25, 0.00594073068F},  {28, 0.00321144611F},  {29, 0.00216657063F},  {31, 0.00085675146F},
      {34, 0.000178507791F}, {35, 9.55621217e-05F}, {36, 7.78465546e-05F}, {63, 3.06892588e-07F}};
  for (const auto& [channel, frequency] : frequencies) {
    EXPECT_NEAR(table[128 + 64 + channel] / std::sin(frequency), 1, 2e-6) << "channel " << channel;
  }

  json newer = file;
  newer["rope_parameters"] = file["rope_scaling"];
  newer["rope_parameters"]["rope_theta"] = 500000.0;
  newer.erase("rope_scaling");
  newer.erase("rope_theta");
  expect_table(newer, points);
  EXPECT_EQ(parse(newer)->config_json(), parse(file)->config_json());
}

TEST(RopeTable, NewerFormWithoutScalingCarriesTheta) {
  json newer = wide_llama_json();
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  EXPECT_EQ(parse(newer)->config_json(), parse(wide_llama_json())->config_json());
  newer["rope_parameters"] = {{"rope_theta", 20000.0}, {"rope_type", "default"}};
  EXPECT_EQ(json::parse(parse(newer)->config_json())["rope_theta"], 20000.0);
}

// What the configuration classes of transformers 5.23 make of the same files; 4.57 agrees wherever it reads the field.
TEST(RopeTable, RopeScalingComesBeforeRopeParameters) {
  const json scaling{{"rope_type", "linear"}, {"factor", 4.0}}, parameters{{"rope_type", "default"}, {"rope_theta", 20000.0}};
  const auto written = [](const json& file) { return json::parse(parse(file)->config_json()); };
  json file = wide_llama_json();
  file["rope_scaling"] = scaling;
  const json expected = written(file);
  EXPECT_EQ(expected["rope_scaling"], scaling);

  file["rope_parameters"] = parameters;
  EXPECT_EQ(written(file), expected) << "rope_parameters counts beside rope_scaling";
  file["rope_parameters"] = {{"full_attention", parameters}};
  EXPECT_EQ(written(file), expected) << "a field that does not count is no reason to refuse";
  file["rope_parameters"] = parameters;
  for (const json& nothing : {json(nullptr), json::object()}) {
    file["rope_scaling"] = nothing;
    EXPECT_EQ(written(file)["rope_theta"], 20000.0);
    EXPECT_FALSE(written(file).contains("rope_scaling"));
  }
}

TEST(RopeTable, AThetaInsideRopeScalingComesBeforeTheOneOutside) {
  json file = wide_llama_json();
  file["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 20000.0}};
  EXPECT_EQ(json::parse(parse(file)->config_json())["rope_theta"], 20000.0);
  file["rope_scaling"]["rope_theta"] = -1.0;
  expect_refused(file, "rope_theta");
}

TEST(RopeTable, RefusesParametersPerLayerType) {
  json file = wide_llama_json();
  file["rope_parameters"] = {{"full_attention", {{"rope_theta", 10000.0}}}, {"sliding_attention", {{"rope_theta", 20000.0}}}};
  expect_refused(file, "rope_parameters");
}

TEST(QwenConfig, Qwen2HasBiasesAndNoHeadNorms) {
  const BuiltModel built(*parse(qwen_json("Qwen2ForCausalLM", "qwen2"), "qwen"));
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_proj.bias"), "[32]");
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_norm.weight"), "absent");
}

TEST(QwenConfig, Qwen3HasHeadNormsAndNoBiases) {
  json file = qwen_json("Qwen3ForCausalLM", "qwen3");
  file["head_dim"] = 32;
  const BuiltModel built(*parse(file, "qwen"));
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_norm.weight"), "[32]");
  EXPECT_EQ(built.shape("model.layers.1.self_attn.q_proj.weight"), "[128,64]");
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_proj.bias"), "absent");
}

TEST(QwenConfig, Qwen3WithoutHeadDimHasThatOfTransformers) {
  EXPECT_EQ(parse(qwen_json("Qwen3ForCausalLM", "qwen3"), "qwen")->sizes().head_dim, 128);
  EXPECT_EQ(parse(qwen_json("Qwen2ForCausalLM", "qwen2"), "qwen")->sizes().head_dim, 16);
}

TEST(QwenConfig, RefusesByNameWhatItWouldComputeWrongly) {
  json file = qwen_json("Qwen3ForCausalLM", "qwen3");
  file["attention_bias"] = true;
  expect_refused(file, "attention_bias", "qwen");
  for (const auto& [architecture, type] : {std::pair{"Qwen2ForCausalLM", "qwen2"}, {"Qwen3ForCausalLM", "qwen3"}}) {
    file = qwen_json(architecture, type);
    file["use_sliding_window"] = true;
    expect_refused(file, "use_sliding_window", "qwen");
    file = qwen_json(architecture, type);
    file["layer_types"] = {"sliding_attention", "full_attention"};
    expect_refused(file, "layer_types", "qwen");
  }
}

TEST(QwenConfig, AMixtureWithoutExpertsIsTheDenseModel) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file["head_dim"] = 16;
  const auto architecture = parse(file, "qwen");
  EXPECT_THAT(architecture->config_json(), AllOf(HasSubstr("\"Qwen3ForCausalLM\""), HasSubstr("\"qwen3\"")));
  EXPECT_EQ(BuiltModel(*architecture).shape("model.layers.0.self_attn.q_norm.weight"), "[16]");
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    json mixture = file;
    mixture[field] = 8;
    expect_refused(mixture, field, "qwen");
    mixture[field] = 0;
    EXPECT_EQ(parse(mixture, "qwen")->config_json(), architecture->config_json()) << field;
  }
}

TEST(QwenConfig, GoesByTheListOfArchitecturesAlone) {
  json file = qwen_json("Qwen3ForCausalLM", "qwen3");
  file["_name_or_path"] = "Qwen2ForCausalLM";
  const BuiltModel built(*parse(file, "qwen"));
  EXPECT_EQ(built.shape("model.layers.0.self_attn.q_proj.bias"), "absent");
}

TEST(LlamaConfig, ManyKeysTakeLinearTime) {
  json file = llama_json();
  for (int i = 0; i < 40'000; ++i) file["key" + std::to_string(i)] = i;
  const std::string text = file.dump();
  const auto llama = test::family("llama");
  const std::clock_t begin = std::clock();
  EXPECT_NO_THROW(llama->from_config(text));
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.6) << "of the processor's seconds";
}

TEST(Families, AcceptTheirOwnArchitectures) {
  const auto llama = test::family("llama"), qwen = test::family("qwen");
  EXPECT_TRUE(llama->accepts("LlamaForCausalLM"));
  EXPECT_FALSE(llama->accepts("Qwen3ForCausalLM"));
  EXPECT_FALSE(llama->accepts("LlamaForSequenceClassification"));
  for (const char* name : {"Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"})
    EXPECT_TRUE(qwen->accepts(name)) << name;
  EXPECT_FALSE(qwen->accepts("LlamaForCausalLM"));
  EXPECT_FALSE(qwen->accepts("Qwen2MoeForCausalLM"));
}

TEST(Families, RefuseAnArchitectureOfOthers) {
  expect_refused(qwen_json("MistralForCausalLM", "mistral"), "MistralForCausalLM", "qwen");
  expect_refused(qwen_json("Qwen3ForCausalLM", "qwen3"), "Qwen3ForCausalLM", "llama");
  json file = llama_json();
  file.erase("architectures");
  expect_refused(file, "architectures");
}

}  // namespace
}  // namespace consist
