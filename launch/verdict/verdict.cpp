#include "launch/verdict/verdict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "consist/text.h"
#include "core/archive/archived_json.h"
#include "core/base/quantity_text.h"
#include "launch/cli/exit_status.h"
#include "launch/residual/residual.h"
#include "launch/residual/residual_text.h"

namespace consist::launch {
namespace {

constexpr std::size_t least_quiet = 3;  ///< runs of a side without other work, which then count alone
constexpr std::size_t least_seeds = 3;
constexpr double same_loss = 0.001;    ///< the report's parity band
constexpr double steps_of_loss = 0.2;  ///< of a run, whose losses are taken, the last
constexpr double least_steps_of_loss = 20;
// Standard deviation of a run's speed between runs, where there are too few to measure it. Processors: as three runs of each of
// eight rows of the quick start scattered (README: an interval of +-7.4%); GPUs: assumed.
constexpr double spread_on_processors = 0.06, spread_on_devices = 0.01;

std::vector<MeasuredRun> measured(const Side& side, MeasuredRun SideRun::*quantity) {
  std::vector<MeasuredRun> runs;
  for (const SideRun& run : side.runs) runs.push_back(run.*quantity);
  return runs;
}

double mean_of(const std::vector<MeasuredRun>& runs) {
  double sum = 0;
  for (const MeasuredRun& run : runs) sum += std::log(run.value);
  return std::exp(sum / static_cast<double>(runs.size()));
}

std::vector<SideRun> quiet_runs(const Side& side) {
  std::vector<SideRun> quiet;
  std::copy_if(side.runs.begin(), side.runs.end(), std::back_inserter(quiet),
               [](const SideRun& run) { return disturbance_of(run.outcome).empty(); });
  return quiet;
}

/// Other work beside the runs of a side; empty: none.
std::string disturbance_of(const Side& side) {
  for (const SideRun& run : side.runs) {
    if (std::string why = launch::disturbance_of(run.outcome); !why.empty()) return why;
  }
  return {};
}

Confidence confidence_of(const Verdict& verdict) {
  const bool on_processor = std::isnan(verdict.a.runs.front().outcome.clock);
  return {.level = verdict.request.confidence,
          .run_spread = verdict.request.run_spread.value_or(on_processor ? spread_on_processors : spread_on_devices)};
}

void refuse(Judgement& judgement, std::string why) {
  judgement.problem = std::move(why);
  judgement.comparable = false;
}

/// Sets the call, unless something prevents it.
void decide(Judgement& judgement, const Verdict& verdict, bool more_is_better) {
  if (judgement.problem.empty()) judgement.problem = judgement.contrast.problem;
  if (judgement.contrast.known() && judgement.assumption.empty()) judgement.assumption = assumption_of(judgement.contrast.method);
  if (const std::string names = prevented_by(verdict.differences, judgement.quantity); !names.empty())
    refuse(judgement, "not comparable: " + names);
  if (!judgement.problem.empty()) return;
  judgement.call = call_of(judgement.contrast, judgement.within, more_is_better);
  if (judgement.call == Call::unclear) judgement.problem = "the interval is too wide: more runs or more steps narrow it";
}

Judgement judge_rate(const Verdict& verdict, const char* quantity, const char* unit, MeasuredRun SideRun::*member,
                     bool more_is_better) {
  Judgement judgement{.quantity = quantity, .unit = unit, .within = verdict.request.within};
  const std::vector<MeasuredRun> a = measured(verdict.a, member), b = measured(verdict.b, member);
  const auto is_known = [](const MeasuredRun& run) { return run.value > 0; };
  if (!std::all_of(a.begin(), a.end(), is_known) || !std::all_of(b.begin(), b.end(), is_known)) {
    judgement.problem = "not measured: a device does not tell its power";
    return judgement;
  }
  judgement.a = mean_of(a);
  judgement.b = mean_of(b);
  judgement.contrast = contrast_of_runs(a, b, confidence_of(verdict));
  std::string other = disturbance_of(verdict.a);
  if (other.empty()) other = disturbance_of(verdict.b);
  if (!other.empty() && judgement.contrast.method == Method::batch_means)
    refuse(judgement, other + ", and single runs do not show how far that makes them differ");
  if (!other.empty() && !verdict.turns)
    refuse(judgement, other + ", and the runs of A and B were not made by turns, so that it need not have met both alike");
  decide(judgement, verdict, more_is_better);
  return judgement;
}

Judgement judge_memory(const Verdict& verdict) {
  Judgement judgement{.quantity = "memory", .unit = "B", .within = verdict.request.within};
  const auto bytes_of = [](const Side& side) {
    std::vector<MeasuredRun> runs;
    for (const SideRun& run : side.runs) {
      if (run.outcome.measured_bytes > 0) runs.push_back({.value = run.outcome.measured_bytes});
    }
    return runs;
  };
  const std::vector<MeasuredRun> a = bytes_of(verdict.a), b = bytes_of(verdict.b);
  if (a.empty() || b.empty()) {
    judgement.problem = "not measured";
    return judgement;
  }
  const auto largest = [](const std::vector<MeasuredRun>& runs) {
    return std::max_element(runs.begin(), runs.end(), [](const auto& x, const auto& y) { return x.value < y.value; })->value;
  };
  judgement.a = largest(a);
  judgement.b = largest(b);
  judgement.contrast = contrast_of_plans(a, b);
  decide(judgement, verdict, false);
  return judgement;
}

/// Losses of a side by seed: means over its runs, of the last `steps` steps up to `last`.
using Losses = std::map<std::string, std::vector<double>>;

Losses losses_of(const Side& side, std::int64_t last, std::int64_t steps) {
  Losses losses;
  std::map<std::string, double> runs;
  for (const SideRun& run : side.runs) ++runs[run.seed];
  for (const SideRun& run : side.runs) {
    std::vector<double>& sums = losses.try_emplace(run.seed, static_cast<std::size_t>(steps), 0.0).first->second;
    for (std::size_t i = 0; i < run.step.size(); ++i) {
      const auto place = static_cast<std::int64_t>(run.step[i]) - (last - steps + 1);
      if (place >= 0 && place < steps) sums[static_cast<std::size_t>(place)] += run.loss[i] / runs[run.seed];
    }
  }
  return losses;
}

/// True if every run has every step.
bool are_whole(const Losses& losses) {
  return std::all_of(losses.begin(), losses.end(), [](const auto& of_seed) {
    return std::all_of(of_seed.second.begin(), of_seed.second.end(), [](double loss) { return loss > 0; });
  });
}

std::vector<MeasuredRun> means_of(const Losses& losses) {
  std::vector<MeasuredRun> means;
  for (const auto& [seed, values] : losses) {
    double sum = 0;
    for (const double value : values) sum += value / static_cast<double>(values.size());
    means.push_back({.value = sum});
  }
  return means;
}

bool have_same_seeds(const Losses& a, const Losses& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) { return x.first == y.first; });
}

