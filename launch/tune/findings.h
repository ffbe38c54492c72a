// What a search knows of the configurations that it has planned, and which of them are the best.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/tune/estimate.h"
#include "launch/tune/space.h"

namespace consist::launch {

enum class Objective {
  tokens,  ///< the most tokens per second
  memory,  ///< the least memory of the rank that needs the most; of equal ones the fastest
  energy,  ///< the fewest joules of all ranks; of equal ones the fastest
};

/// What is known of a configuration.
struct Known {
  Estimate estimate;
  std::optional<Estimate> whole;  ///< if `estimate` is of a shortened step, and this was planned, too
  bool refused = false;           ///< its parts or sizes do not go together
  int changed = 0;                ///< all configurations around it that differ in so many options were planned

  bool fits() const { return !refused && estimate.fits && (!whole || whole->fits); }
  bool is_whole() const { return estimate.whole || whole.has_value(); }
  const Estimate& surest() const { return whole ? *whole : estimate; }
};

using Points = std::vector<Point>;

/// One thread at a time.
class Findings {
 public:
  /// `precision`: the plugin, whose options may change rounding. `space` must outlive it.
  Findings(const Space& space, Objective objective, std::string precision);

  /// Of a point that is known already `known.estimate` is that of the whole step.
  void add(const Point& point, const Known& known);
  /// Null if it is not known.
  const Known* find(const Point& point) const;
  void set_changed(const Point& point, int options) { known_[point.layout].at(point).changed = options; }

  void each(const std::function<void(const Point&, const Known&)>& visit) const;
  /// Configurations that fit.
  std::size_t simulated() const;
  /// The first of score() of the best, infinity if nothing fits.
  double best_score() const;
  /// By the objective: less is better.
  std::pair<double, double> score(const Point& point) const { return score(find(point)->surest()); }
  Points sorted(Points points) const;

  /// Those of a layout that fit, the best first; where none does, the one that needs the least memory.
  Points best_of_layout(std::size_t layout) const;
  /// Layouts whose best is worse by at most `margin` than the best of all, the best first; then those where nothing fits yet.
  std::vector<std::size_t> layouts_within(double margin) const;

  /// A family has a layout, a micro-batch, a recomputation and a place for activations; its members differ in options of plugins
  /// alone. The best of each family, the best first; of nearly equal ones the one with the fewest options. Those alone that
  /// `takes` is true of.
  Points best_of_families(const std::function<bool(const Point&)>& takes = nullptr) const;
  /// The Pareto front of families: no other is both as fast and as small. Neighbours differ in memory by some percent.
  Points front() const;
  /// Whether it has options of the precision that the user has not given.
  bool changes_precision(const Point& point) const;

 private:
  using Family = std::tuple<std::size_t, std::string, std::string, std::string, std::string, int>;
  std::pair<double, double> score(const Estimate& estimate) const;
  Points best_of(const std::map<Family, Points>& families) const;
  Family family_of(const Point& point, bool by_memory) const;

  const Space& space_;
  Objective objective_;
  std::string precision_;
  std::vector<std::map<Point, Known>> known_;  // by layout
};

}  // namespace consist::launch
