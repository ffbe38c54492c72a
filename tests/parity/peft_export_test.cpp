// A trained adapter as `consist train` exports it: as PEFT loads it, merged into the model, and from every layout; and resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/weights/model_weights.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using test::ChildResult;
using test::run_child;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

const std::string base = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
constexpr double alpha_over_rank = 6.0 / 4;

std::vector<float> values_of(const ModelWeights& weights, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(weights.shape(name).elements()));
  weights.read_f32(name, 0, values);
  return values;
}

class PeftExport : public ::testing::Test {
 protected:
  static Strings joined(Strings words, const Strings& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static ChildResult run(const char* command, const Strings& options) {
    return run_child(joined(
        {CONSIST_BINARY_DIR "/bin/consist", command, "--device", "cpu", "--dataset", "synthetic", "--sequence", "16"}, options));
  }
  static Strings with_lora(const Strings& more, const char* alpha = "6") {
    return joined(
        {"--model", base, "--adapter", "lora", "--lora.rank", "4", "--lora.alpha", alpha, "--lora.targets", "all-linear"}, more);
  }
  static ChildResult train(const Strings& options, const char* alpha = "6") {
    return run("train", joined({"--global-batch", "4", "--learning-rate", "1e-2"}, with_lora(options, alpha)));
  }
  static void expect_trained(const Strings& options) {
    const ChildResult result = train(options);
    ASSERT_EQ(result.status, 0) << result.output;
  }
  std::string adapter_in(const std::string& folder) const { return folder_ / folder + "/adapter_model.safetensors"; }

  TemporaryFolder folder_;
};

TEST_F(PeftExport, HasTheNamesAndTheFieldsOfPeft) {
  expect_trained({"--steps", "2", "--export", folder_ / "adapter"});
  const json config = json::parse(std::ifstream(folder_ / "adapter/adapter_config.json")),
             of_peft = json::parse(std::ifstream(base + "/peft/adapter_config.json"));
  for (const auto& [key, value] : config.items()) {
    ASSERT_TRUE(of_peft.contains(key)) << key;
    if (key != "base_model_name_or_path" && key != "target_modules") EXPECT_EQ(value, of_peft.at(key)) << key;
  }
  EXPECT_EQ(config.at("base_model_name_or_path"), base);
  auto targets = config.at("target_modules").get<Strings>();
  std::sort(targets.begin(), targets.end());
  EXPECT_EQ(targets, of_peft.at("target_modules").get<Strings>());
  const ModelWeights here(adapter_in("adapter")), there(base + "/peft/adapter_model.safetensors");
  ASSERT_EQ(here.names(), there.names());
  for (const std::string& name : here.names()) {
    EXPECT_EQ(here.shape(name), there.shape(name)) << name;
    EXPECT_EQ(here.stored_dtype(name), "F32") << name;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "adapter/config.json"));
  EXPECT_FALSE(ModelWeights::present(folder_ / "adapter"));
  const ChildResult again = train({"--steps", "2", "--export", folder_ / "adapter"});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, HasSubstr("holds weights already"));
}

TEST_F(PeftExport, MergedIsTheModelWithTheProductOfBothAdded) {
  const Strings run{"--steps", "3", "--checkpoint", folder_ / "ck", "--resume"};
  for (const Strings& more : {Strings{"--export", folder_ / "adapter"}, {"--export", folder_ / "merged", "--export-merged"}}) {
    Strings words = run;
    words.insert(words.end(), more.begin(), more.end());
    expect_trained(words);
  }
  const ModelWeights model(base), merged(folder_ / "merged"), adapter(adapter_in("adapter"));
  ASSERT_EQ(model.names(), merged.names());
  int adapted = 0;
  for (const std::string& name : model.names()) {
    const std::vector<float> before = values_of(model, name), after = values_of(merged, name);
    const std::string module = "base_model.model." + name.substr(0, name.rfind(".weight"));
    if (!adapter.has(module + ".lora_A.weight")) {
      EXPECT_EQ(before, after) << name;
      continue;
    }
    ++adapted;
    const std::vector<float> a = values_of(adapter, module + ".lora_A.weight"), b = values_of(adapter, module + ".lora_B.weight");
    const auto columns = static_cast<std::size_t>(model.shape(name).last());
    double largest = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      double product = 0;
      for (std::size_t r = 0; r < 4; ++r)
        product += static_cast<double>(b[i / columns * 4 + r]) * static_cast<double>(a[r * columns + i % columns]);
      largest = std::max(largest, std::abs(product));
      EXPECT_NEAR(after[i], before[i] + alpha_over_rank * product, 1e-6) << name << " " << i;
    }
    EXPECT_GT(largest, 1e-4) << name;
  }
  EXPECT_EQ(adapted, 2 * 7);
}

