// Every precision rewrites programs of any model into legal ones, the same each time, that train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

class PrecisionConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  RunConfig config(const std::string& model) const {
    RunConfig config = testing::tiny_config(testing::tiny_model(model), GetParam().name);
    config.plugin_options[GetParam().name] = GetParam().options;
    return config;
  }
};

TEST_P(PrecisionConformance, SaysWhatItIs) {
  const auto precision = host().make<Precision>("precision", GetParam().name, GetParam().options);
  EXPECT_FALSE(precision->describe().empty());
  EXPECT_TRUE((std::set<std::string>{"fp32", "tf32", "bf16", "fp8"}).contains(precision->peak())) << precision->peak();
  EXPECT_TRUE(precision->dtypes().moment == DType::f32 || precision->dtypes().moment == DType::bf16);
}

// compile_step() verifies what the precision left.
TEST_P(PrecisionConformance, ProgramsAreLegalAndTheSameEachTime) {
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    for (const int ranks : {1, 2}) {
      for (const int accumulation : {1, 2}) {
        SCOPED_TRACE(std::string(model) + " on " + std::to_string(ranks) + " ranks x accumulation " +
                     std::to_string(accumulation));
        RunConfig run = config(model);
        run.ranks = ranks;
        run.accumulation = accumulation;
        run.evaluate_every = 1;
        const Plan plan = plan_run(run, host());
        const Program step = plan.step(0);
        EXPECT_EQ(to_text(step), to_text(plan.step(0)));
        for (const Parameter& parameter : step.parameters) EXPECT_NE(parameter.gradient, no_tensor) << parameter.name;
        EXPECT_NO_THROW(plan.evaluation(0));
      }
    }
  }
}

TEST_P(PrecisionConformance, ATinyModelLearnsAsInFp32) {
  const TemporaryFolder folder;
  const auto losses = [&](const std::string& precision, const std::string& archive) {
    std::vector<std::string> words{"--model=" + testing::tiny_model("qwen3-tied"),
                                   "--precision=" + precision,
                                   "--sequence=16",
                                   "--steps=8",
                                   "--batch=4",
                                   "--cpu.threads=1"};
    if (precision == GetParam().name) {
      for (const auto& [option, value] : GetParam().options) words.push_back("--" + precision + "." + option + "=" + value);
    }
    return test::train_from_scratch(folder / archive, words, testing::consist_program()).column("loss");
  };
  const std::vector<double> expected = losses("fp32", "fp32.h5");
  std::vector<double> found;
  try {
    found = losses(GetParam().name, "own.h5");
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()).find("has no kernel") != std::string::npos) GTEST_SKIP() << error.what();
    throw;
  }
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_LT(found.back(), found.front());
  for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s], 1, 0.05) << "loss of step " << s + 1;
}

INSTANTIATE_TEST_SUITE_P(Precisions, PrecisionConformance,
                         ::testing::ValuesIn(testing::candidates("precision", "CONSIST_CONFORMANCE_PRECISIONS")),
                         [](const auto& info) { return testing::test_name(info); });

}  // namespace
}  // namespace consist
