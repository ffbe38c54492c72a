#include "launch/tune/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "core/plan/in_parallel.h"
#include "core/plan/transports.h"
#include "launch/tune/estimate.h"
#include "launch/tune/findings.h"

namespace consist::launch {
namespace {

/// Of the time of a shortened step (estimate.h) as against the whole one.
constexpr double margin_of_estimates = 0.01;
/// A layout whose best is slower by this than the best of all is not looked at further.
constexpr double margin_of_layouts = 0.25;
/// Larger micro-batches are planned of layouts whose smaller ones are slower than the best of all by less than this factor.
constexpr double worth_larger_batches = 2;
constexpr double gain_worth_a_round = 0.001;
/// Of the time: rounds end then, and the best are planned whole.
constexpr double share_of_rounds = 0.8;
constexpr double without_limit = std::numeric_limits<double>::infinity();
constexpr std::size_t most_combinations = 200'000;

class Search {
 public:
  Search(const SearchRequest& request, PluginHost& host)
      : request_(request),
        host_(host),
        space_(request.config, request.settled, *request.machine, host, request.transports),
        found_(space_, request.objective, request.config.precision),
        automatic_(automatic_transports(request.config, host, *request.machine)) {}

  SearchResult run() {
    if (request_.exhaustive) {
      plan_all();
    } else {
      plan_each_layout();
      plan_around_the_best();
    }
    plan_the_best_whole();
    SearchResult result{.candidates = candidates_of(shown())};
    found_.each([&](const Point&, const Known& known) {
      ++(known.refused ? result.refused : !known.fits() ? result.too_large : known.is_whole() ? result.whole : result.shortened);
    });
    if (result.candidates.empty() && result.too_large == 0 && !refusal_.empty()) throw UsageError(refusal_);
    result.seconds = passed();
    result.ended_early = ended_;
    return result;
  }

  /// Of each layout what needs little memory; then around those that need the least what differs in one option, several times.
  bool finds_one_that_fits() {
    Points points;
    for (std::size_t layout = 0; layout < space_.layouts().size(); ++layout) {
      points.push_back(space_.first(layout));
      if (const std::vector<std::string> batches = space_.values_of(layout, "batch"); !batches.empty())
        space_.set(points.back(), "batch", batches.back());
      space_.set(points.back(), "recompute", "full");
      points.push_back(points.back());
      if (!space_.set(points.back(), offload_option, "all")) points.pop_back();
    }
    constexpr int rounds = 3;
    constexpr std::size_t layouts_of_round = 3;
    for (int round = 0; round <= rounds; ++round) {
      plan(points, false, without_limit);
      if (found_.simulated() > 0) return true;
      std::vector<std::pair<std::int64_t, Point>> by_bytes;
      for (std::size_t layout = 0; layout < space_.layouts().size(); ++layout) {
        for (const Point& point : found_.best_of_layout(layout)) by_bytes.emplace_back(found_.find(point)->estimate.bytes, point);
      }
      std::sort(by_bytes.begin(), by_bytes.end());
      points.clear();
      for (std::size_t n = 0; n < std::min(layouts_of_round, by_bytes.size()); ++n) {
        const Points around = space_.around(by_bytes[n].second, 1);
        points.insert(points.end(), around.begin(), around.end());
      }
    }
    return false;
  }

 private:
  double passed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  bool is_late(double share) {
    const bool late = request_.most_seconds > 0 && passed() > share * request_.most_seconds;
    if (late) ended_ = true;
    return late;
  }

  /// The host makes one part after the other.
  Plan plan_of(const Point& point) {
    const Choices choices = space_.choices_of(point);
    RunConfig config = request_.config;
    if (!request_.settled.batch) config.accumulation = 0;  // follows from the batch and the global batch
    apply(choices, config);
    const std::lock_guard lock(making_);
    if (request_.progress) request_.progress(std::to_string(++tried_) + " planned; " + text_of(choices));
    return plan_run(std::move(config), host_, {nullptr, request_.machine, false, automatic_});
  }

