// Recomputation repeats the same kernels on the same values, and activations that wait on the host come back as they left: losses
// and gradient norms do not change by a bit. Ranks are threads of the test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/passes/offload_activations.h"
#include "core/passes/recompute.h"
#include "tests/golden_config.h"
#include "tests/runtime/in_process_run.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

struct Case {
  const char* name;
  const char* golden;  ///< a folder of tests/golden/hf, which gets six layers
  const char* precision;
  int ranks = 1;
  const char* strategy = "ddp";
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

/// Notes the figures of steps.
struct Figures final : TrainerEvents {
  void step_finished(const StepReport& report) override {
    losses.push_back(report.loss);
    grad_norms.push_back(report.grad_norm);
  }
  void evaluated(const EvaluationReport& /*report*/) override {}
  void checkpoint(std::int64_t /*step*/) override {}
  bool stop_requested() override { return false; }

  std::vector<double> losses, grad_norms;
  std::int64_t device_bytes = 0, host_bytes = 0;
};

class SameBits : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "model");
    std::ofstream(folder_ / "model/config.json") << test::golden_config(GetParam().golden, {{"num_hidden_layers", 6}});
  }

  Figures train(const std::string& recompute, const std::string& layers = "", const std::string& offload = "none") const {
    RunConfig config;
    config.model = folder_ / "model";
    config.precision = GetParam().precision;
    config.device = "cpu";
    config.plugin_options["cpu"] = {{"threads", "1"}, {"bf16", "emulated"}};  // two runs multiply in the same way
    config.dataset = "synthetic";
    config.ranks = GetParam().ranks;
    config.strategies = parse_strategies(GetParam().strategy);
    config.batch = 4;
    config.accumulation = 2;
    config.sequence = 64;
    config.steps = 6;
    config.learning_rate = 1e-3;
    config.recompute = parse_recompute(recompute, layers);
    config.offload = parse_offload(offload);
    Figures figures;
    test::run_in_process(config, [&](const test::RankInProcess& rank) {
      const auto state = rank.make_state();
      state->allocate(false);
      state->initialize(1);
      Figures own;
      EXPECT_EQ(::consist::train(*state, *rank.dataset, *rank.layout, rank.rank, rank.settings(), own), TrainerResult::finished);
      own.device_bytes = state->planned_bytes();
      own.host_bytes = state->planned_host_bytes();
      if (rank.rank == 0) figures = own;
    });
    return figures;
  }

  static void expect_same(const Figures& found, const Figures& expected) {
    ASSERT_EQ(expected.losses.size(), 6U);
    ASSERT_LT(expected.losses.back(), expected.losses.front()) << "nothing was learnt, so that equal losses would say little";
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.grad_norms, expected.grad_norms);
  }

  TemporaryFolder folder_;
};

TEST_P(SameBits, WithRecomputation) {
  const Figures kept = train("none");
  for (const auto& [what, layers] :
       {std::pair("full", ""), std::pair("full", "1-1"), std::pair("swiglu,rms_norm,attention,rope", "")}) {
    SCOPED_TRACE(std::string(what) + " " + layers);
    expect_same(train(what, layers), kept);
  }
}

TEST_P(SameBits, WithActivationsOnTheHost) {
  for (const std::string recompute : {"none", "full"}) {
    SCOPED_TRACE(recompute);
    const Figures kept = train(recompute), there = train(recompute, "", "all");
    expect_same(there, kept);
    EXPECT_EQ(kept.host_bytes, 0);
    EXPECT_GT(there.host_bytes, 0);
    if (recompute == "none" && GetParam().strategy != std::string("pipeline=2"))
      EXPECT_LT(there.device_bytes, kept.device_bytes);
    else  // of a stage of three layers little can go, of an input for each layer, too
      EXPECT_LT(there.device_bytes, 1.05 * static_cast<double>(kept.device_bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SameBits,
                         ::testing::Values(Case{"llama_fp32", "llama-untied", "fp32"}, Case{"llama_bf16", "llama-untied", "bf16"},
                                           Case{"qwen3_bf16_zero2", "qwen3-tied", "bf16", 2, "zero2"},
                                           Case{"qwen3_bf16_zero3", "qwen3-tied", "bf16", 2, "zero3-offload"},
                                           Case{"llama_bf16_tp_sp", "llama-untied", "bf16", 2, "tp-sp=2"},
                                           Case{"llama_bf16_cp", "llama-untied", "bf16", 2, "cp=2"},
                                           Case{"qwen3_fp32_pipeline", "qwen3-tied", "fp32", 2, "pipeline=2"},
                                           Case{"llama_fp8", "llama-untied", "fp8"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
