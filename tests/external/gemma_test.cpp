// Gemma 3 as a plugin of its own (tests/external/gemma): it trains, generates and is evaluated as transformers does it, and every
// layout trains it as one rank does. It has no op and no kernel of its own.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/external/installed.h"
#include "tests/parity/optimizer_losses.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class ExternalGemma : public test::Installed {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugin_ = built("gemma");
  }
  static std::string model() { return CONSIST_SOURCE_DIR "/tests/golden/hf/gemma3"; }

  static std::vector<double> losses(const Words& layout) {
    Words words{"--plugin",       plugin_, "--model",    model(), "--dataset", "synthetic", "--precision",     "fp32",
                "--global-batch", "8",     "--sequence", "32",    "--steps",   "10",        "--learning-rate", "1e-2"};
    words.insert(words.end(), layout.begin(), layout.end());
    return Installed::losses(words);
  }

  static inline std::string plugin_;
};

TEST_F(ExternalGemma, LossesOfFiveStepsAreThoseOfTransformers) {
  PluginHost host({plugin_});
  const test::Reference reference = test::read_reference("gemma3");
  const json adamw = json::parse(std::ifstream(reference.folder + "/reference.json")).at("adamw");
  const json run{
      {"optimizer", "adamw"},
      {"options",
       {{"beta1", adamw.at("beta1").dump()}, {"beta2", adamw.at("beta2").dump()}, {"epsilon", adamw.at("epsilon").dump()}}},
      {"learning_rate", reference.learning_rate},
      {"weight_decay", reference.weight_decay},
      {"max_norm", reference.max_norm},
      {"losses", reference.losses}};
  ASSERT_EQ(reference.losses.size(), 5u);
  test::expect_losses(test::losses_of(reference, run, host), run);
}

TEST_F(ExternalGemma, EveryLayoutTrainsAsOneRankDoes) {
  const std::vector<double> one = losses({});
  for (const char* strategy : {"tp-sp=2", "zero3-offload=2", "pipeline=2", "cp=2"}) {
    SCOPED_TRACE(strategy);
    expect_same(losses({"--ranks", "2", "--strategy", strategy}), one);
  }
}

// Scale and windows in each way of dividing a sequence, in fp64.
TEST_F(ExternalGemma, LayoutsAreProven) {
  for (const Words& layout : {Words{"tp-sp=2"}, Words{"cp=2", "--cp.attention", "ring"},
                              Words{"cp=2", "--cp.attention", "ulysses"}, Words{"cp=2", "--cp.attention", "gather"}}) {
    Words words{"prove",   "--plugin", plugin_,      "--model", model(),   "--precision", "fp32",
                "--batch", "2",        "--sequence", "32",      "--ranks", "2",           "--strategy"};
    words.insert(words.end(), layout.begin(), layout.end());
    EXPECT_THAT(consist(words), HasSubstr("equal: this layout trains as one rank does")) << layout.back();
  }
}

TEST_F(ExternalGemma, GreedyTokensAreThoseOfTransformers) {
  const json reference = test::generate_references().at("gemma3");
  const std::string folder = *folder_ / "gemma3-longer", file = *folder_ / "made.json";
  std::filesystem::copy(model(), folder);
  json config = json::parse(std::ifstream(folder + "/config.json"));
  config["max_position_embeddings"] = 512;
  std::ofstream(folder + "/config.json") << config;
  std::string ids;
  for (const int token : reference.at("prompt")) ids += (ids.empty() ? "" : ",") + std::to_string(token);
  consist({"generate", "--plugin", plugin_, "--model", folder, "--device", "cpu", "--temperature", "0", "--ignore-eos",
           "--max-tokens", std::to_string(reference.at("tokens").size()), "--prompt-ids", ids, "--json", file, "--overwrite"});
  EXPECT_EQ(json::parse(std::ifstream(file)).at("tokens"), reference.at("tokens"));
}

TEST_F(ExternalGemma, AnEvaluationHasTheLossOfTransformers) {
  const std::string tokens = *folder_ / "rows.u16", file = *folder_ / "evaluated.json";
  std::ofstream rows(tokens, std::ios::binary);
  for (const auto& batch : test::read_reference("gemma3").batches) {
    for (const auto& row : batch) {
      for (const std::int32_t token : row) {
        const auto id = static_cast<std::uint16_t>(token);
        rows.write(reinterpret_cast<const char*>(&id), sizeof id);
      }
    }
  }
  rows.close();
  consist({"evaluate", "--plugin",        plugin_, "--model",
           model(),    "--device",        "cpu",   "--dataset",
           "tokens",   "--tokens.files",  tokens,  "--tokens.eval-files",
           tokens,     "--tokens.format", "u16",   "--sequence",
           "32",       "--batch",         "4",     "--evaluate-sequences",
           "0",        "--json",          file});
  EXPECT_NEAR(json::parse(std::ifstream(file)).at("loss").get<double>(), test::generate_references().at("gemma3").at("loss"),
              1e-6);
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