TEST_F(PeftExport, IsLoadedByPeftAndMergedByTransformersWithTheSameLogits) {
  const char* python = std::getenv("CONSIST_TORCH_PYTHON");
  if (python == nullptr || *python == '\0')
    GTEST_SKIP() << "CONSIST_TORCH_PYTHON names no Python with tests/golden/requirements.txt installed";
  const Strings run{"--steps", "5", "--checkpoint", folder_ / "ck", "--resume"};
  for (const Strings& more : {Strings{"--export", folder_ / "adapter"}, {"--export", folder_ / "merged", "--export-merged"}}) {
    Strings words = run;
    words.insert(words.end(), more.begin(), more.end());
    expect_trained(words);
  }
  const json reference = json::parse(std::ifstream(base + "/reference.json"));
  std::ofstream(folder_ / "tokens.json") << reference["batches"][0].dump();
  const ChildResult result = run_child({python, CONSIST_SOURCE_DIR "/tests/golden/check_peft_export.py", base,
                                        folder_ / "adapter", folder_ / "merged", folder_ / "tokens.json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const json found = json::parse(result.output.substr(result.output.find("{\"loss")));
  EXPECT_NEAR(found["loss_without"].get<double>() / reference["losses"][0].get<double>(), 1, 1e-6);
  EXPECT_GT(std::abs(found["loss"].get<double>() / found["loss_without"].get<double>() - 1), 1e-3);
  EXPECT_LT(found["largest_difference"].get<double>(), 1e-5);
}

struct Way {
  const char *name, *strategy, *ranks;
};

class PeftExportOf : public PeftExport, public ::testing::WithParamInterface<Way> {};

