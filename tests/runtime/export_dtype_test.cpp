// In which dtype `consist train --export` writes weights, and that they are rounded as they should.
#include "core/state/export_dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/bfloat16.h"
#include "core/base/float16.h"
#include "core/weights/model_weights.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"
#include "tests/weights/sources.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string f32_model = CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied";

TEST(Float16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = from_float16(static_cast<std::uint16_t>(bits)), next = from_float16(static_cast<std::uint16_t>(bits + 1));
    ASSERT_EQ(to_float16(value), bits);
    ASSERT_EQ(to_float16(-value), bits | 0x8000);
    // The value after the largest would be 2^16, which is infinite.
    const float middle = bits == 0x7bff ? 65520.0F : (value + next) / 2;
    ASSERT_EQ(to_float16(middle), bits % 2 == 0 ? bits : bits + 1) << middle;
    ASSERT_EQ(to_float16(std::nextafter(middle, 0.0F)), bits) << middle;
    ASSERT_EQ(to_float16(std::nextafter(middle, 1e9F)), bits + 1) << middle;
  }
  EXPECT_EQ(to_float16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(to_float16(-1e30F), 0xfc00);
  EXPECT_EQ(to_float16(1e-30F), 0);
  EXPECT_TRUE(std::isnan(from_float16(to_float16(std::nanf("")))));
}

TEST(ExportDtype, WeightsAreRoundedWhateverRangeIsRead) {
  constexpr std::int64_t count = 600'001, first = 7;  // several pieces
  const TensorSource ramp = ramp_source("x", first + count, 1.0F / 3);
  for (const StoredDType dtype : {StoredDType(DType::bf16), StoredDType::float16()}) {
    const TensorSource rounded = rounded_to(dtype, ramp);
    EXPECT_EQ(rounded.dtype, dtype);
    std::vector<std::uint16_t> bits(count);
    rounded.read(bits.data(), first, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(first + i) * (1.0F / 3);
      ASSERT_EQ(bits[static_cast<std::size_t>(i)], dtype.is_float16() ? to_float16(value) : to_bfloat16(value)) << i;
    }
  }
  EXPECT_EQ(rounded_to(DType::f32, ramp).dtype, StoredDType(DType::f32));
}

TEST(ExportDtype, ShardsHaveRoomForTwiceAsManyNarrowWeights) {
  const TemporaryFolder folder;
  constexpr std::int64_t bytes_of_file = 4000;
  const std::vector<TensorSource> wide{ramp_source("a", 1000), ramp_source("b", 1000), ramp_source("c", 1000),
                                       ramp_source("d", 1000)};
  for (const StoredDType dtype : {StoredDType(DType::f32), StoredDType(DType::bf16), StoredDType::float16()}) {
    std::vector<TensorSource> tensors;
    for (const TensorSource& tensor : wide) tensors.push_back(rounded_to(dtype, tensor));
    const std::string path = folder / std::string(dtype.name());
    write_model_weights(path, tensors, bytes_of_file, false);
    const nlohmann::json index = nlohmann::json::parse(read_whole(path + "/model.safetensors.index.json"));
    EXPECT_EQ(index["metadata"]["total_size"], 4000 * dtype.bytes());
    EXPECT_EQ(index["weight_map"]["d"],
              dtype.bytes() == 4 ? "model-00004-of-00004.safetensors" : "model-00002-of-00002.safetensors");
    std::vector<float> values(1000);
    ModelWeights(path).read_f32("d", 0, values);
    EXPECT_EQ(values[255], 255);
  }
}

TEST(ExportDtype, WhatFloat16CannotHoldIsNamed) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<TensorSource> held{f32_source("a", Shape{3}, {65519.0F, -65519.0F, inf})};
  EXPECT_EQ(beyond_float16(held), "") << "what is infinite stays so";
  const std::vector<TensorSource> beyond{held[0], f32_source("model.norm.weight", Shape{2, 2}, {1, 2, -70000, 80000})};
  EXPECT_EQ(beyond_float16(beyond), "element 2 of 'model.norm.weight' is -70000");
}

