// Every optimizer gives the losses of PyTorch (see tests/golden/make_optimizer_references.py), and in processes those of one
// rank: in one layout each, since tests/interpreter/layouts has them all.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/training/trainer.h"
#include "core/weights/model_weights.h"
#include "tests/parity/changed_model.h"
#include "tests/parity/reference.h"

namespace consist {
namespace {

using nlohmann::json;

/// The losses of a run of optimizers.json on one rank.
std::vector<double> losses_of(const test::Reference& reference, const json& run) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  RunConfig config;
  config.model = reference.folder;
  config.device = "cpu";
  config.batch = reference.rows();
  config.sequence = reference.sequence();
  config.optimizer_plugin = run.at("optimizer");
  for (const auto& [name, value] : run.at("options").items()) config.plugin_options[config.optimizer_plugin][name] = value;
  config.optimizer = {.weight_decay = run.at("weight_decay"), .max_norm = run.at("max_norm")};
  const Parts parts = make_parts(config, host);
  const std::shared_ptr<Device> device = make_device(config, host).device;
  device->open(0, 1);

  const CompileRequest request = parts.compile_request(config);
  const Layout layout = lay_out(request.strategies, 1);
  TrainingState state({{train_program, compile_step(request, layout)}}, *device, {}, 0, 0);
  state.allocate(false);
  const ModelWeights weights(reference.folder);
  state.load_weights(
      [&](const std::string& name, std::int64_t first, std::span<float> out) { weights.read_f32(name, first, out); });

  const std::size_t steps = run.at("losses").size();
  test::Reference repeated = reference;
  while (repeated.batches.size() < steps)
    repeated.batches.insert(repeated.batches.end(), reference.batches.begin(), reference.batches.end());
  const test::ReferenceRows rows(repeated);
  test::StepReports events;
  const TrainerSettings settings{.steps = static_cast<std::int64_t>(steps),
                                 .micro_batch = config.batch,
                                 .sequence = config.sequence,
                                 .learning_rate = run.at("learning_rate"),
                                 .optimizer = parts.optimizer.get()};
  EXPECT_EQ(train(state, rows, layout, 0, settings, events), TrainerResult::finished);
  std::vector<double> losses;
  for (const StepReport& report : events.reports) losses.push_back(report.loss);
  return losses;
}

TEST(OptimizerParity, LossesAreThoseOfPyTorch) {
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    const test::Reference reference = test::read_reference(model);
    const json runs = json::parse(std::ifstream(reference.folder + "/optimizers.json")).at("runs");
    EXPECT_EQ(runs.size(), 6u);
    for (const json& run : runs) {
      SCOPED_TRACE(std::string(model) + " " + run.at("optimizer").get<std::string>() + " " + run.at("options").dump());
      const std::vector<double> losses = losses_of(reference, run), expected = run.at("losses");
      ASSERT_EQ(losses.size(), expected.size());
      for (std::size_t step = 0; step < losses.size(); ++step)
        EXPECT_NEAR(losses[step] / expected[step], 1, 1e-5) << "step " << step + 1;
    }
  }
}

struct OptimizerCase {
  const char *name, *learning_rate, *strategy;
  int ranks;
  std::vector<std::string> more;
};

class OptimizerLayouts : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(OptimizerLayouts, LossesAreThoseOfOneRank) {
  const OptimizerCase& run = GetParam();
  std::vector<std::string> layout{std::string("--strategy=") + run.strategy, "--ranks=" + std::to_string(run.ranks),
                                  "--accumulation=2"};
  layout.insert(layout.end(), run.more.begin(), run.more.end());
  test::expect_losses_of_one_rank({"llama",
                                   "llama-tied",
                                   {{"tie_word_embeddings", false}},
                                   "fp32",
                                   "cpu",
                                   {std::string("--optimizer=") + run.name, std::string("--learning-rate=") + run.learning_rate}},
                                  {layout});
}

// The updates that the processor makes of what lies in the host's memory, and whole matrices of two axes.
INSTANTIATE_TEST_SUITE_P(
    Optimizers, OptimizerLayouts,
    ::testing::Values(OptimizerCase{"sgd",
                                    "0.1",
                                    "zero3-offload",
                                    2,
                                    {"--zero3-offload.offload-optimizer.device=cpu",
                                     "--zero3-offload.offload-optimizer.update=cpu"}},
                      OptimizerCase{"lion",
                                    "3e-4",
                                    "zero3-offload",
                                    2,
                                    {"--zero3-offload.offload-optimizer.device=cpu", "--zero3-offload.sub-group-size=3000"}},
                      OptimizerCase{"muon", "3e-3", "tp-sp=2+zero2", 4, {"--zero2.reduce-bucket-size=4000"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