std::vector<double> mean_over_seeds(const Losses& losses) {
  std::vector<double> mean(losses.begin()->second.size(), 0);
  for (const auto& [seed, values] : losses) {
    for (std::size_t i = 0; i < values.size(); ++i) mean[i] += values[i] / static_cast<double>(losses.size());
  }
  return mean;
}

/// Chooses the method by the seeds, and states what it stands on.
void contrast_losses(const Losses& a, const Losses& b, const Confidence& confidence, Judgement& judgement) {
  const std::vector<MeasuredRun> of_a = means_of(a), of_b = means_of(b);
  judgement.a = mean_of(of_a);
  judgement.b = mean_of(of_b);
  judgement.contrast.ratio = judgement.b / judgement.a;
  const bool same = have_same_seeds(a, b), many = std::min(a.size(), b.size()) >= least_seeds;
  if (many && same) {
    std::vector<double> values_a, values_b;
    for (const MeasuredRun& run : of_a) values_a.push_back(run.value);
    for (const MeasuredRun& run : of_b) values_b.push_back(run.value);
    judgement.contrast = contrast_of_pairs(values_a, values_b, confidence);
    judgement.assumption = "runs of the same seed are pairs";
  } else if (many) {
    judgement.contrast = contrast_of_runs(of_a, of_b, confidence);
  } else if (same) {
    judgement.contrast = contrast_of_steps(mean_over_seeds(a), mean_over_seeds(b), confidence);
    judgement.assumption = "both read the same data in the same order from the same initial weights (seed " + a.begin()->first +
                           "); what another seed would change is not in the interval";
  } else {
    judgement.problem = "the sides have different seeds; three seeds of each, or the same ones, can be judged";
  }
}

Judgement judge_loss(const Verdict& verdict) {
  Judgement judgement{.quantity = "loss", .unit = verdict.a.runs.front().outcome.loss_unit, .within = same_loss};
  double last = std::numeric_limits<double>::infinity(), first = 0, rows = last;
  for (const Side* side : {&verdict.a, &verdict.b}) {
    for (const SideRun& run : side->runs) {
      last = std::min(last, run.step.empty() ? 0 : run.step.back());
      first = std::max(first, run.step.empty() ? 0 : run.step.front());
      rows = std::min(rows, static_cast<double>(run.loss.size()));
      if (!std::all_of(run.loss.begin(), run.loss.end(), [](double loss) { return loss > 0 && std::isfinite(loss); }))
        judgement.problem = "a loss is not a positive number";
    }
  }
  const double steps = std::min({std::max(least_steps_of_loss, std::floor(steps_of_loss * last)), last - first + 1, rows});
  if (judgement.problem.empty() && steps < 1) judgement.problem = "the runs have no step in common";
  if (!judgement.problem.empty()) return judgement;
  judgement.last_step = static_cast<std::int64_t>(last);
  judgement.first_step = static_cast<std::int64_t>(last - steps) + 1;
  const auto count = static_cast<std::int64_t>(steps);
  const Losses a = losses_of(verdict.a, judgement.last_step, count), b = losses_of(verdict.b, judgement.last_step, count);
  if (!are_whole(a) || !are_whole(b)) {
    judgement.problem =
        "a run lacks some of the steps " + std::to_string(judgement.first_step) + " to " + std::to_string(judgement.last_step);
    return judgement;
  }
  contrast_losses(a, b, confidence_of(verdict), judgement);
  decide(judgement, verdict, false);
  return judgement;
}

