#include "launch/tune/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "launch/tune/estimate.h"

namespace consist::launch {
namespace {

/// What is known of a configuration.
struct Known {
  Estimate estimate;
  bool refused = false;
  int changed = 0;  ///< all configurations around it that differ in so many options were planned
};

/// Objective first; less is better.
using Score = std::pair<double, double>;

/// Shares by which configurations count as equal.
constexpr double margin_of_estimates = 0.02;  // of shortened steps
constexpr double margin_of_simplicity = 0.001;
/// A layout is left when its best is slower by this than the best of all, with the options that one change reaches.
constexpr double margin_of_layouts = 0.15;
constexpr double gain_worth_a_round = 0.001;
/// Of the time: rounds end then, and the best are planned whole.
constexpr double share_of_rounds = 0.8;
constexpr std::size_t most_of_front = 12;  // configurations of the Pareto front that are shown
constexpr std::size_t most_combinations = 200'000;

/// Calls `work` with 0 to `count` - 1, on as many threads as there are cores.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t n = next++; n < count; n = next++) work(n);
  };
  std::vector<std::future<void>> others;
  for (std::size_t w = 1; w < std::min<std::size_t>(count, static_cast<std::size_t>(usable_cores())); ++w)
    others.push_back(std::async(std::launch::async, run));
  run();
  for (std::future<void>& other : others) other.get();
}

class Search {
 public:
  Search(const SearchRequest& request, PluginHost& host)
      : request_(request), host_(host), space_(request.config, request.settled, *request.machine, host), known_(layouts()) {}

  SearchResult run() {
    if (request_.exhaustive) {
      plan_all();
    } else {
      plan_each_layout();
      plan_around_the_best();
    }
    const std::vector<Point> best = best_whole();
    SearchResult result{.candidates = candidates_of(best)};
    for (const auto& [point, known] : all_known()) {
      const Estimate& e = known->estimate;
      ++(known->refused ? result.refused : !e.fits ? result.too_large : e.whole ? result.whole : result.shortened);
    }
    if (result.candidates.empty() && result.too_large == 0 && !refusal_.empty()) throw UsageError(refusal_);
    result.seconds = passed();
    result.ended_early = ended_;
    return result;
  }

 private:
  using Points = std::vector<Point>;

  std::size_t layouts() const { return space_.layouts().size(); }
  double passed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  bool is_late(double share) {
    if (request_.most_seconds > 0 && passed() > share * request_.most_seconds) ended_ = true;
    return ended_;
  }

  std::vector<std::pair<Point, const Known*>> all_known() const {
    std::vector<std::pair<Point, const Known*>> all;
    for (const auto& of_layout : known_) {
      for (const auto& [point, known] : of_layout) all.emplace_back(point, &known);
    }
    return all;
  }
  const Known* find(const Point& point) const {
    const auto found = known_[point.layout].find(point);
    return found == known_[point.layout].end() ? nullptr : &found->second;
  }

