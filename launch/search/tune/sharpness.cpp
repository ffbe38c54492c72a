#include "launch/search/tune/sharpness.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "consist/host.h"
#include "core/base/in_parallel.h"

namespace consist::launch {

std::vector<OptionSteps> steps_around(const Point& best, Numerics numerics, Trier& trier, double until) {
  constexpr std::size_t most_simulated = 8;
  const Findings& found = trier.found();
  const auto is_better = [&](const Point& a, const Point& b) { return found.score(a) < found.score(b); };
  Points next;
  std::string option;
  for (StepPoints& step : steps_from(trier.space(), best, numerics)) {
    std::erase_if(step.points, [&](const Point& point) {
      const Known* known = found.find(point);
      return known == nullptr || !known->fits();
    });
    if (step.points.empty()) continue;
    const Point& here = *std::ranges::min_element(step.points, is_better);
    if (step.option != option) {
      next.push_back(here);
    } else if (is_better(here, next.back())) {
      next.back() = here;
    }
    option = step.option;
  }
  std::erase_if(next, [&](const Point& point) { return found.find(point)->is_simulated(); });
  next = found.sorted(std::move(next));
  if (next.size() > most_simulated) next.resize(most_simulated);
  trier.try_all(next, Depth::simulated, until);
  return options_around(trier.space(), found, Corrections(trier.space(), found), best, numerics);
}

std::vector<OtherRates> at_other_rates(const std::vector<Candidate>& candidates, const SearchRequest& request, Trier& trier) {
  constexpr std::size_t most = 6;
  constexpr double reach = 1.06, least_gain = 0.001;
  if (request.objective == Objective::memory) return {};
  const bool by_energy = request.objective == Objective::energy;
  std::vector<double> scores;
  for (const Candidate& c : candidates) {
    const double score = by_energy ? joules_of(c.prediction, request.power, c.config.ranks) : c.prediction.time.seconds;
    if (scores.size() == most || (!scores.empty() && score > reach * scores.front())) break;
    scores.push_back(score);
  }
  const std::vector<RateChange> changes = rate_changes(*request.machine, request.config.ranks > 1);
  std::vector<std::shared_ptr<const Machine>> machines;
  for (const RateChange& change : changes) machines.push_back(change.machine);
  std::vector<std::vector<Ratio>> ratios(scores.size());
  in_parallel(scores.size(), usable_cores(), [&](std::size_t n) {
    const Point& point = candidates[n].point;
    ratios[n] =
        ratios_on(trier.plan_of(trier.config_of(point)), trier.space().layouts()[point.layout].stages, machines, request.power);
  });
  std::vector<OtherRates> rates;
  for (std::size_t change = 0; change < changes.size(); ++change) {
    const auto there = [&](std::size_t n) {
      return scores[n] * (by_energy ? ratios[n][change].joules : ratios[n][change].seconds);
    };
    OtherRates rate{changes[change].change};
    for (std::size_t n = 1; n < scores.size(); ++n) {
      if (there(n) < there(rate.best)) rate.best = n;
    }
    rate.gain = there(0) / there(rate.best) - 1;
    if (rate.gain < least_gain) rate = {std::move(rate.change)};
    rates.push_back(std::move(rate));
  }
  return rates;
}

}  // namespace consist::launch
