#include "launch/search/tune/search.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "launch/search/tune/ranking.h"
#include "launch/search/tune/sharpness.h"
#include "launch/search/tune/trier.h"

namespace consist::launch {
namespace {

constexpr double without_limit = std::numeric_limits<double>::infinity();
constexpr std::size_t most_combinations = 200'000;
/// Larger micro-batches are estimated of layouts whose smaller ones are slower than the best of all by less than this factor.
constexpr double worth_larger_batches = 1.5;
/// An axis is cut in two where the division of the ranks is slower than the best by less than this factor.
constexpr double worth_cutting = 1.3;
/// Options are changed around the best of layouts that are slower than the best of all by less than this factor.
constexpr double worth_a_look = 1.2;
/// Around what is estimated to be better by less than this share than what was looked at in the same layout is not looked.
constexpr double gain_worth_a_look = 0.001;
/// Fractions of the search's time: until then configurations are estimated, simulated, and recomputed in fewer layers. Then the
/// best are planned whole.
constexpr double share_of_estimates = 0.4, share_of_simulations = 0.75, share_of_refinement = 0.9;
/// Margin for the time of a shortened step (estimate.h) as against the whole one: fraction of that time.
constexpr double margin_of_shortened = 0.01;

class Search {
 public:
  Search(const SearchRequest& request, PluginHost& host)
      : request_(request), host_(host), trier_(request, host), space_(trier_.space()), found_(trier_.found()) {}

  SearchResult run() {
    if (request_.exhaustive) {
      plan_all();
    } else {
      for (numerics_ = Numerics::kept; true; numerics_ = Numerics::any) {
        estimate_layouts();
        look_around();
        simulate_the_best();
        recompute_less();
        if (found_.best_score(false) < without_limit || numerics_ == Numerics::any) break;
      }
    }
    plan_the_best_whole();
    return result();
  }

 private:
  double until(double share) const { return share * request_.most_seconds; }
  bool is_late(double share) const { return request_.most_seconds > 0 && trier_.passed() > until(share); }
  double capacity() const { return request_.machine->device.memory_bytes.value; }

  void plan_all() {
    for (std::size_t layout = 0; layout < space_.layouts().size(); ++layout) {
      const Points all = space_.all(layout, most_combinations + 1);
      if (all.size() > most_combinations)
        throw UsageError("--exhaustive would plan more than " + std::to_string(most_combinations) + " combinations of '" +
                         space_.layouts()[layout].strategy + "' alone; give some options a value");
      trier_.try_all(all, Depth::whole, until(1));
    }
  }

  /// Every layout and micro-batch, the smallest first, with recomputation, then activations on the host, where the plan would not
  /// fit otherwise, unless parameters, gradients and states alone do not fit. Larger ones are left out where a smaller one is too
  /// large, and of layouts that are far behind; axes are cut in two in good divisions of the ranks alone.
  void estimate_layouts() {
    std::vector<std::size_t> going;
    for (std::size_t layout = 0; layout < space_.layouts().size(); ++layout) going.push_back(layout);
    for (std::size_t nth = 0; !going.empty(); ++nth) {
      std::vector<std::size_t> uncut, cut;
      for (const std::size_t layout : going) (space_.layouts()[layout].cuts_axis && nth == 0 ? cut : uncut).push_back(layout);
      std::vector<std::size_t> left = estimate_batches(uncut, nth);
      std::erase_if(cut, [&](std::size_t layout) { return best_of_division(layout) > worth_cutting * found_.best_score(true); });
      const std::vector<std::size_t> left_of_cut = estimate_batches(cut, nth);
      left.insert(left.end(), left_of_cut.begin(), left_of_cut.end());
      std::erase_if(left, [&](std::size_t layout) {
        return nth + 1 >= std::max<std::size_t>(space_.values_of(layout, "batch").size(), 1) ||
               own_score(layout) > worth_larger_batches * found_.best_score(true);
      });
      going = std::move(left);
    }
  }

  /// The nth micro-batch of these layouts. Returns those of which it fits or is refused.
  std::vector<std::size_t> estimate_batches(const std::vector<std::size_t>& layouts, std::size_t nth) {
    Points now;
    for (const std::size_t layout : layouts) {
      const std::vector<std::string> batches = space_.values_of(layout, "batch");  // the largest first
      now.push_back(space_.first(layout));
      if (!batches.empty()) space_.set(now.back(), "batch", batches[batches.size() - 1 - nth]);
    }
    std::vector<std::size_t> going;
    for (const Choice& more : std::initializer_list<Choice>{
             {"recompute", "none"}, {"recompute", "swiglu,rms_norm"}, {"recompute", "full"}, {offload_option, "all"}}) {
      for (Point& point : now) space_.set(point, more.option, more.value);  // what has no such option is known already
      Points all;
      for (const Point& point : now) {
        const Points variants = space_.with_stages(point);
        all.insert(all.end(), variants.begin(), variants.end());
      }
      trier_.try_all(all, Depth::quick, until(share_of_estimates));
      std::erase_if(now, [&](const Point& point) {
        const Known* known = found_.find(point);
        if (known == nullptr) return true;
        if (known->refused || known->fits()) going.push_back(point.layout);
        return known->refused || known->fits() || !known->surest().states_fit;
      });
    }
    return going;
  }