TEST_P(PeftExportOf, IsThatOfOneRank) {
  const Way& way = GetParam();
  expect_trained({"--steps", "2", "--export", folder_ / "one"});
  const Strings layout{"--steps", "2", "--strategy", way.strategy, "--ranks", way.ranks};
  for (const Strings& more : {Strings{"--export", folder_ / "all"}, {"--export", folder_ / "merged", "--export-merged"}}) {
    Strings words = layout;
    words.insert(words.end(), more.begin(), more.end());
    expect_trained(words);
  }
  expect_trained({"--steps", "2", "--export", folder_ / "one-merged", "--export-merged"});
  for (const auto& [a, b] : {std::pair{adapter_in("one"), adapter_in("all")}, {folder_ / "one-merged", folder_ / "merged"}}) {
    const ModelWeights one(a), all(b);
    ASSERT_EQ(one.names(), all.names());
    for (const std::string& name : one.names()) {
      const std::vector<float> expected = values_of(one, name), found = values_of(all, name);
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-4) << name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PeftExportOf,
                         ::testing::Values(Way{"zero2", "zero2", "2"}, Way{"zero3", "zero3-offload", "2"},
                                           Way{"tp", "tp-sp=2", "2"}, Way{"pipeline", "pipeline=2", "2"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(PeftExport, ResumedIsTheUninterruptedRunAndAnotherAdapterIsRefused) {
  const auto adapter = [&](const char* folder) {
    std::ifstream file(adapter_in(folder), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  expect_trained({"--steps", "4", "--export", folder_ / "whole"});
  expect_trained({"--steps", "2", "--checkpoint", folder_ / "ck"});
  const ChildResult other = train({"--steps", "4", "--checkpoint", folder_ / "ck", "--resume"}, "9");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output, HasSubstr("was trained with --adapter lora"));
  expect_trained({"--steps", "4", "--checkpoint", folder_ / "ck", "--resume", "--export", folder_ / "resumed"});
  EXPECT_FALSE(adapter("whole").empty());
  EXPECT_EQ(adapter("whole"), adapter("resumed"));
}

TEST_F(PeftExport, IsWhatAnotherRunBeginsFrom) {
  const auto evaluated = [&](const Strings& more) {
    const ChildResult result = run("evaluate", joined({"--json", folder_ / "loss.json", "--overwrite"}, more));
    EXPECT_EQ(result.status, 0) << result.output;
    return json::parse(std::ifstream(folder_ / "loss.json")).at("loss").get<double>();
  };
  expect_trained({"--steps", "5", "--checkpoint", folder_ / "ck", "--export", folder_ / "adapter"});
  expect_trained({"--steps", "5", "--checkpoint", folder_ / "ck", "--resume", "--export", folder_ / "merged", "--export-merged"});
  const double of_base = evaluated({"--model", base}), trained = evaluated(with_lora({"--checkpoint", folder_ / "ck"}));
  EXPECT_GT(std::abs(trained / of_base - 1), 1e-3);
  EXPECT_EQ(evaluated({"--model", base, "--checkpoint", folder_ / "ck"}), trained) << "a checkpoint says what its run adapted";
  EXPECT_EQ(evaluated({"--model", base, "--checkpoint", folder_ / "ck", "--adapter", "none"}), of_base);
  EXPECT_EQ(evaluated(with_lora({})), of_base);
  EXPECT_NEAR(evaluated(with_lora({"--lora.weights", folder_ / "adapter"})) / trained, 1, 1e-7);
  EXPECT_NEAR(evaluated({"--model", folder_ / "merged"}) / trained, 1, 1e-5);
  // Its values come through training as they went in.
  expect_trained({"--steps", "1", "--lora.weights", base + "/peft", "--export", folder_ / "first", "--clip", "1e-9"});
  const ModelWeights before(base + "/peft/adapter_model.safetensors"), after(adapter_in("first"));
  for (const std::string& name : before.names()) {
    if (name.ends_with("lora_B.weight")) continue;  // B begins with zeros, and any step moves it
    const std::vector<float> a = values_of(before, name), b = values_of(after, name);
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.02) << name << " " << i;
  }
  const ChildResult other = train({"--steps", "1", "--lora.weights", folder_ / "adapter"}, "9");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output, HasSubstr("has lora_alpha 6; --lora.alpha is 9, and must be that of the weights"));
  const ChildResult fresh = train({"--steps", "1", "--lora.weights", folder_ / "adapter", "--from-scratch"});
  EXPECT_EQ(fresh.status, 2);
  EXPECT_THAT(fresh.output, HasSubstr("--lora.weights"));
}

TEST_F(PeftExport, WithoutAnAdapterNothingIsMerged) {
  const ChildResult bare = run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--device", "cpu", "--dataset", "synthetic",
                                      "--model", base, "--steps", "1", "--export", folder_ / "model", "--export-merged"});
  EXPECT_EQ(bare.status, 2);
  EXPECT_THAT(bare.output, HasSubstr("--export-merged adds an adapter to the model, and there is none"));
}

const Strings in_blocks{"--frozen-weights", "nf4:4"};

/// Beside frozen weights in blocks (--frozen-weights).
class PeftExportInBlocks : public PeftExport {
 protected:
  /// The model that is trained when `more` are added.
  std::string merged(const char* name, const Strings& more) const {
    expect_trained(joined(more, {"--export", folder_ / name, "--export-merged"}));
    return folder_ / name;
  }
  static void expect_equal(const std::string& a, const std::string& b, float within) {
    const ModelWeights one(a), other(b);
    ASSERT_EQ(one.names(), other.names());
    for (const std::string& name : one.names()) {
      const std::vector<float> expected = values_of(one, name), found = values_of(other, name);
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], within) << name << " " << i;
    }
  }
  double evaluated(const Strings& more) const {
    const ChildResult result = run("evaluate", joined({"--json", folder_ / "loss.json", "--overwrite"}, more));
    EXPECT_EQ(result.status, 0) << result.output;
    return json::parse(std::ifstream(folder_ / "loss.json")).at("loss").get<double>();
  }
};