/// Leaves runs beside which other work ran, if enough others are left.
void leave_out_disturbed(Verdict& verdict) {
  std::vector<SideRun> quiet_a = quiet_runs(verdict.a), quiet_b = quiet_runs(verdict.b);
  const std::size_t left_out = verdict.a.runs.size() + verdict.b.runs.size() - quiet_a.size() - quiet_b.size();
  if (left_out == 0) return;
  if (std::min(quiet_a.size(), quiet_b.size()) < least_quiet) {
    std::string other = disturbance_of(verdict.a);
    if (other.empty()) other = disturbance_of(verdict.b);
    verdict.notes.push_back("other work ran beside " + std::to_string(left_out) + " of the runs: " + other);
    return;
  }
  verdict.notes.push_back(std::to_string(left_out) + " runs beside which other work ran are left out");
  verdict.a.runs = std::move(quiet_a);
  verdict.b.runs = std::move(quiet_b);
}

/// The reason of the difference in speed, and how each side differs from its prediction.
void add_reason(Verdict& verdict) {
  const auto read = [](const CompareOutcome& row) {
    return of_archive(row.runs.front().archive, [&] { return step_parts(row); });
  };
  const CompareOutcome a = row_of(verdict.a), b = row_of(verdict.b);
  const StepParts parts_a = read(a), parts_b = read(b);
  verdict.reason = reason_of(parts_a, parts_b, static_cast<double>(a.step_tokens) / static_cast<double>(b.step_tokens));
  verdict.residual_a = residual_line(read_residual(parts_a, a));
  verdict.residual_b = residual_line(read_residual(parts_b, b));
}

}  // namespace

Call call_of(const Contrast& contrast, double within, bool more_is_better) {
  if (!contrast.known()) return Call::unclear;
  if (contrast.low >= 1 - within && contrast.high <= 1 + within) return Call::same;
  if (contrast.low > 1) return more_is_better ? Call::better : Call::worse;
  if (contrast.high < 1) return more_is_better ? Call::worse : Call::better;
  return Call::unclear;
}

std::string word_of(const Judgement& judgement) {
  const bool better = judgement.call == Call::better;
  if (judgement.call == Call::unclear) return "cannot be told";
  if (judgement.call == Call::same) return "the same within " + percent_text(judgement.within, judgement.within < 0.01 ? 1 : 0);
  if (judgement.quantity == "speed") return better ? "faster" : "slower";
  if (judgement.quantity == "loss") return better ? "lower" : "higher";
  return better ? "less" : "more";
}

std::string assumption_of(Method method) {
  switch (method) {
    case Method::paired_runs:
      return "the runs were made by turns, and the ratios of neighbours scatter normally (Student's t of pairs)";
    case Method::welch_runs:
      return "medians of runs scatter normally, on each side in its own way (Welch's t); what changed on the machine between the "
             "sides' runs counts as a difference";
    case Method::pooled_runs:
      return "medians of runs scatter normally, on both sides alike (Student's t, one variance); what changed on the machine "
             "between the sides' runs counts as a difference";
    case Method::batch_means:
      return "too few runs to see how they differ: their standard deviation is taken from --run-spread; that of the steps by "
             "means of batches";
    case Method::exact:
      return "every run of a side has the same value";
    case Method::range:
      return "the interval is the range over the runs";
    case Method::paired_steps:
      return "steps on the same tokens are pairs (means of batches)";
    case Method::none:
      break;
  }
  return {};
}

int Verdict::exit_status() const {
  if (!request.slower) return 0;
  const Judgement& judged = speed();
  if (!judged.comparable || !judged.contrast.known()) return exit_unclear;
  if (judged.contrast.high < 1 - *request.slower) return exit_failed;
  return judged.contrast.low >= 1 - *request.slower ? 0 : exit_unclear;
}

Verdict judge(Side a, Side b, const VerdictRequest& request, bool with_reason) {
  Verdict verdict{.a = std::move(a), .b = std::move(b), .request = request};
  for (const Side* side : {&verdict.a, &verdict.b})
    verdict.notes.insert(verdict.notes.end(), side->notes.begin(), side->notes.end());
  leave_out_disturbed(verdict);
  verdict.differences = differences_between(verdict.a, verdict.b);
  verdict.turns = by_turns(measured(verdict.a, &SideRun::speed), measured(verdict.b, &SideRun::speed));
  verdict.judgements = {judge_rate(verdict, "speed", "tokens/s", &SideRun::speed, true), judge_memory(verdict),
                        judge_loss(verdict), judge_rate(verdict, "energy", "J per billion tokens", &SideRun::energy, false)};
  if (with_reason) add_reason(verdict);
  return verdict;
}

}  // namespace consist::launch