  double score_of_best(std::size_t layout) const {
    const Points best = found_.best_of_layout(layout);
    return best.empty() || !found_.find(best.front())->fits() ? without_limit : found_.score(best.front()).first;
  }
  double own_score(std::size_t layout) const { return score_of_best(layout); }
  double best_of_division(std::size_t layout) const {
    double best = without_limit;
    for (std::size_t other = 0; other < space_.layouts().size(); ++other) {
      if (space_.layouts()[other].division == space_.layouts()[layout].division) best = std::min(best, score_of_best(other));
    }
    return best;
  }

  /// Where a layout goes on: its best point if nothing around a point about as good was looked at; the fastest of those that do
  /// not fit if it is faster than all that do, since options may make it smaller.
  void add_open_points(std::size_t layout, double best, std::vector<std::pair<double, Point>>& open) const {
    struct Side {
      double looked = without_limit, score = without_limit;
      const Point* point = nullptr;
    } sides[2];
    const Points points = found_.best_of_layout(layout);
    for (const Point& point : points) {
      const Known& known = *found_.find(point);
      if (numerics_ == Numerics::kept && space_.changes_numerics(point)) continue;
      const double score = found_.score(known.surest()).first;
      Side& side = sides[known.fits() ? 0 : 1];
      if (known.looked_around) side.looked = std::min(side.looked, score);
      if (!known.looked_around && score > 0 && score < side.score) side = {side.looked, score, &point};
    }
    for (const Side& side : sides) {
      const double most = &side == sides ? worth_a_look * best : best;
      if (side.point != nullptr && side.score <= most && side.score < (1 - gain_worth_a_look) * side.looked)
        open.emplace_back(side.score, *side.point);
    }
  }

  /// Changes one option of what is good so far, the best first, until nothing gains.
  void look_around(double share = share_of_estimates, int rounds = std::numeric_limits<int>::max()) {
    constexpr std::size_t points_of_round = 8;
    for (int round = 0; round < rounds && !is_late(share); ++round) {
      const double best = found_.best_score(true);
      std::vector<std::pair<double, Point>> open;
      for (std::size_t layout = 0; layout < space_.layouts().size(); ++layout) add_open_points(layout, best, open);
      if (open.empty()) return;
      std::sort(open.begin(), open.end());
      if (open.size() > points_of_round) open.resize(points_of_round);
      Points around;
      for (const auto& [score, point] : open) {
        found_.set_looked_around(point);
        for (Point& changed : space_.around(point, 1, numerics_)) {
          if (!copies_for_nothing(changed)) around.push_back(std::move(changed));
        }
      }
      trier_.try_all(around, Depth::quick, until(share));
    }
  }

  /// True if activations go to the host though the device is known to have room for them: that only takes time.
  bool copies_for_nothing(const Point& point) const {
    if (request_.objective == Objective::memory || space_.value_of(point, offload_option) != "all") return false;
    Point without = point;
    space_.set(without, offload_option, "none");
    const Known* known = found_.find(without);
    return known != nullptr && known->fits();
  }

  std::size_t simulated() const {
    std::size_t count = 0;
    found_.each([&](const Point&, const Known& known) { count += known.quick && known.is_simulated() ? 1 : 0; });
    return count;
  }

  /// So many of them, of each layout the first one; then others, for cores that would have nothing to do.
  static Points first_of(const std::vector<Ranked>& ranked, std::size_t most) {
    Points points, others;
    std::set<std::size_t> layouts;
    for (const Ranked& one : ranked) (layouts.insert(one.point.layout).second ? points : others).push_back(one.point);
    const auto cores = static_cast<std::size_t>(usable_cores());
    for (std::size_t n = 0; n < others.size() && points.size() < cores; ++n) points.push_back(others[n]);
    if (points.size() > most) points.resize(most);
    return points;
  }

