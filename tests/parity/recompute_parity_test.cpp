// Recomputation repeats the same kernels on the same values: losses and gradient norms do not change by a bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

struct Case {
  const char* name;
  std::string model;
  const char* precision;
  int ranks = 1;
  const char* strategy = "ddp";
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

struct Curves {
  std::vector<double> loss, grad_norm;
  bool operator==(const Curves&) const = default;
};

class RecomputeParity : public testing::TestWithParam<Case> {
 protected:
  Curves train(const std::vector<std::string>& options) const {
    std::vector<std::string> words{"--model=" + GetParam().model,
                                   "--precision=" + std::string(GetParam().precision),
                                   "--ranks=" + std::to_string(GetParam().ranks),
                                   "--strategy=" + std::string(GetParam().strategy),
                                   "--sequence=32",
                                   "--batch=2",
                                   "--accumulation=2",
                                   "--steps=12"};
    words.insert(words.end(), options.begin(), options.end());
    const ArchiveReader reader = test::train_from_scratch(folder_ / "run.h5", words);
    return {reader.column("loss"), reader.column("grad_norm")};
  }

  TemporaryFolder folder_;
};

TEST_P(RecomputeParity, LossesAreEqualToTheBit) {
  const Curves expected = train({});
  ASSERT_EQ(expected.loss.size(), 12u);
  ASSERT_LT(expected.loss.back(), expected.loss.front()) << "nothing was learnt, so that equal losses would say little";
  EXPECT_EQ(train({"--recompute=full"}), expected);
  EXPECT_EQ(train({"--recompute=full", "--recompute-layers=1-1"}), expected);
  EXPECT_EQ(train({"--recompute=swiglu,rms_norm,attention,rope"}), expected);
}

const std::string untied_llama = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
const std::string tied_qwen = CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied";

INSTANTIATE_TEST_SUITE_P(Models, RecomputeParity,
                         testing::Values(Case{"llama_fp32", untied_llama, "fp32"}, Case{"llama_bf16", untied_llama, "bf16"},
                                         Case{"qwen3_bf16_zero2", tied_qwen, "bf16", 2, "zero2"},
                                         Case{"llama_bf16_tp_sp", untied_llama, "bf16", 2, "tp-sp=2"},
                                         Case{"qwen3_fp32_pipeline", tied_qwen, "fp32", 2, "pipeline=2"},
                                         Case{"llama_fp8", untied_llama, "fp8"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
