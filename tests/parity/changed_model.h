// Runs of golden models with some fields of their config.json changed, from fresh weights.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist::test {

struct ChangedModel {
  const char* name;
  const char* golden;  ///< a folder of tests/golden/hf
  nlohmann::json changes;
  const char* precision;
  const char* device = "cpu";
  std::vector<std::string> options = {};  ///< of all its runs
  const char* tolerance = precision;      ///< its row in the table of layouts' tolerances
};

inline void PrintTo(const ChangedModel& model, std::ostream* out) {
  *out << model.name;
}

/// What must not depend on the layout of a run, by step.
struct Curves {
  std::vector<double> loss, grad_norm;
  double evaluation = 0;  ///< loss after the last step
};

/// Ten steps in processes of their own.
class ChangedModelRuns {
 public:
  explicit ChangedModelRuns(const ChangedModel& model)
      : precision_(model.precision), device_(model.device), options_(model.options) {
    std::ifstream golden(std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/" + model.golden + "/config.json");
    nlohmann::json config = nlohmann::json::parse(golden);
    config.update(model.changes);
    std::ofstream(folder_ / "config.json") << config;
  }

  static constexpr int steps = 10;

  /// `make_up`: strategies, ranks and what else differs. Throws std::runtime_error with the output of a run that failed.
  Curves train(const std::vector<std::string>& make_up) const {
    std::vector<std::string> options{"--model=" + (folder_ / ""),
                                     "--device=" + device_,
                                     "--precision=" + precision_,
                                     "--sequence=16",
                                     "--steps=" + std::to_string(steps),
                                     "--global-batch=4",
                                     "--evaluate-every=" + std::to_string(steps),
                                     "--evaluate-sequences=8"};
    options.insert(options.end(), options_.begin(), options_.end());
    options.insert(options.end(), make_up.begin(), make_up.end());
    const ArchiveReader reader = train_from_scratch(folder_ / "run.h5", options);
    return {reader.column("loss"), reader.column("grad_norm"), evaluation_loss(reader)};
  }

 private:
  TemporaryFolder folder_;
  std::string precision_, device_;
  std::vector<std::string> options_;
};

/// Trains every one of `layouts` and compares it with one rank, step by step, within the stated tolerance of layouts.
inline void expect_losses_of_one_rank(const ChangedModel& model, const std::vector<std::vector<std::string>>& layouts) {
  const ChangedModelRuns runs(model);
  const Curves expected = runs.train({"--strategy=ddp", "--ranks=1"});
  ASSERT_EQ(expected.loss.size(), static_cast<std::size_t>(ChangedModelRuns::steps));
  ASSERT_GT(expected.evaluation, 0);
  ASSERT_LT(expected.loss.back(), expected.loss.front()) << "nothing was learnt, so that equal losses would say little";
  const double tolerance = layout_loss_tolerance(model.tolerance);
  double worst = 0;
  for (const std::vector<std::string>& layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const Curves found = runs.train(layout);
    ASSERT_EQ(found.loss.size(), expected.loss.size());
    for (std::size_t step = 0; step < found.loss.size(); ++step) {
      EXPECT_NEAR(found.loss[step] / expected.loss[step], 1, tolerance) << "loss of step " << step + 1;
      // Norms are sums over all elements: no part may be counted twice or left out.
      EXPECT_NEAR(found.grad_norm[step] / expected.grad_norm[step], 1, 10 * tolerance) << "grad_norm of step " << step + 1;
      worst = std::max(worst, std::abs(found.loss[step] / expected.loss[step] - 1));
    }
    EXPECT_NEAR(found.evaluation / expected.evaluation, 1, tolerance) << "loss of the evaluation";
  }
  std::printf("largest relative deviation of a loss: %.2g (tolerance %.2g)\n", worst, tolerance);
}

}  // namespace consist::test