  /// Plans those that are not known yet, or were not planned whole. What is late is left out.
  void plan(const Points& points, bool whole, double share_of_time) {
    Points open;
    std::set<Point> seen;
    for (const Point& point : points) {
      const Known* known = found_.find(point);
      if (known != nullptr && (!whole || known->is_whole() || !known->fits())) continue;
      if (seen.insert(point).second) open.push_back(point);
    }
    std::vector<Known> known(open.size());
    std::vector<char> done(open.size(), 0);
    std::vector<std::string> refusals(open.size());
    in_parallel(open.size(), usable_cores(), [&](std::size_t n) {
      if (is_late(share_of_time)) return;
      try {
        Plan plan = plan_of(open[n]);
        known[n].estimate = estimate(plan, space_.layouts()[open[n].layout].stages, whole, request_.power);
      } catch (const Error& error) {
        known[n].refused = true;
        refusals[n] = error.what();
      }
      done[n] = 1;
    });
    for (std::size_t n = 0; n < open.size(); ++n) {
      if (done[n] == 0) continue;
      if (refusal_.empty()) refusal_ = refusals[n];
      found_.add(open[n], known[n]);
    }
  }

  void plan_all() {
    for (std::size_t layout = 0; layout < space_.layouts().size(); ++layout) {
      const Points all = space_.all(layout, most_combinations + 1);
      if (all.size() > most_combinations)
        throw UsageError("--exhaustive would plan more than " + std::to_string(most_combinations) + " combinations of '" +
                         space_.layouts()[layout].strategy + "' alone; give some options a value");
      plan(all, true, 1);
    }
  }

  /// Every layout and micro-batch, the smallest first, with recomputation, then activations on the host, where the plan would not
  /// fit otherwise. Larger ones are left out where a smaller one is too large, and of layouts that are far behind.
  void plan_each_layout() {
    std::vector<bool> ended(space_.layouts().size(), false);
    for (std::size_t nth = 0; std::find(ended.begin(), ended.end(), false) != ended.end(); ++nth) {
      const double best = found_.best_score();
      Points now;
      for (std::size_t layout = 0; layout < ended.size(); ++layout) {
        const std::vector<std::string> batches = space_.values_of(layout, "batch");  // the largest first
        const double own = own_score(layout);
        if (nth > 0 && (nth >= batches.size() || (own < without_limit && own > worth_larger_batches * best)))
          ended[layout] = true;
        if (ended[layout]) continue;
        now.push_back(space_.first(layout));
        if (!batches.empty()) space_.set(now.back(), "batch", batches[batches.size() - 1 - nth]);
      }
      for (const Point& point : now) ended[point.layout] = true;  // unless one of them fits
      for (const Choice& more : std::initializer_list<Choice>{
               {"recompute", "none"}, {"recompute", "swiglu,rms_norm"}, {"recompute", "full"}, {offload_option, "all"}}) {
        for (Point& point : now) space_.set(point, more.option, more.value);  // what has no such option is known already
        plan(now, false, share_of_rounds);
        std::erase_if(now, [&](const Point& point) {
          const Known* known = found_.find(point);
          const bool goes_on = known != nullptr && (known->refused || known->fits());
          if (goes_on) ended[point.layout] = false;
          return goes_on || known == nullptr;
        });
      }
    }
  }

  /// Of the best of a layout; infinity if nothing fits.
  double own_score(std::size_t layout) const {
    const Points best = found_.best_of_layout(layout);
    return best.empty() || !found_.find(best.front())->fits() ? without_limit : found_.score(best.front()).first;
  }

  /// The best of a layout around which not all that differs in `options` options was planned; of a layout where nothing fits what
  /// needs the least memory. Null: there is none among the first `width`.
  std::optional<Point> open_in(std::size_t layout, std::size_t width, int options) const {
    const Points best = found_.best_of_layout(layout);
    const auto end = best.begin() + static_cast<std::ptrdiff_t>(std::min(width, best.size()));
    const auto open = std::find_if(best.begin(), end, [&](const Point& point) { return found_.find(point)->changed < options; });
    return open == end ? std::nullopt : std::optional(*open);
  }

  /// Around the best of each layout all that differ in one option; where that is done, around the best of one layout all that
  /// differ in two.
  Points next_round(std::size_t width, double margin) {
    Points around;
    for (const int options : {1, 2}) {
      for (const std::size_t layout : found_.layouts_within(margin)) {
        if (options == 2 && !around.empty()) return around;
        const std::optional<Point> from = open_in(layout, width, options);
        if (!from) continue;
        found_.set_changed(*from, options);
        for (Point& changed : space_.around(*from, options)) {
          if (!copies_for_nothing(changed)) around.push_back(std::move(changed));
        }
      }
    }
    return around;
  }

  /// Whether activations go to the host though the device is known to have room for them: that only takes time.
  bool copies_for_nothing(const Point& point) const {
    if (request_.objective == Objective::memory || space_.value_of(point, offload_option) != "all") return false;
    Point without = point;
    space_.set(without, offload_option, "none");
    const Known* known = found_.find(without);
    return known != nullptr && known->fits();
  }

