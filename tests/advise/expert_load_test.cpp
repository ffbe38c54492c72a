// Load of experts: shares, the capacity that a run comes to need, and predictions by it.
#include "core/plan/expert_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/archive/archive.h"
#include "launch/predict/prediction.h"
#include "tests/advise/planned.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

using ::testing::HasSubstr;

Plan mixture(const std::string& strategy, const std::string& load, const std::string& precision = "bf16",
             const std::string& dispatch = "gather") {
  const Plan plan = test::planned("h200", [&](RunConfig& config) {
    config.model = "qwen3-moe-tiny";
    config.precision = precision;
    config.strategies = parse_strategies(strategy);
    config.ranks = 4;
    config.batch = 4;
    config.expert_load = load;
    if (strategy.starts_with("ep")) config.plugin_options["ep"] = {{"dispatch", dispatch}, {"parts", "1"}};
  });
  return plan.for_target({nullptr, plan.target().machine, false, {}});
}

std::string error_of(const std::string& load) {
  try {
    predict(mixture("ep=4", load));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(ExpertLoad, SharesSumToOneAndATokenChoosesAnExpertOnce) {
  EXPECT_EQ(ExpertLoad::parse("natural"), nullptr);
  EXPECT_EQ(ExpertLoad::parse("balanced")->shares(8, 2), ExpertLoad::parse("zipf:0")->shares(8, 2));
  for (const char* load : {"zipf:0", "zipf:0.5", "zipf:1", "zipf:3", "zipf:50"}) {
    const std::vector<double> shares = ExpertLoad::parse(load)->shares(8, 2).front();
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12) << load;
    for (std::size_t e = 0; e < shares.size(); ++e) {
      EXPECT_LE(shares[e], 0.5 + 1e-12) << load;
      if (e > 0) EXPECT_LE(shares[e], shares[e - 1] + 1e-12) << load;
    }
  }
  EXPECT_EQ(ExpertLoad::parse("zipf:0")->shares(8, 2).front(), std::vector<double>(8, 0.125));
  const std::vector<double> zipf = ExpertLoad::parse("zipf:1")->shares(8, 1).front();
  EXPECT_NEAR(zipf[0] / zipf[3], 4, 1e-12);
}

TEST(ExpertLoad, FilesHaveSharesOrChoicesOfRuns) {
  const TemporaryFolder folder;
  std::ofstream(folder / "two.json") << "[3, 1, 1, 1, 0, 1, 1, 0]";
  std::ofstream(folder / "few.json") << "[1, 1]";
  std::ofstream(folder / "bad.json") << "{\"shares\": [1]}";
  EXPECT_DOUBLE_EQ(ExpertLoad::parse(folder / "two.json")->shares(8, 2).front()[0], 0.375);
  EXPECT_THAT(error_of(folder / "few.json"), HasSubstr("has 2 shares, the model 8 experts"));
  EXPECT_THAT(error_of(folder / "bad.json"), HasSubstr("must be a JSON list of numbers"));
  EXPECT_THAT(error_of("zipf:-1"), HasSubstr("needs a number, 0 or more"));
  EXPECT_THAT(error_of("skewed"), HasSubstr("is none of natural, balanced"));

  const std::string run = folder / "run.h5";
  {
    Archive archive(run, false);
    archive.define_experts({0, 1}, 4);
    archive.experts({.step = 1, .choices = {1, 1, 1, 1, 4, 0, 0, 0}});
    archive.experts({.step = 2, .choices = {1, 1, 1, 1, 0, 4, 0, 0}});
  }
  const std::vector<std::vector<double>> layers = ExpertLoad::parse(run)->shares(4, 2);
  EXPECT_EQ(layers, (std::vector<std::vector<double>>{{0.25, 0.25, 0.25, 0.25}, {0.5, 0.5, 0, 0}}));
}

TEST(ExpertLoad, EqualSharesAreBalancedToTheBit) {
  const TemporaryFolder folder;
  std::ofstream(folder / "equal.json") << "[1, 1, 1, 1, 1, 1, 1, 1]";
  for (const char* dispatch : {"gather", "all-to-all"}) {
    const Prediction balanced = predict(mixture("ep=4", "balanced", "bf16", dispatch));
    for (const std::string& load : {std::string("zipf:0"), folder / "equal.json"}) {
      const Prediction equal = predict(mixture("ep=4", load, "bf16", dispatch));
      EXPECT_EQ(equal.time.seconds, balanced.time.seconds) << dispatch << " " << load;
      EXPECT_EQ(equal.most_bytes(), balanced.most_bytes()) << dispatch << " " << load;
    }
  }
}

TEST(ExpertLoad, MoreOfItIsNeverFasterAndWholeExpertsWithstandIt) {
  for (const char* precision : {"bf16", "fp8"}) {
    for (const char* dispatch : {"gather", "all-to-all"}) {
      const double balanced = predict(mixture("ep=4", "balanced", precision, dispatch)).time.seconds;
      double before = balanced;
      std::int64_t bytes = 0;
      for (const char* load : {"zipf:0", "zipf:0.25", "zipf:0.5", "zipf:0.75", "zipf:1", "zipf:1.5", "zipf:2", "zipf:4"}) {
        const Prediction p = predict(mixture("ep=4", load, precision, dispatch));
        // Rates between measured sizes do not rise strictly.
        EXPECT_GE(p.time.seconds, (1 - 1e-4) * before) << precision << " " << dispatch << " " << load;
        EXPECT_GE(p.most_bytes(), bytes) << precision << " " << dispatch << " " << load;
        before = p.time.seconds;
        bytes = p.most_bytes();
      }
      EXPECT_GT(before, balanced) << precision << " " << dispatch;
    }
  }
  EXPECT_EQ(predict(mixture("ddp", "zipf:2")).time.seconds, predict(mixture("ddp", "balanced")).time.seconds);
}

TEST(ExpertLoad, TheCapacityGrowsUntilTheFullestRankHasAPlaceForItsRows) {
  // Of 8 experts on 4 ranks the first two have 2.21 times the mean; the capacity is 1.25, then 1.875, then 2.81 times the mean.
  const auto load = ExpertLoad::parse("zipf:1");
  const Program first = mixture("ep=4", "balanced").step(0);
  EXPECT_NEAR(load->room_for(first), 1.5 * 1.5, 1e-12);
  EXPECT_EQ(ExpertLoad::parse("zipf:0.1")->room_for(first), 1);

  const Program grown = mixture("ep=4", "zipf:1").step(0);
  const double fullest = 4 * (1 + 0.5) / (1 + 1. / 2 + 1. / 3 + 1. / 4 + 1. / 5 + 1. / 6 + 1. / 7 + 1. / 8);
  int products = 0;
  for (const Instruction& i : grown.instructions) {
    if (i.op->expert_weights() < 0) continue;
    const Shape rows = grown[i.inputs[0]].shape;
    const double mean = 4. * 4 * 1024 * 2;  // ranks, sequences, tokens, choices
    EXPECT_NEAR(i.attributes.real("used_rows") * static_cast<double>(rows[1]), fullest * mean, 1e-6 * mean);
    ++products;
  }
  EXPECT_GT(products, 0);
}

TEST(ExpertLoad, AModelWithoutExpertsRefusesIt) {
  EXPECT_THROW(test::planned("h200",
                             [](RunConfig& config) {
                               config.model = "llama-tiny";
                               config.expert_load = "zipf:1";
                             }),
               UsageError);
}

}  // namespace
}  // namespace consist::launch
