// A run goes on in a pipeline of chunks and exports the model that one rank exports. Losses of every schedule:
// strategy_parity_test.cpp; other layouts: tests/runtime/layout_resume_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/weights/model_weights.h"
#include "tests/golden_config.h"
#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

void expect_same_weights(const std::string& found_folder, const std::string& expected_folder) {
  const ModelWeights found(found_folder), expected(expected_folder);
  EXPECT_THAT(found.names(), ::testing::UnorderedElementsAreArray(expected.names()));
  for (const std::string& name : expected.names()) {
    ASSERT_EQ(found.shape(name), expected.shape(name));
    std::vector<float> a(static_cast<std::size_t>(expected.shape(name).elements())), b(a.size());
    found.read_f32(name, 0, a);
    expected.read_f32(name, 0, b);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += std::abs(a[i] - b[i]);
      size += std::abs(b[i]);
    }
    EXPECT_LE(difference, 2e-2 * size) << name;
  }
}

TEST(PipelineParity, ARunGoesOnInChunksAndExportsTheSameModel) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "model");
  std::ofstream(folder / "model/config.json") << test::golden_config("qwen3-tied", {{"num_hidden_layers", 8}});
  const auto train = [&](const std::vector<std::string>& layout, std::vector<std::string> more) {
    more.insert(more.end(), {"--model=" + (folder / "model"), "--precision=bf16", "--sequence=16", "--global-batch=16"});
    more.insert(more.end(), layout.begin(), layout.end());
    return test::train_from_scratch(folder / "run.h5", more).column("loss");
  };
  const std::vector<std::string> one{"--ranks=1", "--accumulation=4"},
      chunks{"--strategy=pipeline=4", "--ranks=4", "--accumulation=4", "--pipeline.schedule=interleaved"};
  const std::string checkpoint = "--checkpoint=" + (folder / "checkpoint");
  const std::vector<double> expected = train(one, {"--steps=8", "--export=" + (folder / "whole")});
  std::vector<double> found = train(one, {"--steps=2", checkpoint});
  for (const double loss : train(chunks, {"--steps=5", checkpoint, "--resume"})) found.push_back(loss);
  for (const double loss : train(one, {"--steps=8", checkpoint, "--resume"})) found.push_back(loss);
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_LT(expected.back(), expected.front());
  for (std::size_t s = 0; s < found.size(); ++s)
    EXPECT_NEAR(found[s] / expected[s], 1, test::layout_loss_tolerance("bf16")) << "loss of step " << s + 1;
  train(chunks, {"--steps=8", "--export=" + (folder / "divided")});
  expect_same_weights(folder / "divided", folder / "whole");
}

}  // namespace
}  // namespace consist
