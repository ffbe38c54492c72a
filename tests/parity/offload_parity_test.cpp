// Activations that wait on the host come back as they left: losses and gradient norms do not change by a bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/golden_config.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

struct Case {
  const char* name;
  const char* golden;  ///< a folder of tests/golden/hf, which gets more layers
  const char* precision;
  int ranks = 1;
  const char* strategy = "ddp";
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

struct Figures {
  std::vector<double> loss, grad_norm;
  double device_bytes = 0, host_bytes = 0;
};

class OffloadParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "model");
    std::ofstream(folder_ / "model/config.json") << test::golden_config(GetParam().golden, {{"num_hidden_layers", 6}});
  }

  Figures train(const std::vector<std::string>& options) const {
    std::vector<std::string> words{"--model=" + (folder_ / "model"),
                                   "--precision=" + std::string(GetParam().precision),
                                   "--ranks=" + std::to_string(GetParam().ranks),
                                   "--strategy=" + std::string(GetParam().strategy),
                                   "--sequence=64",
                                   "--batch=4",
                                   "--accumulation=2",
                                   "--steps=8"};
    words.insert(words.end(), options.begin(), options.end());
    const ArchiveReader reader = test::train_from_scratch(folder_ / "run.h5", words);
    const nlohmann::json result = nlohmann::json::parse(reader.text("/result"));
    return {reader.column("loss"), reader.column("grad_norm"), result.at("planned_bytes"), result.at("planned_host_bytes")};
  }

  void expect_equal(const std::vector<std::string>& options) const {
    std::vector<std::string> moved = options;
    moved.emplace_back("--offload-activations=all");
    const Figures kept = train(options), there = train(moved);
    ASSERT_EQ(kept.loss.size(), 8U);
    ASSERT_LT(kept.loss.back(), kept.loss.front()) << "nothing was learnt, so that equal losses would say little";
    EXPECT_EQ(there.loss, kept.loss);
    EXPECT_EQ(there.grad_norm, kept.grad_norm);
    EXPECT_EQ(kept.host_bytes, 0);
    EXPECT_GT(there.host_bytes, 0);
    if (options.empty() && GetParam().strategy != std::string_view("pipeline=2"))
      EXPECT_LT(there.device_bytes, kept.device_bytes);
    else  // of a stage of three layers little can go, of an input for each layer, too
      EXPECT_LT(there.device_bytes, 1.05 * kept.device_bytes);
  }

  TemporaryFolder folder_;
};

TEST_P(OffloadParity, LossesAreEqualToTheBit) {
  expect_equal({});
  expect_equal({"--recompute=full"});
}

constexpr const char *untied_llama = "llama-untied", *tied_qwen = "qwen3-tied";

INSTANTIATE_TEST_SUITE_P(Models, OffloadParity,
                         testing::Values(Case{"llama_fp32", untied_llama, "fp32"}, Case{"llama_bf16", untied_llama, "bf16"},
                                         Case{"qwen3_bf16_zero3", tied_qwen, "bf16", 2, "zero3-offload"},
                                         Case{"llama_bf16_tp_sp", untied_llama, "bf16", 2, "tp-sp=2"},
                                         Case{"llama_bf16_cp", untied_llama, "bf16", 2, "cp=2"},
                                         Case{"qwen3_fp32_pipeline", tied_qwen, "fp32", 2, "pipeline=2"},
                                         Case{"llama_fp8", untied_llama, "fp8"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
