// Ends a run when its evaluations no longer get better, or are good enough.
#include "consist/observer.h"

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include "consist/error.h"
#include "consist/plugin.h"

namespace consist {
namespace {

std::string loss_text(double loss) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", loss);
  return text;
}

class EarlyStop final : public Observer {
 public:
  explicit EarlyStop(const Options& options)
      : patience_(options.integer("patience")), least_fall_(options.real("least-fall")), goal_(options.real("goal")) {}

  void begin(const ObservedRun& run) override {
    if (run.evaluate_every == 0)
      throw UsageError("--observe early-stop goes by evaluations, and this run makes none: give --evaluate-every STEPS");
  }

  void evaluated(const ObservedEvaluation& evaluation) override {
    const auto& [step, loss, sequences, metrics] = evaluation;
    if (loss <= goal_) {
      reason_ = "the evaluation's loss after step " + std::to_string(step) + " is " + loss_text(loss) +
                ", and --early-stop.goal is " + loss_text(goal_);
    }
    if (loss < best_ - least_fall_) {
      best_ = loss;
      best_step_ = step;
      since_ = 0;
    } else if (++since_ >= patience_ && reason_.empty()) {
      reason_ = "the evaluation's loss has not fallen below " + loss_text(best_) + " of step " + std::to_string(best_step_) +
                " in " + std::to_string(since_) + (since_ == 1 ? " evaluation" : " evaluations");
    }
  }

  std::string reason_to_end() const override { return reason_; }

 private:
  const std::int64_t patience_;
  const double least_fall_, goal_;
  double best_ = std::numeric_limits<double>::infinity();
  std::int64_t best_step_ = 0, since_ = 0;
  std::string reason_;
};

}  // namespace
}  // namespace consist

CONSIST_PLUGIN(observer, consist::Observer, consist::EarlyStop, "early-stop", "1.0.0",
               "ends the run when its evaluations no longer get better");
CONSIST_PLUGIN_OPTIONS({"patience", consist::OptionKind::integer, "3",
                        "evaluations in a row without a better one, after which the run ends", "1.."},
                       {"least-fall", consist::OptionKind::real, "0", "by which a loss must be lower to count as better", "0.."},
                       {"goal", consist::OptionKind::real, "0", "a loss at which the run ends at once", "0.."});
