// Findings of a search: the configurations that it has planned, and which of them are the best.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/search/tune/estimate.h"
#include "launch/search/tune/space.h"

namespace consist::launch {

enum class Objective {
  tokens,  ///< the most tokens per second
  memory,  ///< the least memory of the rank that needs the most; of equal ones the fastest
  energy,  ///< the fewest joules of all ranks; of equal ones the fastest
};

/// Estimates of a configuration: by arithmetic, simulated with few micro-batches, and simulated whole.
struct Known {
  std::optional<Estimate> quick, simulated, whole;
  bool refused = false;           ///< its parts or sizes do not go together
  bool looked_around = false;     ///< all configurations that differ in one option were estimated

  bool is_known() const { return quick || simulated || whole; }
  bool is_simulated() const { return simulated || whole; }
  const Estimate& surest() const { return whole ? *whole : simulated ? *simulated : *quick; }
  bool fits() const { return !refused && is_known() && surest().fits; }
};

using Points = std::vector<Point>;

/// One thread at a time.
class Findings {
 public:
  /// `space` must outlive it.
  Findings(const Space& space, Objective objective);

  /// Merges `known` into what is stored of the point.
  void add(const Point& point, const Known& known);
  /// Null if it is not known.
  const Known* find(const Point& point) const;
  void set_looked_around(const Point& point) { known_[point.layout].at(point).looked_around = true; }

  void each(const std::function<void(const Point&, const Known&)>& visit) const;
  /// Best first of score() among the configurations that were simulated and fit; infinity if there is none. With `quick` also
  /// among those that were only estimated.
  double best_score(bool quick) const;
  /// By the objective: less is better.
  std::pair<double, double> score(const Point& point) const { return score(find(point)->surest()); }
  std::pair<double, double> score(const Estimate& estimate) const;
  Points sorted(Points points) const;

  /// Those of a layout that fit, the best first; behind them those that do not, the least memory first.
  Points best_of_layout(std::size_t layout) const;

  // Queries over configurations that were simulated and fit:

  /// A family has a layout, a micro-batch, a recomputation and a place for activations; its members differ in options of plugins
  /// alone. The best of each family, the best first; of nearly equal ones the one with the fewest options. Those alone that
  /// `takes` is true of.
  Points best_of_families(const std::function<bool(const Point&)>& takes = nullptr) const;
  /// The Pareto front of families in time, memory and, where the power of the machine's work is known, energy. Each is smaller
  /// than all that are as fast, or takes less energy, by some percent.
  Points front(bool by_energy) const;

 private:
  using Family = std::tuple<std::size_t, std::string, std::string, std::string, std::string, int>;
  Points best_of(const std::map<Family, Points>& families) const;
  Family family_of(const Point& point, bool by_memory) const;

  const Space& space_;
  Objective objective_;
  std::vector<std::map<Point, Known>> known_;  // by layout
};

}  // namespace consist::launch
