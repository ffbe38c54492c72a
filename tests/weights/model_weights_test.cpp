// A model's weights in one file or several, and that the reference library reads what is written.
#include "core/weights/model_weights.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "tests/python.h"
#include "tests/temporary_folder.h"
#include "tests/weights/sources.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

const std::string kGolden = CONSIST_SOURCE_DIR "/tests/golden/safetensors";

std::vector<std::string> entries(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

float first_of(const ModelWeights& weights, const std::string& name) {
  float value = 0;
  weights.read_f32(name, 0, std::span(&value, 1));
  return value;
}

TEST(ModelWeights, ShardsOfTheReferenceLibrary) {
  for (const std::string& path : {kGolden + "/sharded", kGolden + "/sharded/model.safetensors.index.json"}) {
    const ModelWeights weights(path);
    EXPECT_THAT(weights.names(), ElementsAre("a.weight", "b.weight", "c.weight"));
    EXPECT_EQ(weights.shape("a.weight"), (Shape{2, 2}));
    EXPECT_EQ(weights.stored_dtype("b.weight"), "BF16");
    EXPECT_EQ(first_of(weights, "b.weight"), 0.5F);
    EXPECT_EQ(first_of(weights, "c.weight"), 0x1.998p-4F);
    EXPECT_FALSE(weights.has("d.weight"));
    EXPECT_THAT([&] { weights.shape("d.weight"); }, ThrowsMessage<DataError>(AllOf(HasSubstr("d.weight"), HasSubstr(path))));
  }
}

TEST(ModelWeights, OneFileOrItsFolder) {
  const TemporaryFolder folder;
  EXPECT_FALSE(ModelWeights::present(folder.path()));
  std::vector<TensorSource> tensors = {ramp_source("x", 4, 2)};
  write_model_weights(folder / "deep/er", tensors, 1 << 20, false);
  EXPECT_THAT(entries(folder / "deep/er"), ElementsAre("model.safetensors"));
  EXPECT_TRUE(ModelWeights::present(folder / "deep/er"));
  EXPECT_EQ(ModelWeights(folder / "deep/er").names(), ModelWeights(folder / "deep/er/model.safetensors").names());
}

TEST(ModelWeights, ShardsBySize) {
  const TemporaryFolder folder;
  std::vector<TensorSource> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back(ramp_source("t" + std::to_string(i), i == 3 ? 5000 : 100, static_cast<float>(i)));
  write_model_weights(folder.path(), tensors, 1000, false);
  EXPECT_THAT(entries(folder.path()), UnorderedElementsAre("model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                                                           "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                                                           "model.safetensors.index.json"));
  const ModelWeights weights(folder.path());
  for (int i = 0; i < 5; ++i) {
    float value = 0;
    weights.read_f32("t" + std::to_string(i), 99, std::span(&value, 1));
    EXPECT_EQ(value, 99.0F * static_cast<float>(i));
  }
  const auto index = nlohmann::json::parse(read_whole(folder / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * 5400);
}

TEST(ModelWeights, EarlierWeightsAreKeptOrReplacedAsAWhole) {
  const TemporaryFolder folder;
  const std::vector<TensorSource> one = {ramp_source("x", 100), ramp_source("y", 100)};
  const std::vector<TensorSource> two = {ramp_source("z", 100), ramp_source("y", 100, 3)};
  write_model_weights(folder.path(), one, 400, false);
  EXPECT_THAT([&] { write_model_weights(folder.path(), two, 1000, false); },
              ThrowsMessage<UsageError>(HasSubstr("has weights already")));
  write_model_weights(folder.path(), two, 1000, true);
  EXPECT_THAT(entries(folder.path()), ElementsAre("model.safetensors"));
  EXPECT_THAT(ModelWeights(folder.path()).names(), ElementsAre("y", "z"));
  write_model_weights(folder.path(), one, 400, true);
  EXPECT_THAT(ModelWeights(folder.path()).names(), ElementsAre("x", "y"));
  EXPECT_EQ(entries(folder.path()).size(), 3U);
}

TEST(ModelWeights, ASourceThatFailsLeavesNothing) {
  const TemporaryFolder folder;
  const std::vector<TensorSource> one = {ramp_source("x", 100)};
  write_model_weights(folder.path(), one, 1000, false);
  std::vector<TensorSource> bad = {ramp_source("x", 100), {"y", DType::f32, Shape{1}, [](void*, std::int64_t, std::int64_t) {
                                                             throw SystemError("the device is gone");
                                                           }}};
  EXPECT_THAT([&] { write_model_weights(folder.path(), bad, 400, true); }, ThrowsMessage<SystemError>("the device is gone"));
  EXPECT_THAT(entries(folder.path()), ElementsAre("model.safetensors"));
  EXPECT_EQ(ModelWeights(folder.path()).shape("x"), Shape{100});
}

TEST(ModelWeights, WhatIsMissingIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { ModelWeights(folder / "none"); }, ThrowsMessage<UsageError>(HasSubstr(folder / "none")));
  EXPECT_THAT([&] { ModelWeights(folder.path()); }, ThrowsMessage<UsageError>(HasSubstr("neither model.safetensors nor")));
  write_whole(folder / "pytorch_model.bin", "x");
  EXPECT_THAT([&] { ModelWeights(folder.path()); }, ThrowsMessage<UsageError>(HasSubstr("pytorch_model.bin")));
}

TEST(ModelWeights, AdviceSaysHowToConvertWhatIsThere) {
  const TemporaryFolder folder;
  EXPECT_EQ(ModelWeights::advice(folder.path()), "");
  write_whole(folder / "training_args.bin", "x");
  EXPECT_THAT(ModelWeights::advice(folder.path()), HasSubstr("convert it to safetensors"));
  write_whole(folder / "consolidated.00.pth", "x");
  EXPECT_THAT(ModelWeights::advice(folder.path()), HasSubstr("convert_llama_weights_to_hf.py"));
  write_whole(folder / "pytorch_model-00001-of-00002.bin", "x");
  EXPECT_THAT(ModelWeights::advice(folder.path()),
              AllOf(HasSubstr("pytorch_model-00001-of-00002.bin"), HasSubstr("save_pretrained(NEW_FOLDER)")));
  write_whole(folder / "other.safetensors", "x");
  EXPECT_THAT(ModelWeights::advice(folder.path()), HasSubstr("name that file, or add the index"));
}

TEST(ModelWeights, AnIndexThatDoesNotFit) {
  const TemporaryFolder folder;
  const std::string index = folder / "model.safetensors.index.json";
  const auto refused = [&](const std::string& text, const ::testing::Matcher<std::string>& message) {
    write_whole(index, text);
    EXPECT_THAT([&] { ModelWeights(folder.path()); }, ThrowsMessage<DataError>(AllOf(HasSubstr(index), message))) << text;
  };
  refused("{", HasSubstr("no valid JSON"));
  refused("[]", HasSubstr("weight_map"));
  refused("{}", HasSubstr("weight_map"));
  refused(R"({"weight_map":{"x":1}})", HasSubstr("no file for tensor \"x\""));
  refused(R"({"weight_map":{"x":"../x.safetensors"}})", HasSubstr("no plain file name"));
  refused(R"({"weight_map":{"x":"/etc/passwd"}})", HasSubstr("no plain file name"));
  refused(R"({"weight_map":{"x":""}})", HasSubstr("no plain file name"));
  refused(R"({"weight_map":{"x":"a.safetensors"}})",
          AllOf(HasSubstr("tensor \"x\""), HasSubstr("a.safetensors"), HasSubstr("no such file")));
  std::filesystem::copy_file(kGolden + "/sharded/model-00001-of-00002.safetensors", folder / "a.safetensors");
  refused(R"({"weight_map":{"x":"a.safetensors"}})", HasSubstr("does not have it"));
  write_whole(folder / "a.safetensors", "short");
  write_whole(index, R"({"weight_map":{"x":"a.safetensors"}})");
  EXPECT_THAT([&] { ModelWeights(folder.path()); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("a.safetensors"), HasSubstr("cut off"))));
}

