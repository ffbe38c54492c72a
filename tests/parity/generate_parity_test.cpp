// Generation with a cache of keys and values: logits of the forward part without one, and the tokens that transformers generates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/plan/plan.h"
#include "core/runtime/generator.h"
#include "core/runtime/loaded_weights.h"
#include "tests/child_process.h"
#include "tests/lone_job.h"
#include "tests/parity/reference.h"
#include "tests/python.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int32_t>;

const std::string program = CONSIST_BINARY_DIR "/bin/consist";

// Windows, biases, qk-norm, tied heads, scaled frequencies, pad tokens and both kinds of mixtures are among them.
const char* const all_models[] = {"llama-untied", "llama-tied",   "llama-rope-scaled", "qwen3-tied",
                                  "qwen3-untied", "qwen2.5-bias", "llama-padded",      "qwen2.5-window",
                                  "qwen3-moe",    "mixtral",      "qwen3-padded"};

class GenerateParity : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string(CONSIST_SOURCE_DIR "/tests/golden/hf/") + GetParam(); }
};

/// A model on the CPU and its programs.
class Model {
 public:
  Model(const std::string& folder, const std::string& precision, std::int64_t sequence)
      : plan_(config(folder, precision, sequence), host()) {
    plan_.lay_out();
    add_device(plan_.parts(), plan_.config(), host());
    plan_.parts().device->open(0, 1);
  }
  Plan& plan() { return plan_; }
  Device& device() { return *plan_.parts().device; }
  void load(TrainingState& state) {
    state.allocate(false);
    load_trained_weights(state, plan_.config(), plan_.parts(), job_);
  }

 private:
  static PluginHost& host() {
    static PluginHost plugins({CONSIST_BINARY_DIR "/lib/consist/plugins"});
    return plugins;
  }
  static RunConfig config(const std::string& folder, const std::string& precision, std::int64_t sequence) {
    RunConfig config;
    config.model = folder;
    config.device = "cpu";
    config.precision = precision;
    config.batch = 1;
    config.sequence = sequence;
    config.evaluate_every = 1;
    return config;
  }

  Plan plan_;
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
double loss_of_forward(Model& model, const Tokens& tokens, std::size_t prompt) {
  TrainingState state(model.plan().evaluation(0).value(), std::nullopt, model.device(), {}, 0, 0);
  model.load(state);
  const std::size_t length = tokens.size() - 1;
  Tokens targets(tokens.begin() + 1, tokens.end());
  std::fill_n(targets.begin(), prompt - 1, -1);
  const auto bytes = static_cast<std::int64_t>(length * sizeof(std::int32_t));
  state.write_input(state.step(), "ids", tokens.data(), bytes);
  state.write_input(state.step(), "targets", targets.data(), bytes);
  state.step().executable().run();
  state.step().executable().wait();
  return state.read_metric(state.step(), "loss") * static_cast<double>(length);
}

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
    TextPrograms programs = text_programs(model.plan(), longest);
    TrainingState state(std::move(programs.next), std::move(programs.prompt), model.device(), {}, 0, 0);
    model.load(state);
    Generator generator(state, *state.evaluation(), state.step());
    const double tolerance = precision == "fp32" ? 1e-5 : 2e-2;
    for (const std::size_t prompt : {1, 2, 64, 65, 100, 127}) {
      SCOPED_TRACE(testing::Message() << precision << ", a prompt of " << prompt);
      generator.restart();
      const double expected = loss_of_forward(model, tokens, prompt);
      EXPECT_NEAR(loss_of(generator, tokens, prompt) / expected, 1, tolerance);
    }
  }
}

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
  std::vector<std::string> command{
      program,  "generate", "--device", "cpu", "--temperature", "0", "--ignore-eos", "--max-tokens", std::to_string(count),
      "--json", json};
  command.insert(command.end(), options.begin(), options.end());
  const test::ChildResult result = test::run_child(command);
  EXPECT_EQ(result.status, 0) << result.output;
  std::ifstream file(json);
  return nlohmann::json::parse(file).at("tokens").get<Tokens>();
}

/// Expects what transformers generates; where that is near a tie there is nothing to compare.
void expect_as_transformers(const std::string& python, const std::string& folder, const std::string& ids,
                            const std::vector<std::string>& options, const std::string& json) {
  const PythonResult reference =
      run_python(python, {CONSIST_SOURCE_DIR "/tests/golden/greedy_tokens.py", folder, std::to_string(count), ids});
  ASSERT_EQ(reference.status, 0) << reference.output;
  const nlohmann::json made = nlohmann::json::parse(reference.output.substr(reference.output.rfind("{\"tokens")));
  ASSERT_GT(made.at("margin").get<double>(), 1e-4) << "the test needs another prompt: rounding would decide a token";
  std::vector<std::string> words = options;
  words.insert(words.end(), {"--prompt-ids", ids});
  EXPECT_EQ(generated(words, json), made.at("tokens").get<Tokens>());
}

TEST_P(GenerateParity, GreedyTokensAreThoseOfTransformers) {
  CONSIST_NEEDS_PYTHON(python);
  const TemporaryFolder temporary;
  copy_with_positions(folder(), temporary / "model", 512);
  expect_as_transformers(python, temporary / "model", "7,3,11,42,5,9,23", {"--model", temporary / "model"},
                         temporary / "made.json");
}
INSTANTIATE_TEST_SUITE_P(Models, GenerateParity, testing::ValuesIn(all_models), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

class TrainedALittle : public testing::TestWithParam<const char*> {};

/// From the checkpoint, and from the folder that the run exported.
TEST_P(TrainedALittle, GreedyTokensAreThoseOfTransformers) {
  CONSIST_NEEDS_PYTHON(python);
  const TemporaryFolder temporary;
  const test::ChildResult trained = test::run_child(
      {program, "train", "--model", GetParam(), "--device", "cpu", "--steps", "12", "--batch", "2", "--sequence", "64",
       "--learning-rate", "3e-3", "--checkpoint", temporary / "checkpoints", "--export", temporary / "exported"});
  ASSERT_EQ(trained.status, 0) << trained.output;
  const std::string ids = "5,117,2048,33,900";
  expect_as_transformers(python, temporary / "exported", ids, {"--model", temporary / "exported"}, temporary / "exported.json");
  EXPECT_EQ(generated({"--checkpoint", temporary / "checkpoints", "--prompt-ids", ids}, temporary / "checkpoint.json"),
            generated({"--model", temporary / "exported", "--prompt-ids", ids}, temporary / "exported.json"));
}
INSTANTIATE_TEST_SUITE_P(Presets, TrainedALittle, testing::Values("llama-tiny", "qwen3-tiny"), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace consist
