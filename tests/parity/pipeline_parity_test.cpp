// Pipelines of all schedules train as one rank does, save what another layout goes on with, and export the same model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/weights/model_weights.h"
#include "tests/golden_config.h"
#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

constexpr int steps = 10;
constexpr int layers = 8;  // enough for four ranks with two chunks each

struct Choice {
  const char* schedule;
  int stages;
  const char* recompute;
};

struct Case {
  const char* name;
  const char* reference;  ///< folder of tests/golden/hf whose config.json is taken, with more layers
  const char* precision;
  std::vector<Choice> choices;  ///< every schedule in one of the cases, every one in all of them: tests/interpreter
};

class PipelineParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    model_ = folder_ / "model";
    std::filesystem::create_directory(model_);
    std::ofstream(model_ + "/config.json") << test::golden_config(GetParam().reference, {{"num_hidden_layers", layers}});
  }

  /// The losses of a run over 16 sequences a step, in processes of their own.
  std::vector<double> train(const std::string& strategy, int ranks, int micro_batches, std::vector<std::string> more = {}) {
    std::vector<std::string> options{"--model=" + model_,
                                     "--precision=" + std::string(GetParam().precision),
                                     "--sequence=16",
                                     "--global-batch=16",
                                     "--strategy=" + strategy,
                                     "--ranks=" + std::to_string(ranks),
                                     "--accumulation=" + std::to_string(micro_batches)};
    options.insert(options.end(), more.begin(), more.end());
    if (std::none_of(more.begin(), more.end(), [](const std::string& word) { return word.starts_with("--steps"); }))
      options.push_back("--steps=" + std::to_string(steps));
    return test::train_from_scratch(folder_ / "run.h5", options).column("loss");
  }

  void expect_equal(const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s)
      EXPECT_NEAR(found[s] / expected[s], 1, test::layout_loss_tolerance(GetParam().precision)) << "loss of step " << s + 1;
  }

  TemporaryFolder folder_;
  std::string model_;
};

TEST_P(PipelineParity, SchedulesGiveTheLossesOfOneRank) {
  const std::vector<double> expected = train("ddp", 1, 4);
  ASSERT_LT(expected.back(), expected.front() - 0.05) << "nothing was learnt, so that equal losses would say little";
  for (const Choice& c : GetParam().choices) {
    SCOPED_TRACE(std::string(c.schedule) + " over " + std::to_string(c.stages));
    expect_equal(train("pipeline=" + std::to_string(c.stages), c.stages, 4,
                       {"--pipeline.schedule=" + std::string(c.schedule), "--recompute=" + std::string(c.recompute)}),
                 expected);
  }
}

TEST_P(PipelineParity, CheckpointsResumeUnderOtherLayouts) {
  const std::vector<double> expected = train("ddp", 1, 4);
  const std::string checkpoint = "--checkpoint=" + std::string(folder_ / "checkpoint");
  // One rank, two stages, four stages with two chunks, one rank again.
  const std::vector<double> first = train("ddp", 1, 4, {checkpoint, "--steps=2"});
  const std::vector<double> second = train("pipeline=2", 2, 4, {checkpoint, "--resume", "--steps=5"});
  const std::vector<double> third =
      train("pipeline=4", 4, 4, {checkpoint, "--resume", "--steps=8", "--pipeline.schedule=interleaved"});
  const std::vector<double> fourth = train("ddp", 1, 4, {checkpoint, "--resume"});
  std::vector<double> found = first;
  for (const auto* part : {&second, &third, &fourth}) found.insert(found.end(), part->begin(), part->end());
  expect_equal(found, expected);
}

TEST_P(PipelineParity, ExportsTheSameModel) {
  train("ddp", 1, 4, {"--steps=3", "--export=" + std::string(folder_ / "one")});
  train("pipeline=4", 4, 4, {"--steps=3", "--export=" + std::string(folder_ / "four")});
  const ModelWeights one(folder_ / "one"), four(folder_ / "four");
  EXPECT_THAT(four.names(), testing::UnorderedElementsAreArray(one.names()));
  for (const std::string& name : one.names()) {
    ASSERT_EQ(four.shape(name), one.shape(name));
    std::vector<float> a(static_cast<std::size_t>(one.shape(name).elements())), b(a.size());
    one.read_f32(name, 0, a);
    four.read_f32(name, 0, b);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += std::abs(a[i] - b[i]);
      size += std::abs(a[i]);
    }
    EXPECT_LE(difference, 2e-2 * size) << name;
  }
}

TEST_P(PipelineParity, EvaluationGivesTheLossOfOneRank) {
  const auto evaluated = [&](const std::string& strategy, int ranks) {
    return test::evaluation_loss(test::train_from_scratch(
        folder_ / "run.h5",
        {"--model=" + model_, "--precision=" + std::string(GetParam().precision), "--sequence=16", "--batch=2",
         "--accumulation=2", "--steps=2", "--evaluate-every=1", "--strategy=" + strategy, "--ranks=" + std::to_string(ranks)}));
  };
  EXPECT_NEAR(evaluated("pipeline=4", 4) / evaluated("ddp", 1), 1, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Models, PipelineParity,
    testing::Values(Case{"LlamaUntiedFp32", "llama-untied", "fp32", {{"gpipe", 2, "full"}, {"zero-bubble-h2", 4, "none"}}},
                    Case{"QwenTiedBf16",
                         "qwen3-tied",
                         "bf16",
                         {{"1f1b", 4, "none"}, {"interleaved", 4, "full"}, {"zero-bubble", 2, "none"}}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace consist
