// Every optimizer makes legal updates of every parameter, the same each time, that train; the same losses where ranks hold
// parts of parameters and states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "consist/error.h"
#include "core/program/printer.h"
#include "tests/conformance/parts/parts.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;

class OptimizerConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  RunConfig config(const std::string& model, const std::string& precision) const {
    RunConfig config = testing::tiny_config(testing::tiny_model(model), precision);
    config.optimizer_plugin = GetParam().name;
    config.plugin_options[GetParam().name] = GetParam().options;
    return config;
  }
  std::vector<double> losses(const std::string& archive, const std::vector<std::string>& layout) const {
    std::vector<std::string> words{"--model=" + testing::tiny_model("llama-tied"),
                                   "--optimizer=" + GetParam().name,
                                   "--sequence=16",
                                   "--global-batch=4",
                                   "--device=cpu",
                                   "--cpu.threads=1"};
    for (const auto& [option, value] : GetParam().options) words.push_back("--" + GetParam().name + "." + option + "=" + value);
    words.insert(words.end(), layout.begin(), layout.end());
    test::add_fallbacks(words, {"--steps=8"});
    return test::train_from_scratch(folder_ / archive, words, testing::consist_program()).column("loss");
  }
  const TemporaryFolder folder_;
};

TEST_P(OptimizerConformance, ItsNumbersAreFiniteInEachStep) {
  const auto optimizer = host().make<Optimizer>("optimizer", GetParam().name, GetParam().options);
  EXPECT_FALSE(optimizer->describe().empty());
  const std::size_t count = optimizer->scalar_count();
  EXPECT_GE(count, 1u);
  for (const std::int64_t step : {1, 2, 1000, 1'000'000}) {
    std::vector<float> scalars(count, std::nanf(""));
    optimizer->write_scalars(step, 1e-3, scalars);
    for (const float x : scalars) EXPECT_TRUE(std::isfinite(x)) << "of step " << step;
  }
}

// compile_step() verifies what update() left, and that it writes every parameter and state.
TEST_P(OptimizerConformance, ProgramsAreLegalAndTheSameEachTime) {
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      SCOPED_TRACE(std::string(model) + " in " + precision);
      const RunConfig run = config(model, precision);
      const Plan plan = plan_run(run, host());
      const Program step = plan.step(0);
      EXPECT_EQ(to_text(step), to_text(plan.step(0)));
      for (const Parameter& parameter : step.parameters) {
        std::set<std::string> names;
        for (const ParameterState& state : parameter.states) {
          EXPECT_TRUE(names.insert(state.name).second) << parameter.name << " has two states '" << state.name << "'";
          EXPECT_NE(state.name, "master");
        }
      }
    }
  }
}

TEST_P(OptimizerConformance, ATinyModelLearns) {
  bool learns = false;  // at one of these rates: each optimizer has its own
  for (const char* rate : {"0.001", "0.01", "0.1"}) {
    const std::vector<double> found = losses("run.h5", {"--strategy=ddp", std::string("--learning-rate=") + rate});
    learns = learns || found.back() < found.front() - 0.01;
  }
  EXPECT_TRUE(learns);
}

TEST_P(OptimizerConformance, LossesAreThoseOfOneRankWhereRanksHoldParts) {
  if (!host().has("strategy", "zero2") || !host().has("strategy", "tp-sp")) GTEST_SKIP() << "this build lacks zero2 or tp-sp";
  const std::vector<double> expected = losses("one.h5", {"--strategy=ddp"});
  for (const char* strategy : {"zero2", "tp-sp=2"}) {
    const std::vector<double> found = losses("two.h5", {std::string("--strategy=") + strategy, "--ranks=2"});
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s], 1, 1e-5) << strategy << ", loss of step " << s + 1;
  }
}

// A checkpoint holds states and the number of steps that are done: whatever else an optimizer keeps is not there after a resume.
TEST_P(OptimizerConformance, AResumedRunGoesOnAsOneThatWasNotInterrupted) {
  const std::vector<double> whole = losses("whole.h5", {"--strategy=ddp"});
  const std::string checkpoint = "--checkpoint=" + (folder_ / "checkpoint");
  losses("first.h5", {"--strategy=ddp", "--steps=4", checkpoint});
  const std::vector<double> rest = losses("rest.h5", {"--strategy=ddp", checkpoint, "--resume"});
  ASSERT_EQ(whole.size(), 8u);
  ASSERT_GE(rest.size(), 4u);
  for (std::size_t back = 1; back <= 4; ++back)
    EXPECT_NEAR(rest[rest.size() - back] / whole[8 - back], 1, 1e-6) << "loss of step " << 9 - back << " of the resumed run";
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerConformance,
                         ::testing::ValuesIn(testing::candidates("optimizer", "CONSIST_CONFORMANCE_OPTIMIZERS")),
                         [](const auto& info) { return testing::test_name(info); });

}  // namespace
}  // namespace consist