// A run that trains nothing says which weights the codes are.
TEST_F(PeftExportInBlocks, IsThatBesideTheDecodedWeights) {
  const std::string decoded = folder_ / "decoded";
  const ChildResult nothing_trained =
      run("train", with_lora(joined(in_blocks, {"--global-batch", "4", "--learning-rate", "0", "--steps", "1", "--export",
                                                decoded, "--export-merged"})));
  ASSERT_EQ(nothing_trained.status, 0) << nothing_trained.output;
  const ModelWeights before(base), after(decoded);
  for (const std::string& name : before.names()) {
    const bool is_linear = name.find("_proj") != std::string::npos;
    EXPECT_EQ(values_of(before, name) == values_of(after, name), !is_linear) << name;
  }
  const std::string of_codes = merged("codes", joined(in_blocks, {"--steps", "3"}));
  const ChildResult on_decoded = run("train", {"--global-batch", "4", "--learning-rate", "1e-2", "--model", decoded, "--adapter",
                                               "lora", "--lora.rank", "4", "--lora.alpha", "6", "--lora.targets", "all-linear",
                                               "--steps", "3", "--export", folder_ / "on-decoded", "--export-merged"});
  ASSERT_EQ(on_decoded.status, 0) << on_decoded.output;
  expect_equal(of_codes, folder_ / "on-decoded", 1e-6F);
}

TEST_F(PeftExportInBlocks, IsThatOfOneRankInEveryLayout) {
  const std::string one = merged("one", joined(in_blocks, {"--steps", "2"}));
  for (const Strings& layout : {Strings{"zero3-offload", "2", "--zero3-offload.param-persistence-threshold", "100"},
                                {"tp-sp=2", "2"},
                                {"pipeline=2", "2"},
                                {"tp-sp=2+zero3-offload", "4", "--zero3-offload.param-persistence-threshold", "100"}}) {
    Strings words = joined(in_blocks, {"--steps", "2", "--overwrite", "--strategy", layout[0], "--ranks", layout[1]});
    words.insert(words.end(), layout.begin() + 2, layout.end());
    expect_equal(one, merged("all", words), 2e-4F);
  }
}

TEST_F(PeftExportInBlocks, IsResumedAndEvaluatedFromCheckpoints) {
  const Strings more = joined(in_blocks, {"--checkpoint", folder_ / "ck", "--resume"});
  expect_trained(joined(more, {"--steps", "2"}));
  const ChildResult other = train({"--checkpoint", folder_ / "ck", "--resume", "--steps", "4"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output, HasSubstr("--lora.targets all-linear --frozen-weights nf4:4, this run asks for"));
  const std::string resumed = merged("resumed", joined(more, {"--steps", "4", "--strategy", "tp-sp=2", "--ranks", "2"}));
  expect_equal(merged("whole", joined(in_blocks, {"--steps", "4"})), resumed, 2e-4F);
  const double loss = evaluated({"--model", resumed});
  EXPECT_NEAR(evaluated({"--model", base, "--checkpoint", folder_ / "ck"}) / loss, 1, 1e-6);
  EXPECT_NEAR(evaluated(with_lora({"--checkpoint", folder_ / "ck"})) / loss, 1, 1e-6);
  EXPECT_NEAR(evaluated(with_lora(joined({"--checkpoint", folder_ / "ck"}, in_blocks))) / loss, 1, 1e-6);
  const double coarser = evaluated(with_lora({"--checkpoint", folder_ / "ck", "--frozen-weights", "nf4:8"}));
  EXPECT_GT(std::abs(coarser / loss - 1), 1e-6);
}

}  // namespace
}  // namespace consist
