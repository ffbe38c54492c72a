// Every optimizer gives the losses of PyTorch (see tests/golden/make_optimizer_references.py), and in processes those of one
// rank: in one layout each, since tests/interpreter/layouts has them all.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/parity/changed_model.h"
#include "tests/parity/optimizer_losses.h"

namespace consist {
namespace {

using nlohmann::json;

TEST(OptimizerParity, LossesAreThoseOfPyTorch) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    const test::Reference reference = test::read_reference(model);
    const json runs = json::parse(std::ifstream(reference.folder + "/optimizers.json")).at("runs");
    EXPECT_EQ(runs.size(), 8u);
    for (const json& run : runs) {
      SCOPED_TRACE(std::string(model) + " " + run.at("optimizer").get<std::string>() + " " + run.at("options").dump());
      test::expect_losses(test::losses_of(reference, run, host), run);
    }
  }
}

struct OptimizerCase {
  const char *name, *learning_rate, *strategy;
  int ranks;
  std::vector<std::string> more;  // of the layout alone
  std::string rules = "";         // of one rank, too
};

class OptimizerLayouts : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(OptimizerLayouts, LossesAreThoseOfOneRank) {
  const OptimizerCase& run = GetParam();
  std::vector<std::string> layout{std::string("--strategy=") + run.strategy, "--ranks=" + std::to_string(run.ranks),
                                  "--accumulation=2"};
  layout.insert(layout.end(), run.more.begin(), run.more.end());
  std::vector<std::string> options{std::string("--optimizer=") + run.name, std::string("--learning-rate=") + run.learning_rate};
  if (!run.rules.empty()) options.push_back("--optimizer-rules=" + run.rules);
  test::expect_losses_of_one_rank({"llama", "llama-tied", {{"tie_word_embeddings", false}}, "fp32", "cpu", options}, {layout});
}

// Muon on the matrices of layers is what the plugin muon does itself.
TEST(OptimizerParity, ARuleForMatricesIsMuon) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const test::Reference reference = test::read_reference("llama-untied");
  json run{{"optimizer", "muon"}, {"options", json::object()}, {"weight_decay", 0.1},
           {"max_norm", 1.0},     {"learning_rate", 3e-3},     {"losses", std::vector<double>(8)}};
  const std::vector<double> expected = test::losses_of(reference, run, host).losses;
  run["optimizer"] = "adamw";
  const std::vector<double> of_adamw = test::losses_of(reference, run, host).losses;
  run["rules"] = "*.layers.*_proj.weight:optimizer=muon";
  EXPECT_EQ(test::losses_of(reference, run, host).losses, expected);
  EXPECT_NE(of_adamw, expected) << "the rule changes nothing";
  run["rules"] = "*:lr-factor=1";
  EXPECT_EQ(test::losses_of(reference, run, host).losses, of_adamw);
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
                      OptimizerCase{"muon", "3e-3", "tp-sp=2+zero2", 4, {"--zero2.reduce-bucket-size=4000"}},
                      OptimizerCase{"adamw",
                                    "1e-3",
                                    "pipeline=2+zero2",
                                    4,
                                    {},
                                    "*.layers.*_proj.weight:optimizer=muon,lr-factor=3;*norm*:weight-decay=0.1"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
