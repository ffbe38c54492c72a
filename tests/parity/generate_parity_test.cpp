// Generation with a cache of keys and values: logits of the forward part without one, and the tokens that transformers generates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/plan/plan.h"
#include "core/state/loaded_weights.h"
#include "core/training/generator.h"
#include "tests/child_process.h"
#include "tests/consist_program.h"
#include "tests/lone_job.h"
#include "tests/parity/reference.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int32_t>;
using test::program;

// Windows, biases, qk-norm, tied heads, scaled frequencies, pad tokens and both kinds of mixtures are among them.
const char* const all_models[] = {"llama-untied", "llama-tied",   "llama-rope-scaled", "qwen3-tied",
                                  "qwen3-untied", "qwen2.5-bias", "llama-padded",      "qwen2.5-window",
                                  "qwen3-moe",    "mixtral",      "qwen3-padded"};

class GenerateParity : public ::testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string(CONSIST_SOURCE_DIR "/tests/golden/hf/") + GetParam(); }
};

/// A model on the CPU and its programs.
class Model {
 public:
  Model(const std::string& folder, const std::string& precision, std::int64_t sequence)
      : plan_(for_device(plan_run(config(folder, precision, sequence), host()))) {}
  const Plan& plan() const { return plan_; }
  Device& device() const { return *plan_.target().device; }
  void load(TrainingState& state) {
    state.allocate(false);
    load_trained_weights(state, plan_.config(), plan_.parts(), job_);
  }

 private:
  static PluginHost& host() {
    static PluginHost plugins({CONSIST_BINARY_DIR "/lib/consist/plugins"});
    return plugins;
  }
  static Plan for_device(const Plan& plan) {
    const std::shared_ptr<Device> device = make_device(plan.config(), host()).device;
    device->open(0, 1);
    return plan.for_target({device, plan.target().machine});
  }
  static RunConfig config(const std::string& folder, const std::string& precision, std::int64_t sequence) {
    RunConfig config;
    config.model = folder;
    config.device = "cpu";
    config.precision = precision;
    config.batch = 1;
    config.sequence = sequence;
    config.evaluate_every = 1;
    config.plugin_options["cpu"]["threads"] = "1";  // the models are tiny
    return config;
  }

  const Plan plan_;
  test::LoneJob job_;
};

/// The cross-entropy of targets, each by the logits that follow the token before it.
double loss_of(Generator& generator, const Tokens& tokens, std::size_t prompt) {
  double loss = 0;
  std::span<const float> logits = generator.read(std::span(tokens).first(prompt));
  for (std::size_t at = prompt; at < tokens.size(); ++at) {
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    loss += most + std::log(sum) - logits[static_cast<std::size_t>(tokens[at])];
    if (at + 1 < tokens.size()) logits = generator.read(std::span(tokens).subspan(at, 1));
  }
  return loss;
}

/// The same by an evaluation's program, of all tokens at once and without a cache.
class Forward {
 public:
  explicit Forward(Model& model) : state_({{evaluate_program, model.plan().evaluation(0).value()}}, model.device(), {}, 0, 0) {
    model.load(state_);
  }

  double loss_of(const Tokens& tokens, std::size_t prompt) {
    const std::size_t length = tokens.size() - 1;
    Tokens targets(tokens.begin() + 1, tokens.end());
    std::fill_n(targets.begin(), prompt - 1, -1);
    const auto bytes = static_cast<std::int64_t>(length * sizeof(std::int32_t));
    state_.write_input(state_.step(), "ids", tokens.data(), bytes);
    state_.write_input(state_.step(), "targets", targets.data(), bytes);
    state_.step().executable().run();
    state_.step().executable().wait();
    return state_.read_metric(state_.step(), "loss") * static_cast<double>(length);
  }

 private:
  TrainingState state_;
};