  /// The best by what corrected estimates may come to, a few at a time, until none is left that may be better and there are as
  /// many families as rows are asked for.
  void simulate_the_best() {
    const auto cores = static_cast<std::size_t>(usable_cores());
    for (const std::size_t before = simulated(); true;) {
      const Corrections corrections(space_, found_);
      const double best = found_.best_score(false);
      std::vector<Ranked> next = ranked(space_, found_, corrections, capacity(), numerics_);
      open_ = static_cast<std::size_t>(std::ranges::count_if(next, [&](const Ranked& r) { return r.score <= best; }));
      if (best == without_limit) keep_the_surest(next, found_, capacity());
      const std::size_t done = simulated() - before, at_once = best == without_limit ? cores : 2 * cores;
      if (open_ == 0 && found_.best_of_families([&](const Point& point) { return keeps(point); }).size() >= request_.rows) return;
      if (next.empty() || done >= request_.most_simulated || is_late(share_of_simulations)) return;
      trier_.try_all(first_of(next, std::min(at_once, request_.most_simulated - done)), Depth::simulated,
                     until(share_of_simulations));
      if (found_.best_score(false) < best) look_around(share_of_simulations, 1);
    }
  }

  /// Tries the best that recompute something in as few layers as fit, to the layer instead of to the quarter.
  void recompute_less() {
    constexpr std::size_t families = 3;
    constexpr double worth_less = 1.05;
    if (request_.objective == Objective::memory || capacity() == 0) return;
    Points next;
    for (const Point& point : found_.best_of_families([&](const Point& p) { return keeps(p); })) {
      if (next.size() >= 2 * families || found_.score(point).first > worth_less * found_.best_score(false)) break;
      const Points fewer = space_.recomputing_less(point);
      trier_.try_all(fewer, Depth::quick, until(share_of_refinement));
      const Points fitting = about_to_fit(point, fewer);
      next.insert(next.end(), fitting.begin(), fitting.end());
    }
    trier_.try_all(next, Depth::simulated, until(share_of_refinement));
  }

  /// The first two of `others`, the smallest last, that fit by their estimates as far as that of `point` was right.
  Points about_to_fit(const Point& point, const Points& others) const {
    const Known& known = *found_.find(point);
    Points fitting;
    if (!known.quick) return fitting;
    const double ratio = static_cast<double>(known.surest().bytes) / static_cast<double>(known.quick->bytes);
    for (const Point& other : others) {
      const Known* there = found_.find(other);
      if (fitting.size() == 2 || there == nullptr || there->refused || !there->quick) continue;
      if (ratio * static_cast<double>(there->quick->bytes) <= capacity()) fitting.push_back(other);
    }
    return fitting;
  }

  bool keeps(const Point& point) const { return numerics_ == Numerics::any || !space_.changes_numerics(point); }

  /// The best of as many families as are asked for, the Pareto front, and that of each transport.
  Points shown() const {
    Points chosen = found_.best_of_families([&](const Point& point) { return keeps(point); });
    if (chosen.size() > request_.rows) chosen.resize(request_.rows);
    for (const Point& point : found_.front(has_energy())) {
      if (keeps(point)) chosen.push_back(point);
    }
    for (const std::string& transport : request_.transports) {
      const Points over = found_.best_of_families(
          [&](const Point& point) { return keeps(point) && space_.layouts()[point.layout].transport == transport; });
      if (!over.empty()) chosen.push_back(over.front());
    }
    return chosen;
  }

  /// Plans whole what is shown, and families that may be as good as the best of it, until the order no longer changes.
  void plan_the_best_whole() {
    constexpr int most_passes = 6;
    for (int pass = 0; pass < most_passes; ++pass) {
      Points open = shown();
      double best = without_limit;
      const Points families = found_.best_of_families([&](const Point& point) { return keeps(point); });
      for (const Point& point : families) {
        if (found_.find(point)->whole) best = std::min(best, found_.score(point).first);
      }
      for (const Point& point : families) {
        if (found_.score(point).first <= (1 + margin_of_shortened) * best) open.push_back(point);
      }
      std::erase_if(open, [&](const Point& point) { return found_.find(point)->whole.has_value(); });
      if (open.empty() || (pass > 0 && is_late(1))) break;
      if (pass == 0) trier_.try_all({found_.sorted(open).front()}, Depth::whole);  // one at least
      trier_.try_all(open, Depth::whole, until(1));
    }
  }

  Candidate candidate_of(const Point& point) {
    const Plan plan = trier_.plan_of(trier_.config_of(point));
    const Known* known = found_.find(point);
    const bool is_predicted = known != nullptr && known->whole;
    return {.choices = space_.choices_of(point),
            .config = plan.config(),
            .prediction = is_predicted ? *known->whole->prediction : predict(plan),
            .point = point,
            .changes_numerics = space_.changes_numerics(point)};
  }

  /// By the power limit alone, energy is in proportion to time.
  bool has_energy() const { return !request_.power.is_bound(); }
  double joules(const Candidate& c) const { return joules_of(c.prediction, request_.power, c.config.ranks); }