  Score score(const Estimate& e) const {
    const auto bytes = static_cast<double>(e.bytes);
    return request_.objective == Objective::memory ? Score(bytes, e.seconds) : Score(e.seconds, bytes);
  }
  /// Those that fit, the best first.
  Points sorted_fits(const std::vector<std::pair<Point, const Known*>>& among) const {
    std::vector<std::pair<Score, Point>> sorted;
    for (const auto& [point, known] : among) {
      if (known->estimate.fits) sorted.emplace_back(score(known->estimate), point);
    }
    std::sort(sorted.begin(), sorted.end());
    Points points;
    for (auto& [of_point, point] : sorted) points.push_back(std::move(point));
    return points;
  }
  Points sorted_fits(std::size_t layout) const {
    std::vector<std::pair<Point, const Known*>> all;
    for (const auto& [point, known] : known_[layout]) all.emplace_back(point, &known);
    return sorted_fits(all);
  }
  double best_score() const {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& of_layout : known_) {
      for (const auto& [point, known] : of_layout) {
        if (known.estimate.fits) best = std::min(best, score(known.estimate).first);
      }
    }
    return best;
  }

  /// The host makes one part after the other.
  Plan plan_of(const Point& point) {
    const Choices choices = space_.choices_of(point);
    RunConfig config = request_.config;
    if (!request_.settled.batch) config.accumulation = 0;  // follows from the batch and the global batch
    apply(choices, config);
    const std::lock_guard lock(making_);
    if (request_.progress) request_.progress(std::to_string(++tried_) + " planned; " + text_of(choices));
    return plan_run(std::move(config), host_, {nullptr, request_.machine, false});
  }

  /// Plans those that are not known yet, or were not planned whole. What is late is left out.
  void plan(const Points& points, bool whole, double share_of_time) {
    Points open;
    std::set<Point> seen;
    for (const Point& point : points) {
      const Known* known = find(point);
      if (known != nullptr && (!whole || known->estimate.whole || known->refused || !known->estimate.fits)) continue;
      if (seen.insert(point).second) open.push_back(point);
    }
    std::vector<Known> found(open.size());
    std::vector<char> done(open.size(), 0);
    std::vector<std::string> refusals(open.size());
    in_parallel(open.size(), [&](std::size_t n) {
      if (is_late(share_of_time)) return;
      try {
        Plan plan = plan_of(open[n]);
        found[n].estimate = estimate(plan, space_.layouts()[open[n].layout].stages, whole);
      } catch (const Error& error) {
        found[n].refused = true;
        refusals[n] = error.what();
      }
      done[n] = 1;
    });
    for (std::size_t n = 0; n < open.size(); ++n) {
      if (done[n] == 0) continue;
      if (refusal_.empty()) refusal_ = refusals[n];
      Known& known = known_[open[n].layout][open[n]];
      known.estimate = found[n].estimate;
      known.refused = found[n].refused;
    }
  }

  void plan_all() {
    for (std::size_t layout = 0; layout < layouts(); ++layout) {
      const Points all = space_.all(layout, most_combinations + 1);
      if (all.size() > most_combinations)
        throw UsageError("--exhaustive would plan more than " + std::to_string(most_combinations) + " combinations of '" +
                         space_.layouts()[layout].strategy + "' alone; give some options a value");
      plan(all, true, 1);
    }
  }

  /// Every layout and micro-batch, with recomputation where the plan would not fit otherwise.
  void plan_each_layout() {
    std::vector<Points> open(1);
    for (std::size_t layout = 0; layout < layouts(); ++layout) {
      Point point = space_.first(layout);
      open[0].push_back(point);
      for (const Dimension& dimension : space_.layouts()[layout].dimensions) {
        if (dimension.option != "batch") continue;
        for (const std::string& value : dimension.values) {
          space_.set(point, "batch", value);
          open[0].push_back(point);
        }
      }
    }
    Points now = open[0];
    for (const char* next : {"swiglu,rms_norm", "full", ""}) {
      plan(now, false, share_of_rounds);
      Points larger;
      for (Point& point : now) {
        const Known* known = find(point);
        if (known == nullptr || known->refused || known->estimate.fits) continue;
        if (space_.set(point, "recompute", next)) larger.push_back(point);
      }
      now = std::move(larger);
    }
  }

  /// The configuration of a layout around which others are planned next, and in how many options they differ. False: there is
  /// none.
  bool next_of(std::size_t layout, std::size_t width, Point& next, int& options) {
    const Points best = sorted_fits(layout);
    if (best.empty()) {  // what needs the least memory may fit with one more change
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (const auto& [point, known] : known_[layout]) {
        if (known.refused || known.estimate.bytes >= least) continue;
        least = known.estimate.bytes;
        next = point;
        options = known.changed + 1;
      }
      return least < std::numeric_limits<std::int64_t>::max() && options <= 2;
    }
    for (options = 1; options <= 2; ++options) {
      for (std::size_t n = 0; n < std::min(width, best.size()); ++n) {
        next = best[n];
        if (find(next)->changed < options) return true;
      }
    }
    return false;
  }

  /// Rounds: of each layout the best configuration, with one option changed, then with two. The search moves on to what is
  /// better, leaves layouts that are far behind, and ends when no round gains and enough was planned.
  void plan_around_the_best() {
    std::size_t width = 3;
    double margin = margin_of_layouts, best = best_score();
    int idle = 0;
    for (int round = 0; !is_late(share_of_rounds); ++round) {
      Points around;
      for (std::size_t layout = 0; layout < layouts(); ++layout) {
        const Points fits = sorted_fits(layout);
        const double own = fits.empty() ? best : score(find(fits.front())->estimate).first;
        if (round > 0 && own > (1 + margin) * best) continue;
        Point from;
        int options = 0;
        if (!next_of(layout, width, from, options)) continue;
        known_[layout][from].changed = options;
        const Points found = space_.around(from, options);
        around.insert(around.end(), found.begin(), found.end());
      }
      const bool enough = simulated() >= request_.least;
      if (around.empty()) {
        if (enough || width > 1000) break;
        width *= 4;  // the rest of the space, as far as there is time
        margin *= 2;
        continue;
      }
      plan(around, false, share_of_rounds);
      const double now = best_score();
      idle = now < (1 - gain_worth_a_round) * best ? 0 : idle + 1;
      best = std::min(best, now);
      if (enough && idle >= 2) break;
    }
  }

  std::size_t simulated() const {
    std::size_t count = 0;
    for (const auto& of_layout : known_)
      count += static_cast<std::size_t>(
          std::count_if(of_layout.begin(), of_layout.end(), [](const auto& k) { return k.second.estimate.fits; }));
    return count;
  }

  /// Layout, micro-batch and recomputation: configurations that share them differ in options of plugins alone.
  std::tuple<std::size_t, std::string, std::string, std::string> family_of(const Point& point) const {
    return {point.layout, space_.value_of(point, "batch"), space_.value_of(point, "recompute"),
            space_.value_of(point, "recompute-layers")};
  }
  bool changes_rounding(const Point& point) const {
    const Choices choices = space_.choices_of(point);
    return std::any_of(choices.begin(), choices.end(),
                       [&](const Choice& choice) { return choice.option.starts_with(request_.config.precision + "."); });
  }

  /// The best of each family, as many as are asked for; the Pareto front; the best that rounds as the user has asked.
  Points shown() const {
    const Points sorted = sorted_fits(all_known());
    std::set<std::tuple<std::size_t, std::string, std::string, std::string>> families;
    Points chosen;
    bool as_asked = false;
    for (const Point& point : sorted) {
      const bool first_as_asked = !as_asked && !changes_rounding(point);
      if (!first_as_asked && (families.size() >= request_.rows || families.contains(family_of(point)))) continue;
      families.insert(family_of(point));
      as_asked |= first_as_asked;
      chosen.push_back(point);
    }
    std::vector<std::pair<Score, Point>> by_time;
    for (const Point& point : sorted) {
      const Estimate& e = find(point)->estimate;
      by_time.push_back({{e.seconds, static_cast<double>(e.bytes)}, point});
    }
    std::sort(by_time.begin(), by_time.end());
    double least = std::numeric_limits<double>::infinity();
    std::size_t front = 0;
    for (const auto& [of_point, point] : by_time) {
      if (front == most_of_front) break;
      if (of_point.second > 0.95 * least) continue;
      least = of_point.second;
      chosen.push_back(point);
      ++front;
    }
    return chosen;
  }

  /// What is shown, and what may be as good as the best of it, planned whole: until the order no longer changes.
  Points best_whole() {
    for (int again = 0; again < 20; ++again) {
      Points open;
      const Points sorted = sorted_fits(all_known());
      for (const Point& point : shown()) {
        if (!find(point)->estimate.whole) open.push_back(point);
      }
      double best = std::numeric_limits<double>::infinity();
      for (const Point& point : sorted) {
        if (find(point)->estimate.whole) best = std::min(best, score(find(point)->estimate).first);
      }
      constexpr std::size_t at_once = 64;
      for (const Point& point : sorted) {
        if (open.size() >= at_once || score(find(point)->estimate).first > (1 + margin_of_estimates) * best) break;
        if (!find(point)->estimate.whole) open.push_back(point);
      }
      if (open.empty() || (is_late(1) && again > 0)) break;
      plan(open, true, again == 0 ? std::numeric_limits<double>::infinity() : 1);
    }
    return simplified(shown());
  }

  /// Options that gain nothing are left at their defaults.
  Points simplified(Points points) {
    if (request_.exhaustive) return points;
    for (Point& point : points) {
      const Score of_point = score(find(point)->estimate);
      for (std::size_t d = 0; d < point.values.size(); ++d) {
        const std::string& option = space_.layouts()[point.layout].dimensions[d].option;
        if (point.values[d] == 0 || option == "batch") continue;
        Point simpler = point;
        simpler.values[d] = 0;
        plan({simpler}, true, 1);
        const Known* known = find(simpler);
        if (known == nullptr || !known->estimate.fits || !known->estimate.whole) continue;
        if (score(known->estimate).first <= (1 + margin_of_simplicity) * of_point.first) point = simpler;
      }
    }
    return points;
  }

  std::vector<Candidate> candidates_of(const Points& points) {
    std::set<Point> distinct;
    for (const Point& point : points) {
      if (find(point)->estimate.whole && find(point)->estimate.fits) distinct.insert(point);
    }
    const Points all(distinct.begin(), distinct.end());
    std::vector<Candidate> candidates(all.size());
    in_parallel(all.size(), [&](std::size_t n) {
      const Plan plan = plan_of(all[n]);
      candidates[n] = {
          .choices = space_.choices_of(all[n]), .prediction = predict(plan), .changes_rounding = changes_rounding(all[n])};
    });
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.prediction.seconds < b.prediction.seconds; });
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (Candidate& candidate : candidates) {
      candidate.best_for_memory = candidate.prediction.most_bytes() < least;
      least = std::min(least, candidate.prediction.most_bytes());
    }
    if (request_.objective == Objective::memory) {
      std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.prediction.most_bytes() < b.prediction.most_bytes();
      });
    }
    return candidates;
  }

  const SearchRequest& request_;
  PluginHost& host_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Space space_;
  std::vector<std::map<Point, Known>> known_;  // by layout
  std::string refusal_;                        // the first one
  std::mutex making_;
  int tried_ = 0;
  std::atomic<bool> ended_{false};
};

}  // namespace

SearchResult search(const SearchRequest& request, PluginHost& host) {
  return Search(request, host).run();
}

}  // namespace consist::launch
