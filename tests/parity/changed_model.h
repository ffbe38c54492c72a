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

#include "tests/golden_config.h"
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
  std::vector<std::string> options = {};  ///< of all its runs; also in place of what train() sets
  const char* tolerance = precision;      ///< its row in the table of layouts' tolerances
};

inline void PrintTo(const ChangedModel& model, std::ostream* out) {
  *out << model.name;
}

/// Results that must not depend on the layout of a run, by step.
struct Curves {
  std::vector<double> loss, grad_norm, tokens;
  std::vector<double> aux_loss;       ///< of models that have one
  std::vector<std::int32_t> choices;  ///< that fell on each expert in the first step, of models that have any
  double evaluation = 0;              ///< loss after the last step
};

/// Ten steps in processes of their own.
class ChangedModelRuns {
 public:
  explicit ChangedModelRuns(const ChangedModel& model)
      : precision_(model.precision), device_(model.device), options_(model.options) {
    std::ofstream(folder_ / "config.json") << golden_config(model.golden, model.changes);
  }

  static constexpr int steps = 10;

  /// `configuration`: strategies, ranks and what else differs. Throws std::runtime_error with the output of a run that failed.
  Curves train(const std::vector<std::string>& configuration) const {
    std::vector<std::string> options{"--model=" + (folder_ / ""), "--device=" + device_, "--precision=" + precision_,
                                     "--steps=" + std::to_string(steps), "--evaluate-every=" + std::to_string(steps)};
    options.insert(options.end(), options_.begin(), options_.end());
    options.insert(options.end(), configuration.begin(), configuration.end());
    add_fallbacks(options, {"--sequence=16", "--global-batch=4", "--evaluate-sequences=8"});
    const ArchiveReader reader = train_from_scratch(folder_ / "run.h5", options);
    Curves curves{reader.column("loss"), reader.column("grad_norm"), reader.column("tokens"), {}, {}, evaluation_loss(reader)};
    if (std::ranges::count(reader.columns(), "aux_loss") != 0) curves.aux_loss = reader.column("aux_loss");
    if (const std::vector<ArchivedChoices> experts = reader.experts(); !experts.empty()) curves.choices = experts.front().choices;
    return curves;
  }

 private:
  TemporaryFolder folder_;
  std::string precision_, device_;
  std::vector<std::string> options_;
};

/// One rank's curves, and other layouts' beside them.
class LayoutComparison {
 public:
  /// Trains one rank.
  explicit LayoutComparison(const ChangedModel& model)
      : is_exact_(model.precision == std::string("fp32")),
        runs_(model),
        expected_(runs_.train({"--strategy=ddp", "--ranks=1"})),
        tolerance_(layout_tolerance(model.tolerance)) {}

  /// Trains `layout` and expects the losses of one rank, step by step, within the stated tolerance of layouts.
  void expect_losses_of_one_rank(const std::vector<std::string>& layout) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    ASSERT_EQ(expected_.loss.size(), static_cast<std::size_t>(ChangedModelRuns::steps));
    ASSERT_GT(expected_.evaluation, 0);
    ASSERT_LT(expected_.loss.back(), expected_.loss.front()) << "nothing was learnt, so that equal losses would say little";
    const Curves found = runs_.train(layout);
    ASSERT_EQ(found.loss.size(), expected_.loss.size());
    EXPECT_EQ(found.tokens, expected_.tokens);
    for (std::size_t step = 0; step < found.loss.size(); ++step) {
      const double loss = std::abs(found.loss[step] / expected_.loss[step] - 1);
      const double norm = std::abs(found.grad_norm[step] / expected_.grad_norm[step] - 1);
      EXPECT_LE(loss, tolerance_.loss) << "loss of step " << step + 1;
      // Norms are sums over all elements: no part may be counted twice or left out.
      EXPECT_LE(norm, tolerance_.grad_norm) << "grad_norm of step " << step + 1;
      loss_deviation_ = std::max(loss_deviation_, loss);
      norm_deviation_ = std::max(norm_deviation_, norm);
    }
    ASSERT_EQ(found.aux_loss.size(), expected_.aux_loss.size());
    for (std::size_t step = 0; step < found.aux_loss.size(); ++step)
      EXPECT_LE(std::abs(found.aux_loss[step] / expected_.aux_loss[step] - 1), tolerance_.loss)
          << "aux_loss of step " << step + 1;
    expect_choices(found.choices);
    EXPECT_NEAR(found.evaluation / expected_.evaluation, 1, tolerance_.loss) << "loss of the evaluation";
  }

  void print_deviations() const {
    std::printf("largest relative deviation so far: of a loss %.2g (tolerance %.2g), of a gradient norm %.2g (%.2g)\n",
                loss_deviation_, tolerance_.loss, norm_deviation_, tolerance_.grad_norm);
  }

 private:
  /// The same in fp32. In 16 bits a sum of ranks' summands rounds otherwise, and a router's choice between experts of nearly the
  /// same logit may fall on the other: each such token is counted at two experts.
  void expect_choices(const std::vector<std::int32_t>& found) const {
    ASSERT_EQ(found.size(), expected_.choices.size());
    std::int64_t all = 0, differences = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      all += expected_.choices[i];
      differences += std::abs(found[i] - expected_.choices[i]);
    }
    EXPECT_LE(differences, is_exact_ ? 0 : all / 50) << "of " << all << " choices";
  }

  bool is_exact_;
  ChangedModelRuns runs_;
  Curves expected_;
  LayoutTolerance tolerance_;
  double loss_deviation_ = 0, norm_deviation_ = 0;
};

/// Every one of `layouts` beside one rank.
inline void expect_losses_of_one_rank(const ChangedModel& model, const std::vector<std::vector<std::string>>& layouts) {
  LayoutComparison comparison(model);
  for (const std::vector<std::string>& layout : layouts) comparison.expect_losses_of_one_rank(layout);
  comparison.print_deviations();
}

}  // namespace consist::test