  /// `candidates`: the fastest first.
  void mark_frontier(std::vector<Candidate>& candidates) const {
    for (std::size_t n = 0; n < candidates.size(); ++n) {
      Candidate& candidate = candidates[n];
      candidate.best_for_memory = candidate.on_frontier = true;
      for (std::size_t faster = 0; faster < n; ++faster) {
        if (candidates[faster].prediction.most_bytes() > candidate.prediction.most_bytes()) continue;
        candidate.best_for_memory = false;
        if (!has_energy() || joules(candidates[faster]) <= joules(candidate)) candidate.on_frontier = false;
      }
    }
  }

  std::vector<Candidate> candidates_of(const Points& points) {
    std::set<Point> distinct;
    for (const Point& point : points) {
      if (found_.find(point)->whole && found_.find(point)->fits()) distinct.insert(point);
    }
    std::vector<Candidate> candidates;
    for (const Point& point : distinct) candidates.push_back(candidate_of(point));
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.prediction.time.seconds < b.prediction.time.seconds;
    });
    mark_frontier(candidates);
    const auto sort_by = [&](auto figure) {
      std::stable_sort(candidates.begin(), candidates.end(),
                       [&](const Candidate& a, const Candidate& b) { return figure(a) < figure(b); });
    };
    std::set<std::string> transports;
    for (Candidate& candidate : candidates)
      candidate.best_of_transport = !request_.transports.empty() && transports.insert(transports_text(candidate.config)).second;
    if (request_.objective == Objective::memory) sort_by([](const Candidate& c) { return c.prediction.most_bytes(); });
    if (request_.objective == Objective::energy) sort_by([&](const Candidate& c) { return joules(c); });
    return candidates;
  }

  /// The best of what differs from the best few in options that round in another way.
  std::optional<Candidate> best_with_other_numerics() {
    constexpr std::size_t looked_at = 2;
    if (numerics_ == Numerics::any) return std::nullopt;
    Points families = found_.best_of_families([&](const Point& point) { return keeps(point); });
    if (families.empty()) return std::nullopt;
    const double best = found_.score(families.front()).first;
    if (!request_.exhaustive) {
      Points changed;
      families.resize(std::min(families.size(), looked_at));
      for (const Point& point : families) {
        const Points around = space_.around(point, 2, Numerics::changed);
        changed.insert(changed.end(), around.begin(), around.end());
      }
      trier_.try_all(changed, Depth::simulated, until(1));
    }
    const Points others = found_.best_of_families([&](const Point& point) { return space_.changes_numerics(point); });
    if (others.empty() || found_.score(others.front()).first > (1 - gain_worth_a_look) * best) return std::nullopt;
    return candidate_of(others.front());
  }

  SearchResult result() {
    SearchResult result{.candidates = candidates_of(shown())};
    if (!result.candidates.empty()) {
      result.around = steps_around(result.candidates.front().point, numerics_, trier_, until(1));
      result.other_rates = at_other_rates(result.candidates, request_, trier_);
    }
    result.other_numerics = best_with_other_numerics();
    found_.each([&](const Point&, const Known& known) {
      if (known.quick) ++result.estimated;
      if (known.refused) ++result.refused;
      if (known.is_known() && !known.refused && !known.fits()) ++result.too_large;
      if (!known.is_simulated() || !known.fits()) return;
      ++(known.whole ? result.whole : result.simulated);
    });
    if (result.candidates.empty() && result.too_large == 0 && !trier_.first_refusal().empty())
      throw UsageError(trier_.first_refusal());
    const Corrections corrections(space_, found_);
    result.mean_error = corrections.mean_error();
    result.largest_error = corrections.largest_error();
    result.compiled = trier_.compiled_small_steps();
    result.open = open_;
    if (!result.candidates.empty()) {
      const Points families = found_.best_of_families([&](const Point& point) { return keeps(point); });
      result.nearly_as_good =
          static_cast<std::size_t>(std::ranges::count_if(families,
                                                         [&](const Point& point) {
                                                           return found_.score(point).first <=
                                                                  (1 + margin_of_ties) * found_.score(families.front()).first;
                                                         })) -
          1;
    }
    result.seconds = trier_.passed();
    result.ended_early = trier_.left_out_some() || (!request_.exhaustive && is_late(share_of_simulations) && open_ > 0);
    return result;
  }

  const SearchRequest& request_;
  PluginHost& host_;
  Trier trier_;
  const Space& space_;
  Findings& found_;
  Numerics numerics_ = Numerics::kept;
  std::size_t open_ = 0;
};

}  // namespace

SearchResult search(const SearchRequest& request, PluginHost& host) {
  return Search(request, host).run();
}

}  // namespace consist::launch
