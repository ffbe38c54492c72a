// Fixture of tests of a model from outside that transformers has, too: what one of its folders in tests/golden/hf trains,
// generates and is evaluated as.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/external/installed.h"
#include "tests/parity/optimizer_losses.h"

namespace consist::test {

class TransformersModel : public Installed {
 protected:
  using Words = std::vector<std::string>;

  static std::string golden(const std::string& model) { return CONSIST_SOURCE_DIR "/tests/golden/hf/" + model; }

  /// Ten steps in fp32.
  static std::vector<double> losses_of_model(const std::string& plugin, const std::string& model, const Words& layout) {
    Words words{"--plugin",       plugin, "--model",    golden(model), "--dataset", "synthetic", "--precision",     "fp32",
                "--global-batch", "8",    "--sequence", "32",          "--steps",   "10",        "--learning-rate", "1e-2"};
    words.insert(words.end(), layout.begin(), layout.end());
    return losses(words);
  }

  static void expect_losses_of_transformers(const std::string& plugin, const std::string& model) {
    PluginHost host({plugin});
    const Reference reference = read_reference(model);
    const auto adamw = nlohmann::json::parse(std::ifstream(reference.folder + "/reference.json")).at("adamw");
    const nlohmann::json run{
        {"optimizer", "adamw"},
        {"options",
         {{"beta1", adamw.at("beta1").dump()}, {"beta2", adamw.at("beta2").dump()}, {"epsilon", adamw.at("epsilon").dump()}}},
        {"learning_rate", reference.learning_rate},
        {"weight_decay", reference.weight_decay},
        {"max_norm", reference.max_norm},
        {"losses", reference.losses}};
    ASSERT_EQ(reference.losses.size(), 5u);
    expect_losses(losses_of(reference, run, host), run);
  }

  static void expect_proven(const std::string& plugin, const std::string& model, const std::vector<Words>& layouts) {
    for (const Words& layout : layouts) {
      Words words{"prove",   "--plugin", plugin,       "--model", golden(model), "--precision", "fp32",
                  "--batch", "2",        "--sequence", "32",      "--ranks",     "2",           "--strategy"};
      words.insert(words.end(), layout.begin(), layout.end());
      EXPECT_THAT(consist(words), ::testing::HasSubstr("equal: this layout trains as one rank does")) << layout.back();
    }
  }

  static void expect_greedy_tokens(const std::string& plugin, const std::string& model) {
    const auto reference = generate_references().at(model);
    const std::string folder = *folder_ / (model + "-longer"), file = *folder_ / (model + ".made.json");
    std::filesystem::copy(golden(model), folder);
    auto config = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
    config["max_position_embeddings"] = 512;
    std::ofstream(folder + "/config.json") << config;
    std::string ids;
    for (const int token : reference.at("prompt")) ids += (ids.empty() ? "" : ",") + std::to_string(token);
    consist({"generate", "--plugin", plugin, "--model", folder, "--device", "cpu", "--temperature", "0", "--ignore-eos",
             "--max-tokens", std::to_string(reference.at("tokens").size()), "--prompt-ids", ids, "--json", file, "--overwrite"});
    EXPECT_EQ(nlohmann::json::parse(std::ifstream(file)).at("tokens"), reference.at("tokens"));
  }

  static void expect_evaluated_loss(const std::string& plugin, const std::string& model) {
    const std::string tokens = *folder_ / (model + ".u16"), file = *folder_ / (model + ".evaluated.json");
    std::ofstream rows(tokens, std::ios::binary);
    for (const auto& batch : read_reference(model).batches) {
      for (const auto& row : batch) {
        for (const std::int32_t token : row) {
          const auto id = static_cast<std::uint16_t>(token);
          rows.write(reinterpret_cast<const char*>(&id), sizeof id);
        }
      }
    }
    rows.close();
    consist({"evaluate",    "--plugin",        plugin, "--model",
             golden(model), "--device",        "cpu",  "--dataset",
             "tokens",      "--tokens.files",  tokens, "--tokens.eval-files",
             tokens,        "--tokens.format", "u16",  "--sequence",
             "32",          "--batch",         "4",    "--evaluate-sequences",
             "0",           "--json",          file});
    EXPECT_NEAR(nlohmann::json::parse(std::ifstream(file)).at("loss").get<double>(), generate_references().at(model).at("loss"),
                1e-6);
  }
};

}  // namespace consist::test