TEST(ExportDtype, ConfigJsonSaysIt) {
  using nlohmann::json;
  const std::string text = "{\n  \"torch_dtype\": \"bfloat16\"\n}\n";
  EXPECT_EQ(with_dtype(text, DType::bf16), text);
  EXPECT_EQ(json::parse(with_dtype(text, DType::f32)), json({{"torch_dtype", "float32"}}));
  EXPECT_EQ(json::parse(with_dtype("{}", StoredDType::float16())), json({{"torch_dtype", "float16"}}));
  EXPECT_EQ(json::parse(with_dtype(R"({"dtype": "float32", "torch_dtype": "float16"})", DType::bf16)),
            json({{"dtype", "bfloat16"}}))
      << "transformers 5 reads both";
}

class ExportOf : public ::testing::Test {
 protected:
  /// A run that changes no weight, so that its export is the rounded source.
  std::string exported(const std::string& model, std::vector<std::string> more,
                       const std::string& says = "written: the model in") {
    const std::string folder = folder_ / ("export" + std::to_string(++runs_));
    more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", "train", "--device", "cpu", "--dataset", "synthetic",
                               "--sequence", "32", "--steps", "1", "--learning-rate", "0", "--model", model, "--export", folder});
    const test::ChildResult result = test::run_child(more);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr(says));
    return folder;
  }
  static std::string said(const std::string& folder) {
    return nlohmann::json::parse(read_whole(folder + "/config.json")).at("torch_dtype").get<std::string>();
  }
  static std::string stored(const std::string& folder) {
    const ModelWeights weights(folder);
    std::set<std::string> dtypes;
    for (const std::string& name : weights.names()) dtypes.insert(weights.file_of(name).tensor(name).dtype);
    return dtypes.size() == 1 ? *dtypes.begin() : std::to_string(dtypes.size()) + " dtypes";
  }
  static std::vector<float> values(const std::string& folder, const std::string& name) {
    const ModelWeights weights(folder);
    std::vector<float> values(static_cast<std::size_t>(weights.shape(name).elements()));
    weights.read_f32(name, 0, values);
    return values;
  }
  /// A folder with the model whose final norm has a weight that float16 cannot hold.
  std::string with_large_weight() {
    const std::string folder = folder_ / "large";
    const ModelWeights source(f32_model);
    std::vector<TensorSource> tensors;
    for (const std::string& name : source.names()) {
      std::vector<float> all = values(f32_model, name);
      if (name == "model.norm.weight") all[3] = 70000;
      tensors.push_back(f32_source(name, source.shape(name), all));
    }
    write_model_weights(folder, tensors, default_max_file_bytes, false);
    write_whole(folder + "/config.json", read_whole(f32_model + "/config.json"));
    return folder;
  }

  const TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(ExportOf, ARunHasTheDtypeOfTheWeightsThatItBeganFrom) {
  const std::string wide = exported(f32_model, {});
  EXPECT_EQ(stored(wide), "F32");
  EXPECT_EQ(said(wide), "float32");
  const std::string bf16 = exported(f32_model, {"--export-dtype", "bfloat16"}),
                    f16 = exported(f32_model, {"--export-dtype", "float16"});
  EXPECT_EQ(stored(bf16), "BF16");
  EXPECT_EQ(said(bf16), "bfloat16");
  EXPECT_EQ(stored(f16), "F16");
  EXPECT_EQ(said(f16), "float16");
  for (const std::string& source : {bf16, f16}) {
    const std::string again = exported(source, {"--precision", "bf16"});
    EXPECT_EQ(stored(again), stored(source)) << "the default is the source's";
    EXPECT_EQ(read_whole(again + "/model.safetensors"), read_whole(source + "/model.safetensors"));
    EXPECT_EQ(said(exported(source, {"--from-scratch"})), said(source)) << "from its config.json";
    EXPECT_EQ(stored(exported(source, {"--export-dtype", "float32"})), "F32");
  }
  EXPECT_EQ(stored(exported("qwen3-tiny", {})), "F32");
}

