// Doubts about the figures of a comparison.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/compare/table.h"
#include "launch/compare/winner.h"

namespace consist::launch {
namespace {

constexpr double uneven_product = 1.15, uneven_clock = 1.05;  // largest over smallest that is not worth a word

struct Range {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  void add(double value) {
    if (!(value > 0)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  double ratio() const { return most > 0 ? most / least : 1; }
};

std::string percents(const Range& range) {
  const std::string least = fixed_text(100 * range.least, 0), most = fixed_text(100 * range.most, 0);
  return least == most ? most + "%" : least + "% to " + most + "%";
}

std::string processors_text(const std::vector<CompareOutcome>& outcomes) {
  std::size_t disturbed = 0, all = 0;
  Range others, stolen;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].same_program_as != i) continue;
    for (const RunOutcome& run : outcomes[i].runs) {
      ++all;
      if (disturbance_of(run).empty()) continue;
      ++disturbed;
      others.add(run.processors->others);
      stolen.add(run.processors->stolen);
    }
  }
  if (disturbed == 0) return {};
  std::string text = "warning: other work ran beside " + std::to_string(disturbed) + " of " + std::to_string(all) + " runs";
  std::string took;
  if (others.most >= 0.005) took = "other processes took " + percents(others) + " of the processors' time";
  if (stolen.most >= 0.005) {
    took += (took.empty() ? "" : ", ") + std::string("other virtual machines up to ") + percent_text(stolen.most);
  }
  if (!took.empty()) text += ": " + took;
  return text + "\n";
}

/// The same row's figure, from repeat to repeat; the most uneven row speaks for all.
template <typename Get>
std::string uneven_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, double limit, Get get,
                        const std::string& what, const std::string& unit) {
  double worst = limit;
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (outcomes[i].same_program_as != i) continue;
    Range range;
    for (const RunOutcome& run : outcomes[i].runs) range.add(get(run));
    if (range.ratio() <= worst) continue;
    worst = range.ratio();
    text = "warning: " + what + " of " + rows[i].label + " was " + si_text(range.least) + unit + " to " + si_text(range.most) +
           unit + " from repeat to repeat: the machine did not run evenly\n";
  }
  return text;
}

std::string bounds_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const RunOutcome& run : outcomes[i].runs) {
      if (!run.bound_problem.empty())
        return "note: runs without a bound, " + rows[i].label + " among them: " + run.bound_problem + "\n";
    }
  }
  return {};
}

/// "llama-tiny_1 and 2 more".
std::string first_of(const std::vector<std::string>& labels) {
  return labels.front() + (labels.size() > 1 ? " and " + std::to_string(labels.size() - 1) + " more" : "");
}

}  // namespace

std::string unequal_steps_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::map<std::string, std::vector<std::pair<std::int64_t, std::vector<std::string>>>> by_model;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (outcomes[i].step_tokens == 0) continue;
    auto& steps = by_model[model_of(rows[i])];
    auto known = std::find_if(steps.begin(), steps.end(), [&](const auto& s) { return s.first == outcomes[i].step_tokens; });
    if (known == steps.end()) known = steps.insert(known, {outcomes[i].step_tokens, {}});
    known->second.push_back(rows[i].label);
  }
  std::string text;
  for (const auto& [model, steps] : by_model) {
    if (steps.size() < 2) continue;
    for (const auto& [tokens, labels] : steps) {
      text += (text.empty() ? "" : "; ") + std::to_string(tokens) + " tokens (" + first_of(labels) + ")";
    }
  }
  if (text.empty()) return text;
  return "Steps of these rows train on different numbers of tokens: " + text +
         ".\nTheir tokens/s can be compared; step times and losses after as many steps cannot. --global-batch B gives all rows "
         "the "
         "same.\n";
}

std::string warnings_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  return processors_text(outcomes) +
         uneven_text(
             rows, outcomes, uneven_product, [](const RunOutcome& run) { return run.bound_flops; },
             "the rate of the largest linear", "FLOP/s") +
         uneven_text(
             rows, outcomes, uneven_clock, [](const RunOutcome& run) { return run.clock; }, "the clock of the device", "Hz") +
         bounds_text(rows, outcomes);
}

}  // namespace consist::launch
