// Repeated measurements: their mean and how far it can be trusted.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

namespace consist::launch {

/// Geometric mean of positive numbers with the 95% confidence interval of Student's t, both taken over logarithms: a rate that is
/// doubled and one that is halved are as far away.
struct Interval {
  double mean = 0;
  double low = std::numeric_limits<double>::quiet_NaN();  ///< NaN: fewer than two numbers give no interval
  double high = std::numeric_limits<double>::quiet_NaN();
  int count = 0;

  bool known() const { return count >= 2; }
};

/// Mean 0 and count 0 of no numbers. Numbers that are not positive are left out.
Interval interval_of(std::span<const double> values);

/// Intervals of several samples that scatter alike: one variance is taken from all of them, so that three numbers of each are
/// enough. A sample whose own variance is larger than that of the others by more than chance explains (one-sided F test at 1%) does
/// not scatter alike: it keeps the interval of its own numbers, and the others do without it. Samples with fewer than two numbers
/// have no interval. The same order as `samples`.
std::vector<Interval> pooled_intervals(std::span<const std::vector<double>> samples);

/// True if both are known and no number lies in both.
bool apart(const Interval& a, const Interval& b);

/// The middle one; the lower of two. REQUIRES: there is one.
double median(std::vector<double> values);

/// The 97.5% quantile of Student's t, by degrees of freedom (at least 1).
double student_t(int freedom);

/// "±1.2%": how far the end of the interval that is further away lies from the mean; "-" where it is not known.
std::string spread_text(const Interval& interval);

}  // namespace consist::launch
