// A run on a GPU follows the same run on the CPU, step by step.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "core/plugin/host.h"
#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

// At 1e-3 qwen3-tiny's gradient norm grows from 1 to 3 after 40 steps, and the processor's own losses of 4 sequences at once and
// of 2 x 2 part by 1e-4; at this rate they stay within 1.2e-7.
constexpr const char* learning_rate = "--learning-rate=5e-4";

struct Choice {
  const char *name, *precision;
  std::vector<std::string> options = {};
};

void PrintTo(const Choice& choice, std::ostream* out) {
  *out << choice.name;
}

class DeviceParity : public ::testing::TestWithParam<Choice> {
 protected:
  static constexpr int steps = 50;

  void SetUp() override {
    PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
    if (!host.has("device", "cuda")) GTEST_SKIP() << "this build has no device cuda";
    const std::string reason = host.unavailable(host.find("device", "cuda"), std::chrono::seconds(60));
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  std::vector<double> losses(const std::string& device, const std::string& model) const {
    std::vector<std::string> options{"--device=" + device,
                                     "--model=" + model,
                                     "--precision=" + std::string(GetParam().precision),
                                     "--dataset=text",
                                     "--sequence=64",
                                     "--batch=4",
                                     learning_rate,
                                     "--steps=" + std::to_string(steps)};
    options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
    return test::train_from_scratch(folder_ / (device + ".h5"), options).column("loss");
  }

  TemporaryFolder folder_;
};

TEST_P(DeviceParity, LossesOfTheGpuFollowThoseOfTheCpu) {
  for (const std::string model : {"llama-tiny", "qwen3-tiny"}) {
    const std::vector<double> expected = losses("cpu", model), found = losses("cuda", model);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(steps));
    ASSERT_EQ(found.size(), expected.size());
    ASSERT_LT(expected.back(), expected.front() - 0.1) << "nothing was learnt, so that equal losses would say little";
    double worst = 0;
    for (std::size_t s = 0; s < expected.size(); ++s) worst = std::max(worst, std::abs(found[s] / expected[s] - 1));
    std::printf("%s in %s: largest relative deviation of a loss %.2g\n", model.c_str(), GetParam().name, worst);
    EXPECT_LE(worst, test::device_loss_tolerance(GetParam().precision)) << model;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceParity,
                         ::testing::Values(Choice{"fp32", "fp32"}, Choice{"bf16", "bf16"}, Choice{"fp8", "fp8"},
                                           Choice{"fp8_delayed", "fp8", {"--fp8.scaling=delayed"}},
                                           Choice{"fp8_row", "fp8", {"--fp8.scaling=row"}},
                                           Choice{"fp8_block", "fp8", {"--fp8.scaling=block"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
