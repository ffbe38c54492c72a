// The rotary embedding of a config.json: its table is that of transformers, whichever fields say it.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/models/config_files.h"

namespace consist {
namespace {

using nlohmann::json;
using test::BuiltModel;
using test::expect_refused;
using test::llama_json;
using test::parse;

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

TEST(RopeTable, YarnIsThatOfTransformers) {
  json file = wide_llama_json();
  file["max_position_embeddings"] = 8192;
  const json by_factor{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  file["rope_scaling"] = by_factor;
  expect_table(file, {{0, 3, 1.13862944F, 0},
                      {1, 0, 0.615204155F, 0.958123624F},
                      {4095, 20, -0.0143273287F, 1.13853931F},
                      {8191, 30, 0.987660468F, 0.566571951F},
                      {8191, 40, 0.644195974F, 0.938876212F},
                      {5000, 63, 1.12678766F, 0.163788423F}});
  EXPECT_EQ(parse(json::parse(parse(file)->config_json()))->config_json(), parse(file)->config_json());
  file["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};  // of the model's positions
  expect_table(file, {{4095, 20, -0.669249952F, -0.921184838F}, {8191, 40, -0.123923555F, 1.13186574F}});
  file["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 8.0},    {"original_max_position_embeddings", 2048},
                          {"beta_fast", 16.0},   {"beta_slow", 2.0}, {"attention_factor", 1.5}};
  expect_table(file,
               {{1, 0, 0.810453534F, 1.26220644F}, {4095, 20, -0.881651998F, -1.21354425F}, {1, 45, 1.5F, 0.000288736221F}});
  file["rope_scaling"] = by_factor;
  file["rope_scaling"]["mscale"] = 0.707;
  file["rope_scaling"]["mscale_all_dim"] = 1.0;
  expect_table(file, {{7, 5, -0.930111885F, -0.254594475F}, {8191, 40, 0.545581818F, 0.795152128F}});
  file["rope_scaling"] = by_factor;
  file["rope_scaling"]["truncate"] = false;
  expect_refused(file, "rope_scaling.truncate");
  file["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 0.5}};
  expect_refused(file, "rope_scaling.factor");
}

TEST(RopeTable, NewerFormWithoutScalingCarriesTheta) {
  json newer = wide_llama_json();
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  EXPECT_EQ(parse(newer)->config_json(), parse(wide_llama_json())->config_json());
  newer["rope_parameters"] = {{"rope_theta", 20000.0}, {"rope_type", "default"}};
  EXPECT_EQ(json::parse(parse(newer)->config_json())["rope_theta"], 20000.0);
}

// The configuration classes of transformers 5.23 read these values from the same files; 4.57 agrees wherever it reads the field.
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

}  // namespace
}  // namespace consist
