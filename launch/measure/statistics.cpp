#include "launch/measure/statistics.h"

#include <algorithm>
#include <boost/math/distributions/fisher_f.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <vector>

#include "consist/text.h"

namespace consist::launch {
namespace {

constexpr double by_chance = 0.01;  ///< a larger variance than this probability allows is not one of the others

/// Logarithms of a sample's positive numbers.
struct Scatter {
  int count = 0;
  double mean = 0, squares = 0;  ///< squares: sum of the squared distances from the mean

  explicit Scatter(std::span<const double> values) {
    for (double value : values) {
      if (!(value > 0)) continue;
      const double from_mean = std::log(value) - mean;  // Welford's update
      mean += from_mean / ++count;
      squares += from_mean * (std::log(value) - mean);
    }
  }
  int freedom() const { return std::max(count - 1, 0); }
};

struct Pool {
  double squares = 0;
  int freedom = 0;
  Pool without(const Scatter& sample) const { return {std::max(squares - sample.squares, 0.0), freedom - sample.freedom()}; }
  double variance() const { return squares / freedom; }
};

/// Measures how improbable it is that a sample of the pool's variance scatters as this one does, as the variances' ratio over its
/// limit: above 1 it is one of another variance.
double excess(const Scatter& sample, const Pool& pool) {
  const Pool others = pool.without(sample);
  if (sample.freedom() == 0 || others.freedom == 0 || sample.squares == 0) return 0;
  const boost::math::fisher_f ratios(sample.freedom(), others.freedom);
  return sample.squares / sample.freedom() / (others.variance() * quantile(complement(ratios, by_chance)));
}

Interval interval_around(const Scatter& sample, const Pool& pool) {
  Interval interval{.count = sample.count};
  if (sample.count == 0) return interval;
  interval.mean = std::exp(sample.mean);
  if (sample.count < 2) return interval;
  const double half = student_t(pool.freedom) * std::sqrt(pool.variance() / sample.count);
  interval.low = std::exp(sample.mean - half);
  interval.high = std::exp(sample.mean + half);
  return interval;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double student_t(int freedom) {
  return quantile(boost::math::students_t(std::max(freedom, 1)), 0.975);
}

Interval interval_of(std::span<const double> values) {
  const Scatter sample(values);
  return interval_around(sample, {sample.squares, sample.freedom()});
}

std::vector<Interval> pooled_intervals(std::span<const std::vector<double>> samples) {
  std::vector<Scatter> scatters;
  Pool pool;
  for (const std::vector<double>& sample : samples) {
    scatters.emplace_back(sample);
    pool.squares += scatters.back().squares;
    pool.freedom += scatters.back().freedom();
  }
  std::vector<char> apart(samples.size(), 0);
  for (;;) {  // the one that stands out most leaves first: it widens what the others are held against
    std::size_t worst = samples.size();
    double most = 1;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double by = apart[i] ? 0 : excess(scatters[i], pool);
      if (by > most) worst = i, most = by;
    }
    if (worst == samples.size()) break;
    apart[worst] = 1;
    pool = pool.without(scatters[worst]);
  }
  std::vector<Interval> intervals;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Pool own{scatters[i].squares, scatters[i].freedom()};
    intervals.push_back(interval_around(scatters[i], apart[i] || pool.freedom == 0 ? own : pool));
  }
  return intervals;
}

bool apart(const Interval& a, const Interval& b) {
  return a.known() && b.known() && (a.low > b.high || b.low > a.high);
}

std::string spread_text(const Interval& interval) {
  if (!interval.known()) return "-";
  const double percent = 100 * std::max(interval.high / interval.mean - 1, 1 - interval.low / interval.mean);
  return "±" + (percent > 999 ? std::string(">999") : fixed_text(percent, percent < 9.95 ? 1 : 0)) + "%";
}

}  // namespace consist::launch