TEST_F(ExportOf, NarrowWeightsAreHalfAsLargeAndRounded) {
  const std::string wide = exported(f32_model, {}), narrow = exported(f32_model, {"--export-dtype", "bfloat16"});
  const ModelWeights weights(wide);
  std::int64_t elements = 0;
  for (const std::string& name : weights.names()) {
    const std::vector<float> all = values(wide, name), rounded = values(narrow, name);
    elements += static_cast<std::int64_t>(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(rounded[i], from_bfloat16(to_bfloat16(all[i]))) << name << " " << i;
  }
  const auto bytes = [](const std::string& folder) {
    return static_cast<std::int64_t>(std::filesystem::file_size(folder + "/model.safetensors"));
  };
  EXPECT_NEAR(static_cast<double>(bytes(wide) - bytes(narrow)), static_cast<double>(2 * elements), 64);
}

TEST_F(ExportOf, ANarrowFolderHasTheLossOfItsWeights) {
  const std::string narrow = exported(f32_model, {"--export-dtype", "bfloat16"}),
                    wide = exported(narrow, {"--export-dtype", "float32"});
  const auto loss = [&](const std::string& model) {
    const std::string json = folder_ / ("loss" + std::to_string(++runs_));
    const test::ChildResult result =
        test::run_child({CONSIST_BINARY_DIR "/bin/consist", "evaluate", "--device", "cpu", "--dataset", "synthetic", "--sequence",
                         "32", "--model", model, "--json", json});
    EXPECT_EQ(result.status, 0) << result.output;
    return nlohmann::json::parse(read_whole(json)).at("loss").get<double>();
  };
  EXPECT_EQ(loss(narrow), loss(wide));
  EXPECT_NE(loss(narrow), loss(f32_model));
}

TEST_F(ExportOf, DividedWeightsAreThoseOfOneRank) {
  for (const char* dtype : {"bfloat16", "float16"}) {
    const std::string one = exported(f32_model, {"--export-dtype", dtype});
    for (const char* strategy : {"zero3-offload", "pipeline=2"}) {
      const std::string two =
          exported(f32_model, {"--export-dtype", dtype, "--ranks", "2", "--strategy", strategy, "--batch", "2"});
      EXPECT_EQ(stored(two), stored(one));
      for (const std::string& name : ModelWeights(one).names()) EXPECT_EQ(values(two, name), values(one, name)) << name;
    }
  }
}

TEST_F(ExportOf, WeightsThatFloat16CannotHoldAreExportedInFloat32) {
  const std::string model = with_large_weight(),
                    message =
                        "is in float32, not in float16, whose largest number is 65504: element 3 of 'model.norm.weight' is 70000";
  for (const std::vector<std::string>& layout : {std::vector<std::string>{}, {"--ranks", "2", "--strategy", "zero3-offload"}}) {
    std::vector<std::string> words = layout;
    words.insert(words.end(), {"--export-dtype", "float16"});
    const std::string folder = exported(model, words, message);
    EXPECT_EQ(stored(folder), "F32");
    EXPECT_EQ(said(folder), "float32");
    EXPECT_EQ(values(folder, "model.norm.weight"), values(model, "model.norm.weight"));
  }
}

TEST_F(ExportOf, AnotherDtypeIsRefusedAndOneWithoutAnExportHasNoEffect) {
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", "train", "--device", "cpu", "--dataset", "synthetic",
                               "--sequence", "32", "--steps", "1", "--model", f32_model});
    return test::run_child(more);
  };
  const test::ChildResult other = train({"--export", folder_ / "none", "--export-dtype", "fp16"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output, AllOf(HasSubstr("--export-dtype"), HasSubstr("float16"), Not(HasSubstr("step 1/"))));
  EXPECT_THAT(train({"--export-dtype", "float16"}).output,
              HasSubstr("--export-dtype has no effect here; it needs --export FOLDER"));
}

}  // namespace
}  // namespace consist
