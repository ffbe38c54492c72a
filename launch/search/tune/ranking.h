// Ranks the configurations to simulate next: by their estimates, and by how far estimates were off so far.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launch/search/tune/findings.h"
#include "launch/search/tune/space.h"

namespace consist::launch {

/// Errors of estimates: the simulated time over the estimated one, by layout, by division of the ranks, and of all, each
/// for one schedule of pipelines: estimates of one schedule say nothing of another's.
class Corrections {
 public:
  /// Compares the estimates and simulations of all configurations in `found` that have both.
  Corrections(const Space& space, const Findings& found);

  /// The factor by which the estimate of a point is to be multiplied.
  double ratio(const Point& point) const;
  /// By how much an estimate that was multiplied so may still be off: fraction. Less where configurations of the same layout, or
  /// of the same division of the ranks, were simulated.
  double uncertainty(const Point& point) const;
  /// Relative differences without corrections.
  double mean_error() const noexcept { return mean_error_; }
  double largest_error() const noexcept { return largest_error_; }

 private:
  struct Mean {
    double sum = 0, squares = 0;
    std::size_t count = 0;
    void add(double ratio);
    double value() const { return count == 0 ? 1 : sum / static_cast<double>(count); }
    /// Standard deviation over the mean, of two at least; `least` otherwise, and at least that.
    double spread(double least) const;
  };
  /// The simulated ones that are nearest to a point.
  struct Relatives {
    const Mean& mean;
    double least_spread = 0;
    bool are_strangers = false;  ///< of another schedule
  };
  Relatives relatives(const Point& point) const;
  using Key = std::pair<std::size_t, std::string>;  // and the schedule
  Key layout_of(const Point& point) const { return {point.layout, schedule_of(point)}; }
  Key division_of(const Point& point) const { return {space_.layouts()[point.layout].division, schedule_of(point)}; }
  std::string schedule_of(const Point& point) const { return space_.value_of(point, "pipeline.schedule"); }

  const Space& space_;
  std::map<Key, Mean> of_layout_, of_division_;
  std::map<std::string, Mean> of_schedule_;
  Mean of_all_;
  double mean_error_ = 0, largest_error_ = 0;
};

/// Estimated ones that were not simulated, by the best score that they may have, the best first. Left out is what is estimated to
/// need more memory than there is by more than estimates are off, what rounds in another way unless `numerics` is any, and what
/// is no better by its estimate than others of its family that were simulated.
struct Ranked {
  double score = 0;  ///< corrected, less the uncertainty
  Point point;
};
std::vector<Ranked> ranked(const Space& space, const Findings& found, const Corrections& corrections, double capacity,
                           Numerics numerics);

/// As long as nothing that was simulated fits: leaves of `ranked` what fits if estimates of memory are as far off as the worst of
/// those that were simulated; all if there is nothing.
void keep_the_surest(std::vector<Ranked>& ranked, const Findings& found, double capacity);

}  // namespace consist::launch
