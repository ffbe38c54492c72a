// Conversations in JSON Lines, from the file to the loss: what transformers gives with the same labels
// (tests/golden/make_chat_references.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/training/trainer.h"
#include "core/weights/model_weights.h"
#include "tests/parity/reference.h"
#include "tests/parity/tolerances.h"

namespace consist {
namespace {

using test::transformers_tolerance;

const std::string golden = CONSIST_SOURCE_DIR "/tests/golden/";

/// Each step is one epoch, so that the order of the sequences does not matter.
class ChatParity : public ::testing::TestWithParam<const char*> {};

TEST_P(ChatParity, LossesAreThoseOfTransformers) {
  std::ifstream file(golden + "chat/losses.json");
  const nlohmann::json json = nlohmann::json::parse(file), expected = json.at(GetParam()), adamw = json.at("adamw");
  const auto windows = expected.at("windows").get<std::int64_t>();

  RunConfig config;
  config.model = golden + "chat/model";
  config.device = "cpu";
  config.batch = windows / 2;
  config.accumulation = 2;
  config.sequence = json.at("sequence").get<std::int64_t>();
  config.dataset = "jsonl";
  config.plugin_options["jsonl"] = {
      {"files", golden + "chat/rows.jsonl"},         {"format", "chat"},        {"template", "chatml"},
      {"tokenizer", golden + "tokenizer/qwen.json"}, {"documents", GetParam()}, {"eval-fraction", "0"}};
  config.plugin_options["adamw"] = {
      {"beta1", adamw.at("beta1").dump()}, {"beta2", adamw.at("beta2").dump()}, {"epsilon", adamw.at("epsilon").dump()}};
  config.plugin_options["cpu"]["threads"] = "1";
  config.optimizer = {.weight_decay = adamw.at("weight_decay").get<double>(), .max_norm = json.at("max_norm").get<double>()};
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const Parts parts = make_parts(config, host);
  const std::shared_ptr<Device> device = make_device(config, host).device;
  device->open(0, 1);
  const std::shared_ptr<Dataset> dataset = open_dataset(parts, config, host).dataset;
  ASSERT_EQ(dataset->train_sequences(), windows);
  const CompileRequest request = parts.compile_request(config);
  const Layout layout = lay_out(request.strategies, 1);
  TrainingState state({{train_program, compile_step(request, layout)}}, *device, CommunicatorOfQueue{}, 0, 0);
  state.allocate(false);
  const ModelWeights weights(config.model);
  state.load_weights(
      [&](const std::string& name, std::int64_t first, std::span<float> out) { weights.read_f32(name, first, out); });
  const auto losses = expected.at("losses").get<std::vector<double>>(),
             norms = expected.at("grad_norms").get<std::vector<double>>();
  const TrainerSettings settings{.steps = static_cast<std::int64_t>(losses.size()),
                                 .micro_batch = config.batch,
                                 .sequence = config.sequence,
                                 .accumulation = config.accumulation,
                                 .learning_rate = adamw.at("lr").get<double>(),
                                 .optimizers = parts.optimizer.get()};
  test::StepReports events;
  ASSERT_EQ(train(state, *dataset, layout, 0, settings, events), TrainerResult::finished);
  ASSERT_EQ(events.reports.size(), losses.size());
  for (std::size_t s = 0; s < losses.size(); ++s) {
    EXPECT_NEAR(events.reports[s].loss / losses[s], 1, transformers_tolerance) << "loss of step " << s + 1;
    EXPECT_NEAR(events.reports[s].grad_norm / norms[s], 1, 10 * transformers_tolerance) << "grad_norm of step " << s + 1;
  }
  const std::string other = std::string(GetParam()) == "joined" ? "apart" : "joined";
  EXPECT_GT(std::abs(losses[0] / json.at(other).at("losses")[0].get<double>() - 1), 10 * transformers_tolerance)
      << "apart is as joined";
}

INSTANTIATE_TEST_SUITE_P(All, ChatParity, ::testing::Values("joined", "apart"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace consist
