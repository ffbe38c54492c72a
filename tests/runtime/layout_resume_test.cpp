// A run may go on under another layout: each rank writes the parts that it owns, and any layout reads any other's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/weights/model_weights.h"
#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using test::NamedOptions;

const NamedOptions layouts[] = {
    {"one_rank", {}},
    {"ddp_2", {"--ranks=2"}},
    {"tp_sp_2_zero2_2", {"--ranks=4", "--strategy=tp-sp=2+zero2"}},
    {"ddp_4", {"--ranks=4"}},
    {"zero2_2", {"--ranks=2", "--strategy=zero2"}},
    {"tp_sp_2", {"--ranks=2", "--strategy=tp-sp=2"}},
    {"pipeline_2", {"--ranks=2", "--strategy=pipeline=2", "--accumulation=2"}},
    {"zero3_4", {"--ranks=4", "--strategy=zero3-offload", "--zero3-offload.max-reuse-distance=0"}},
    {"hybrid_4", {"--ranks=4", "--strategy=zero3-offload=2+ddp=2"}},
    {"offloaded_4",
     {"--ranks=4", "--strategy=zero3-offload", "--zero3-offload.param-persistence-threshold=100",
      "--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu"}},
};

struct Choice {
  const char* precision;
  std::size_t
      distance;  ///< of the layouts that a run changes between: not all pairs, but two of each layout over both precisions
};

void PrintTo(const Choice& choice, std::ostream* out) {
  *out << choice.precision;
}

class LayoutResume : public ::testing::TestWithParam<Choice> {
 protected:
  /// Trains to `steps` and returns the losses of the steps that this run did.
  std::vector<double> train(const NamedOptions& layout, int steps, const std::vector<std::string>& more,
                            const std::string& model = "llama-tied") const {
    std::vector<std::string> options{"--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/" + model, "--sequence=32",
                                     "--global-batch=8", "--precision=" + std::string(GetParam().precision),
                                     "--steps=" + std::to_string(steps)};
    options.insert(options.end(), layout.options.begin(), layout.options.end());
    options.insert(options.end(), more.begin(), more.end());
    return test::train_from_scratch(folder_ / "run.h5", options).column("loss");
  }
  std::string path(const std::string& name) const { return folder_ / name; }

  static void expect_same_weights(const std::string& folder, const std::string& expected_folder) {
    EXPECT_FALSE(std::filesystem::exists(folder + "/parts.partial"));
    const ModelWeights found(folder), expected(expected_folder);
    ASSERT_EQ(found.names(), expected.names());
    for (const std::string& name : found.names()) {
      ASSERT_EQ(found.shape(name), expected.shape(name));
      std::vector<float> a(static_cast<std::size_t>(found.shape(name).elements())), b = a;
      found.read_f32(name, 0, a);
      expected.read_f32(name, 0, b);
      double difference = 0, squares = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        difference += std::pow(a[i] - b[i], 2);
        squares += std::pow(b[i], 2);
      }
      EXPECT_LE(std::sqrt(difference), 2e-2 * std::sqrt(squares)) << name;
    }
  }

  TemporaryFolder folder_;
};

// Every layout writes for another and reads from another, and the divided weights of each are exported whole.
TEST_P(LayoutResume, ARunGoesOnUnderAnotherLayoutAndExportsTheSameModel) {
  const double tolerance = test::layout_loss_tolerance(GetParam().precision);
  const std::vector<double> expected = train(layouts[0], 6, {"--export=" + path("whole")});
  ASSERT_LT(expected.back(), expected.front());
  const std::size_t count = std::size(layouts);
  for (std::size_t i = 0; i < count; ++i) {
    const NamedOptions &first = layouts[i], &then = layouts[(i + GetParam().distance) % count];
    SCOPED_TRACE(std::string(first.name) + " then " + then.name);
    const std::string saved = path(std::string("from-") + first.name), exported = path(std::string("export-") + then.name);
    train(first, 3, {"--checkpoint=" + saved});
    const std::vector<double> found = train(then, 6, {"--checkpoint=" + saved, "--resume", "--export=" + exported});
    ASSERT_EQ(found.size(), 3U);
    for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s + 3], 1, tolerance) << "step " << s + 4;
    expect_same_weights(exported, path("whole"));
  }
}

// Experts lie by experts along the axes of ep and tp-sp, flat along that of data, or whole.
TEST_P(LayoutResume, ExpertsGoOnUnderAnotherLayout) {
  const NamedOptions of_experts[] = {
      {"tp_sp_2", {"--ranks=2", "--strategy=tp-sp=2", "--tp-sp.capacity=2"}},
      {"ep_2_tp_sp_2", {"--ranks=4", "--strategy=ep=2+tp-sp=2", "--ep.capacity=4"}},
      {"tp_sp_2_zero3_2", {"--ranks=4", "--strategy=tp-sp=2+zero3-offload", "--tp-sp.capacity=2"}},
      {"whole", {"--ranks=2", "--strategy=tp-sp=2", "--tp-sp.experts=whole"}},
  };
  const double tolerance = test::layout_loss_tolerance(GetParam().precision);
  const std::vector<double> expected = train(layouts[0], 6, {"--export=" + path("whole")}, "qwen3-moe");
  for (std::size_t i = 0; i < std::size(of_experts); ++i) {
    const NamedOptions &first = of_experts[i], &then = of_experts[(i + 1) % std::size(of_experts)];
    SCOPED_TRACE(std::string(first.name) + " then " + then.name);
    const std::string saved = path(std::string("from-") + first.name), exported = path(std::string("export-") + then.name);
    train(first, 3, {"--checkpoint=" + saved}, "qwen3-moe");
    const std::vector<double> found = train(then, 6, {"--checkpoint=" + saved, "--resume", "--export=" + exported}, "qwen3-moe");
    ASSERT_EQ(found.size(), 3U);
    for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s + 3], 1, tolerance) << "step " << s + 4;
    // Where two experts are about as probable, rounding to 16 bits decides which of them a token trains.
    if (GetParam().precision == std::string("fp32")) expect_same_weights(exported, path("whole"));
  }
}

TEST_P(LayoutResume, ARunMayChangeItsLayoutSeveralTimes) {
  const std::vector<double> expected = train(layouts[0], 9, {});
  std::vector<double> found;
  for (const char* name : {"ddp_2", "one_rank", "ddp_4"}) {
    const NamedOptions& layout =
        *std::find_if(std::begin(layouts), std::end(layouts), [&](const NamedOptions& l) { return l.name == std::string(name); });
    const std::vector<double> losses =
        train(layout, static_cast<int>(found.size()) + 3, {"--checkpoint=" + path("travelling"), "--resume"});
    found.insert(found.end(), losses.begin(), losses.end());
  }
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t s = 0; s < found.size(); ++s) {
    EXPECT_NEAR(found[s] / expected[s], 1, test::layout_loss_tolerance(GetParam().precision)) << "step " << s + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, LayoutResume, ::testing::Values(Choice{"fp32", 1}, Choice{"bf16", 3}),
                         [](const auto& info) { return std::string(info.param.precision); });

}  // namespace
}  // namespace consist
