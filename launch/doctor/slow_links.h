// Links that are slower than their equals, and the rank or host that they have in common.
#pragma once

#include <set>
#include <string>

#include "launch/measure/short_figures.h"

namespace consist::doctor {

struct SlowLinks {
  int count = 0;                ///< of all links that were compared
  double least = 0, usual = 0;  ///< bytes/s: of the slowest, and the median
  std::string text;             ///< for people; empty if none is slow
  std::string blamed;           ///< "rank 3 (node07)", "host node07": all links of it are slow; empty: none stands out
  std::set<int> nodes;          ///< RankFigures::node of what is blamed
};

/// Compares the links within hosts, or between them.
SlowLinks find_slow_links(const launch::ShortFigures& figures, bool across);

/// "rank 3 (node07)".
std::string name_of_rank(const launch::ShortFigures& figures, int rank);

}  // namespace consist::doctor