  /// Rounds move on to what is better, leave layouts that are far behind, and end when none gains and enough was planned.
  void plan_around_the_best() {
    std::size_t width = 3;
    double margin = margin_of_layouts, best = found_.best_score();
    for (int idle = 0; !is_late(share_of_rounds);) {
      const Points around = next_round(width, margin);
      const bool enough = found_.simulated() >= request_.least;
      if (enough && (idle >= 2 || around.empty())) break;
      if (around.empty()) {
        if (width > 10'000) break;  // that was all
        width *= 4;
        margin *= 2;
        continue;
      }
      plan(around, false, share_of_rounds);
      const double now = found_.best_score();
      idle = now < (1 - gain_worth_a_round) * best ? 0 : idle + 1;
      best = std::min(best, now);
    }
  }

  /// The best of as many families as are asked for, the Pareto front, the best with the user's precision, and that of each
  /// transport.
  Points shown() const {
    Points chosen = found_.best_of_families();
    if (chosen.size() > request_.rows) chosen.resize(request_.rows);
    const Points front = found_.front();
    const Points as_asked = found_.best_of_families([this](const Point& point) { return !found_.changes_precision(point); });
    chosen.insert(chosen.end(), front.begin(), front.end());
    if (!as_asked.empty()) chosen.push_back(as_asked.front());
    for (const std::string& transport : request_.transports) {
      const Points over =
          found_.best_of_families([&](const Point& point) { return space_.layouts()[point.layout].transport == transport; });
      if (!over.empty()) chosen.push_back(over.front());
    }
    return chosen;
  }

  /// What is shown, and families that may be as good as the best of it: until the order no longer changes.
  void plan_the_best_whole() {
    constexpr int most_passes = 6;
    for (int pass = 0; pass < most_passes; ++pass) {
      Points open = shown();
      double best = without_limit;
      const Points families = found_.best_of_families();
      for (const Point& point : families) {
        if (found_.find(point)->is_whole()) best = std::min(best, found_.score(point).first);
      }
      for (const Point& point : families) {
        if (found_.score(point).first <= (1 + margin_of_estimates) * best) open.push_back(point);
      }
      std::erase_if(open, [&](const Point& point) { return found_.find(point)->is_whole(); });
      if (open.empty() || (pass > 0 && is_late(1))) break;
      if (pass == 0) plan({found_.sorted(open).front()}, true, without_limit);  // one at least
      plan(open, true, 1);
    }
  }

  std::vector<Candidate> candidates_of(const Points& points) {
    std::set<Point> distinct;
    for (const Point& point : points) {
      if (found_.find(point)->is_whole()) distinct.insert(point);
    }
    const Points all(distinct.begin(), distinct.end());
    std::vector<Candidate> candidates(all.size());
    in_parallel(all.size(), usable_cores(), [&](std::size_t n) {
      const Plan plan = plan_of(all[n]);
      candidates[n] = {.choices = space_.choices_of(all[n]),
                       .config = plan.config(),
                       .prediction = predict(plan),
                       .changes_precision = found_.changes_precision(all[n])};
    });
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.prediction.seconds < b.prediction.seconds; });
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (Candidate& candidate : candidates) {
      candidate.best_for_memory = candidate.prediction.most_bytes() < least;
      least = std::min(least, candidate.prediction.most_bytes());
    }
    const auto sort_by = [&](auto figure) {
      std::stable_sort(candidates.begin(), candidates.end(),
                       [&](const Candidate& a, const Candidate& b) { return figure(a) < figure(b); });
    };
    std::set<std::string> transports;
    for (Candidate& candidate : candidates)
      candidate.best_of_transport = !request_.transports.empty() && transports.insert(transports_text(candidate.config)).second;
    if (request_.objective == Objective::memory) sort_by([](const Candidate& c) { return c.prediction.most_bytes(); });
    if (request_.objective == Objective::energy)
      sort_by([&](const Candidate& c) { return joules_of(c.prediction, request_.power, c.config.ranks); });
    return candidates;
  }

  const SearchRequest& request_;
  PluginHost& host_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Space space_;
  Findings found_;
  const AutomaticTransports automatic_;
  std::string refusal_;  // the first one
  std::mutex making_;
  int tried_ = 0;
  std::atomic<bool> ended_{false};
};

}  // namespace

SearchResult search(const SearchRequest& request, PluginHost& host) {
  return Search(request, host).run();
}

bool anything_fits(const SearchRequest& request, PluginHost& host) {
  return Search(request, host).finds_one_that_fits();
}

}  // namespace consist::launch
