// Training with bf16 moments and no masters (--bf16.states bf16): what it keeps, and that it learns as fp32 states do.
#include <gtest/gtest.h>

#include <cmath>

#include "core/checkpoint/checkpoint_reader.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

class Bf16States : public ::testing::Test {
 protected:
  std::vector<double> losses(const std::vector<std::string>& more) const {
    std::vector<std::string> options{"--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied", "--precision=bf16",
                                     "--sequence=32", "--global-batch=8", "--cpu.threads=1"};
    options.insert(options.end(), more.begin(), more.end());
    test::add_fallbacks(options, {"--bf16.states=bf16", "--steps=30"});
    return test::train_from_scratch(folder_ / "run.h5", options).column("loss");
  }

  TemporaryFolder folder_;
};

TEST_F(Bf16States, LearnAsFp32StatesDo) {
  // Steps of 2e-5 are far below the distance of most weights' bf16 neighbours: without stochastic rounding they would be lost.
  const std::vector<std::string> slow{"--learning-rate=2e-5"};
  const std::vector<double> found = losses(slow), expected = losses({"--learning-rate=2e-5", "--bf16.states=f32"});
  ASSERT_EQ(found.size(), 30U);
  const double learned = expected.front() - expected.back();
  ASSERT_GT(learned, 0.01);
  EXPECT_NEAR((found.front() - found.back()) / learned, 1, 0.15);
  EXPECT_NE(found, expected) << "the option does nothing";
}

TEST_F(Bf16States, OfRanksAreThoseOfOneRank) {
  const std::vector<double> one = losses({"--steps=8"});
  for (const std::string strategy : {"ddp", "zero2"}) {
    const std::vector<double> two = losses({"--steps=8", "--ranks=2", "--strategy=" + strategy});
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i] / one[i], 1, 5e-3) << strategy << ", step " << i + 1;
  }
}

TEST_F(Bf16States, ResumeBitForBitFromBf16Values) {
  const std::string checkpoint = folder_ / "checkpoint";
  const std::vector<double> whole = losses({"--steps=8"});
  losses({"--steps=4", "--checkpoint=" + checkpoint});
  const Checkpoint saved(checkpoint_path(checkpoint, 4));
  const TensorParts tensors = saved.open_all();
  std::size_t moments = 0;
  for (const std::string& name : tensors.names()) {
    std::vector<char> bytes(static_cast<std::size_t>(tensors.shape(name).elements()) * 2);
    EXPECT_NO_THROW(tensors.read(name, DType::bf16, 0, tensors.shape(name).elements(), bytes.data())) << name;
    moments += name.ends_with(".moment2") ? 1 : 0;
  }
  EXPECT_EQ(tensors.names().size(), 3 * moments) << "a parameter and its two moments, no master";
  const std::vector<double> rest = losses({"--steps=8", "--checkpoint=" + checkpoint, "--resume"});
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 4, whole.end()));
}

}  // namespace
}  // namespace consist