// Prompts shorter than a stretch, of whole stretches, and beyond; then token by token.
TEST_P(GenerateParity, LogitsOfTheCacheAreThoseOfTheForwardPart) {
  constexpr std::int64_t longest = 127;
  const test::Reference reference = test::read_reference(GetParam());
  Tokens tokens;
  for (const auto& batch : reference.batches) {
    for (const auto& row : batch) tokens.insert(tokens.end(), row.begin(), row.end());
  }
  tokens.resize(longest + 1);
  for (const std::string precision : {"fp32", "bf16"}) {
    Model model(folder(), precision, longest);
    TrainingState state(text_programs(model.plan(), longest), model.device(), {}, 0, 0);
    model.load(state);
    Generator generator(state);
    Forward forward(model);
    const double tolerance = precision == "fp32" ? 1e-5 : 2e-2;
    for (const std::size_t prompt : {1, 64, 65, 100, 127}) {
      SCOPED_TRACE(::testing::Message() << precision << ", a prompt of " << prompt);
      generator.restart();
      const double expected = forward.loss_of(tokens, prompt);
      EXPECT_NEAR(loss_of(generator, tokens, prompt) / expected, 1, tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateParity, ::testing::ValuesIn(all_models), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

/// A copy of a folder in which the model has room for more positions.
void copy_with_positions(const std::string& from, const std::string& to, int positions) {
  fs::create_directory(to);
  fs::copy_file(from + "/model.safetensors", to + "/model.safetensors");
  std::ifstream file(from + "/config.json");
  nlohmann::json config = nlohmann::json::parse(file);
  config["max_position_embeddings"] = positions;
  std::ofstream(to + "/config.json") << config;
}

constexpr int count = 200;

Tokens generated(const std::vector<std::string>& options, const std::string& json) {
  std::vector<std::string> command{program,
                                   "generate",
                                   "--device",
                                   "cpu",
                                   "--cpu.threads",
                                   "1",
                                   "--temperature",
                                   "0",
                                   "--ignore-eos",
                                   "--max-tokens",
                                   std::to_string(count),
                                   "--json",
                                   json,
                                   "--overwrite"};
  command.insert(command.end(), options.begin(), options.end());
  const test::ChildResult result = test::run_child(command);
  EXPECT_EQ(result.status, 0) << result.output;
  std::ifstream file(json);
  return nlohmann::json::parse(file).at("tokens").get<Tokens>();
}

void expect_tokens(const nlohmann::json& reference, std::vector<std::string> options, const std::string& json) {
  EXPECT_GT(reference.at("margin").get<double>(), 2e-5) << "rounding would decide a token: the reference needs another prompt";
  std::string ids;
  for (const int token : reference.at("prompt")) ids += (ids.empty() ? "" : ",") + std::to_string(token);
  options.insert(options.end(), {"--prompt-ids", ids});
  ASSERT_EQ(reference.at("tokens").size(), static_cast<std::size_t>(count));
  EXPECT_EQ(generated(options, json), reference.at("tokens").get<Tokens>());
}

TEST_P(GenerateParity, GreedyTokensAreThoseOfTransformers) {
  const TemporaryFolder temporary;
  copy_with_positions(folder(), temporary / "model", 512);
  expect_tokens(test::generate_references().at(GetParam()), {"--model", temporary / "model"}, temporary / "made.json");
}

class GeneratePreset : public ::testing::TestWithParam<const char*> {};

/// From the folder that a run exported, and from the run's checkpoint; a rate of 0 leaves the initial weights as they are.
TEST_P(GeneratePreset, GreedyTokensAreThoseOfTransformers) {
  const nlohmann::json reference = test::generate_references().at(GetParam());
  const TemporaryFolder temporary;
  const test::ChildResult trained = test::run_child({program,           "train",
                                                     "--model",         GetParam(),
                                                     "--device",        "cpu",
                                                     "--cpu.threads",   "1",
                                                     "--dataset",       "synthetic",
                                                     "--steps",         "1",
                                                     "--batch",         "1",
                                                     "--sequence",      "16",
                                                     "--learning-rate", "0",
                                                     "--seed",          std::to_string(reference.at("seed").get<int>()),
                                                     "--checkpoint",    temporary / "checkpoints",
                                                     "--export",        temporary / "exported"});
  ASSERT_EQ(trained.status, 0) << trained.output;
  expect_tokens(reference, {"--model", temporary / "exported"}, temporary / "made.json");
  expect_tokens(reference, {"--checkpoint", temporary / "checkpoints"}, temporary / "made.json");
}
INSTANTIATE_TEST_SUITE_P(Presets, GeneratePreset, ::testing::Values("llama-tiny", "qwen3-tiny"), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace consist
