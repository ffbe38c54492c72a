// Ranks that are slower than the others at their own work, found while a run goes on.
#pragma once

#include <span>
#include <vector>

#include "consist/export.h"

namespace consist {

struct SlowRank {
  int rank = 0;
  double longer = 0;  ///< 0.2: its work takes 20% longer than the median of the others'
};

/// Collects what successive checks say. A rank is slow if its work takes longer than that of the others by more than a limit in
/// `in_a_row` checks one after the other; it is told once, and again after it has been as fast as the others.
class CONSIST_API SlowRanks {
 public:
  static constexpr int in_a_row = 3;

  /// `limit`: a fraction.
  explicit SlowRanks(double limit) : limit_(limit) {}

  /// `speeds` by rank, as rank_speeds() gives them. Returns the ranks that are found to be slow by this check, the slowest first.
  std::vector<SlowRank> add(std::span<const double> speeds);

 private:
  double limit_;
  std::vector<int> checks_;  // by rank: those in which it was slow, one after the other
};

}  // namespace consist
