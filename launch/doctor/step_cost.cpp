#include "launch/doctor/step_cost.h"

#include <memory>
#include <utility>

#include "consist/host.h"
#include "core/base/quantity_text.h"
#include "launch/predict/prediction.h"

namespace consist::doctor {
namespace {

constexpr double nothing = 0.0005;  ///< a change that is written as 0.0%

std::string cost_text(const StepCost& cost, const std::string& slow) {
  const auto words = [](double fraction) { return fraction < nothing ? std::string("nothing") : percent_text(fraction, 1); };
  std::string text = "costs " + words(cost.fraction) + " of this step";
  if (cost.fraction >= nothing) text += " (" + milliseconds_text(cost.seconds, cost.seconds < 0.1 ? 2 : 1) + ")";
  if (cost.without) text += ", without " + slow + " " + words(*cost.without);
  return text;
}

void judge(MeasuredCheck& check, double predicted, double limit, const StepSeconds& seconds) {
  if (!check.with) return;
  const double with = seconds(*check.with);
  StepCost cost{with / predicted - 1, with - predicted, std::nullopt};
  if (check.without) cost.without = seconds(*check.without) / predicted - 1;
  Finding& finding = check.result.finding;
  finding.found += "; " + cost_text(cost, check.slow);
  if (cost.fraction > limit) {
    finding.status = Status::wrong;
    if (finding.remedy.empty())
      finding.remedy = "see what is slow beside it; if the machine is well, consist calibrate writes a file of its own figures";
  }
  check.result.cost = cost;
}

MeasuredCheck whole_step(const JudgedStep& step, const launch::ShortFigures& figures) {
  MeasuredCheck check{
      .result = {"measured", "step", "the step is at most " + percent_text(step.limit, 1) + " slower than predicted", {}}};
  check.result.cost = StepCost{step.cost(), step.with_measured - step.predicted, std::nullopt};
  const std::string found = milliseconds_text(step.predicted) + " by " + figures.base.name + ", " +
                            milliseconds_text(step.with_measured) + " with what was measured" +
                            (figures.is_comparable ? "" : "; the file is not of this device");
  check.result.finding = step.cost() <= step.limit
                             ? ok(found)
                             : wrong(found, "see the checks that cost most; devices and hosts that they name may be left out");
  return check;
}

}  // namespace

JudgedStep judge_step(const launch::ShortFigures& figures, std::vector<MeasuredCheck>& checks, const std::string& job,
                      double limit, const StepSeconds& seconds) {
  JudgedStep step{.job = job, .predicted = seconds(figures.base), .with_measured = seconds(with_all(figures)), .limit = limit};
  for (MeasuredCheck& check : checks) judge(check, step.predicted, limit, seconds);
  checks.push_back(whole_step(step, figures));
  return step;
}

StepSeconds step_seconds(const Plan& plan) {
  return [&plan](const MachineRates& machine) {
    const Target target{nullptr, std::make_shared<const MachineRates>(machine), false, plan.target().automatic};
    return launch::predict(plan.for_target(target), usable_cores()).time.seconds;
  };
}

}  // namespace consist::doctor