TEST(ModelWeights, ReferenceLibraryReadsWhatIsWritten) {
  CONSIST_NEEDS_PYTHON(python);
  const TemporaryFolder folder;
  std::vector<std::uint32_t> wide;
  for (std::uint32_t i = 0; i < 300; ++i) wide.push_back(i * 14'316'557U);
  const std::vector<std::uint16_t> narrow = {0x3f80, 0x7fc1, 0x8000, 1, 0x7f80};
  const std::vector<TensorSource> tensors = {source_of<std::uint16_t>("model.norm.weight", DType::bf16, {5}, narrow),
                                             source_of<std::uint32_t>("model.embed_tokens.weight", DType::f32, {3, 100}, wide),
                                             source_of<std::uint32_t>("größe", DType::f32, {}, {0x40490fdb}),
                                             source_of<std::uint32_t>("none", DType::f32, {0, 3}, {}),
                                             source_of<std::int32_t>("ids", DType::i32, {2, 1}, {-1, 5})};
  write_model_weights(folder / "single", tensors, 1 << 20, false);
  write_model_weights(folder / "sharded", tensors, 40, false);
  const nlohmann::json expected = {{"model.norm.weight", {{"dtype", "BF16"}, {"shape", {5}}, {"bits", narrow}}},
                                   {"model.embed_tokens.weight", {{"dtype", "F32"}, {"shape", {3, 100}}, {"bits", wide}}},
                                   {"größe", {{"dtype", "F32"}, {"shape", nlohmann::json::array()}, {"bits", {0x40490fdb}}}},
                                   {"none", {{"dtype", "F32"}, {"shape", {0, 3}}, {"bits", nlohmann::json::array()}}},
                                   {"ids", {{"dtype", "I32"}, {"shape", {2, 1}}, {"bits", {-1, 5}}}}};
  write_whole(folder / "expected.json", expected.dump());
  const PythonResult result =
      run_python(python, {CONSIST_SOURCE_DIR "/tests/weights/check_safetensors.py", folder.path().string()});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output, "equal\n");
}

}  // namespace
}  // namespace consist
