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

struct Layout {
  const char* name;
  std::vector<std::string> options;
};

const Layout layouts[] = {
    {"one_rank", {}},
    {"ddp_2", {"--ranks=2"}},
    {"tp_sp_2_zero2_2", {"--ranks=4", "--strategy=tp-sp=2+zero2"}},
    {"ddp_4", {"--ranks=4"}},
    {"zero2_2", {"--ranks=2", "--strategy=zero2"}},
    {"tp_sp_2", {"--ranks=2", "--strategy=tp-sp=2"}},
    {"pipeline_2", {"--ranks=2", "--strategy=pipeline=2", "--accumulation=2"}},
    {"zero3_4", {"--ranks=4", "--strategy=zero3-offload", "--zero3-offload.max_reuse_distance=0"}},
    {"offloaded_4",
     {"--ranks=4", "--strategy=zero3-offload", "--zero3-offload.param_persistence_threshold=100",
      "--zero3-offload.offload_param.device=cpu", "--zero3-offload.offload_optimizer.device=cpu"}},
};

class LayoutResume : public testing::TestWithParam<const char*> {
 protected:
  /// Trains to `steps` and returns the losses of the steps that this run did.
  std::vector<double> train(const Layout& layout, int steps, const std::vector<std::string>& more) const {
    std::vector<std::string> options{"--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied", "--sequence=32",
                                     "--global-batch=8", "--precision=" + std::string(GetParam()),
                                     "--steps=" + std::to_string(steps)};
    options.insert(options.end(), layout.options.begin(), layout.options.end());
    options.insert(options.end(), more.begin(), more.end());
    return test::train_from_scratch(folder_ / "run.h5", options).column("loss");
  }
  std::string path(const std::string& name) const { return folder_ / name; }

  TemporaryFolder folder_;
};

TEST_P(LayoutResume, ARunGoesOnUnderAnyOtherLayout) {
  const double tolerance = test::layout_loss_tolerance(GetParam());
  const std::vector<double> expected = train(layouts[0], 6, {"--export=" + path("whole")});
  ASSERT_LT(expected.back(), expected.front());
  const std::size_t count = std::size(layouts);
  for (std::size_t i = 0; i < count; ++i) {
    const Layout& first = layouts[i];
    const std::string saved = path(std::string("from-") + first.name);
    train(first, 3, {"--checkpoint=" + saved, "--checkpoint-keep=9"});
    for (const std::size_t distance : {1, 3}) {  // not all pairs, but every layout writes for two and reads from two
      const Layout& then = layouts[(i + distance) % count];
      SCOPED_TRACE(std::string(first.name) + " then " + then.name);
      const std::string copy = path("copy");
      std::filesystem::remove_all(copy);
      std::filesystem::copy(saved, copy, std::filesystem::copy_options::recursive);
      const std::vector<double> found = train(then, 6, {"--checkpoint=" + copy, "--resume"});
      ASSERT_EQ(found.size(), 3U);
      for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s + 3], 1, tolerance) << "step " << s + 4;
    }
  }
}

TEST_P(LayoutResume, ARunMayChangeItsLayoutSeveralTimes) {
  const std::vector<double> expected = train(layouts[0], 9, {});
  std::vector<double> found;
  for (const char* name : {"ddp_2", "one_rank", "ddp_4"}) {
    const Layout& layout =
        *std::find_if(std::begin(layouts), std::end(layouts), [&](const Layout& l) { return l.name == std::string(name); });
    const std::vector<double> losses =
        train(layout, static_cast<int>(found.size()) + 3, {"--checkpoint=" + path("travelling"), "--resume"});
    found.insert(found.end(), losses.begin(), losses.end());
  }
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t s = 0; s < found.size(); ++s) {
    EXPECT_NEAR(found[s] / expected[s], 1, test::layout_loss_tolerance(GetParam())) << "step " << s + 1;
  }
}

TEST_P(LayoutResume, DividedWeightsAreExportedWhole) {
  train(layouts[0], 2, {"--export=" + path("one")});
  const ModelWeights expected(path("one"));
  for (const Layout& layout : layouts) {
    const std::string folder = path(std::string("export-") + layout.name);
    train(layout, 2, {"--export=" + folder});
    EXPECT_FALSE(std::filesystem::exists(folder + "/parts.partial"));
    const ModelWeights found(folder);
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
      EXPECT_LE(std::sqrt(difference), 2e-2 * std::sqrt(squares)) << layout.name << " " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, LayoutResume, testing::Values("fp32", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace consist
