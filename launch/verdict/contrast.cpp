#include "launch/verdict/contrast.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <utility>

namespace consist::launch {
namespace {

constexpr std::size_t least_pairs = 5;  ///< fewer pairs lose more degrees of freedom than pairing wins back
constexpr std::size_t least_runs = 3;   ///< of a side, whose own scatter is taken
constexpr std::size_t least_together = 4;
constexpr std::size_t least_steps = 10;  ///< whose batches say something
constexpr double many = 1e6;             ///< degrees of freedom of what is assumed

struct Moments {
  double mean = 0, variance = 0;  ///< variance: of one value
  std::size_t count = 0;
};

Moments moments_of(std::span<const double> values) {
  Moments moments{.count = values.size()};
  for (const double value : values) moments.mean += value / static_cast<double>(values.size());
  if (values.size() < 2) return moments;
  for (const double value : values) moments.variance += (value - moments.mean) * (value - moments.mean);
  moments.variance /= static_cast<double>(values.size() - 1);
  return moments;
}

std::vector<double> logarithms(std::span<const MeasuredRun> runs) {
  std::vector<double> values;
  for (const MeasuredRun& run : runs) values.push_back(std::log(run.value));
  return values;
}

double half_width(double variance, double freedom, double level) {
  return quantile(boost::math::students_t(std::max(freedom, 1.0)), 0.5 + level / 2) * std::sqrt(variance);
}

/// A variance as the sum of several estimates, each of so many degrees of freedom.
class Sum {
 public:
  void add(double variance, double freedom) {
    variance_ += variance;
    if (freedom > 0) squares_ += variance * variance / freedom;
  }
  double variance() const { return variance_; }
  /// Satterthwaite's.
  double freedom() const { return squares_ > 0 ? std::min(variance_ * variance_ / squares_, many) : many; }

 private:
  double variance_ = 0, squares_ = 0;
};

void set_interval(Contrast& contrast, double mean, double half) {
  contrast.ratio = std::exp(mean);
  contrast.low = std::exp(mean - half);
  contrast.high = std::exp(mean + half);
}

double median_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

/// Variance of a statistic over all of `steps`, from that of the same over batches of neighbours, and its degrees of freedom.
template <typename Statistic>
std::pair<double, double> batch_variance(std::span<const double> steps, Statistic statistic) {
  const auto batches = std::max<std::size_t>(3, static_cast<std::size_t>(std::sqrt(static_cast<double>(steps.size()))));
  std::vector<double> of_batches;
  for (std::size_t i = 0; i < batches; ++i) {
    const std::size_t begin = i * steps.size() / batches, end = (i + 1) * steps.size() / batches;
    of_batches.push_back(statistic(steps.subspan(begin, end - begin)));
  }
  return {moments_of(of_batches).variance / static_cast<double>(batches), static_cast<double>(batches - 1)};
}

/// In the order of their starts, true for runs of B; empty where one is not known.
std::vector<std::pair<double, std::size_t>> starts(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b) {
  std::vector<std::pair<double, std::size_t>> order;  // b's indices come behind a's
  for (std::size_t i = 0; i < a.size() + b.size(); ++i) {
    const double began = i < a.size() ? a[i].began : b[i - a.size()].began;
    if (std::isnan(began)) return {};
    order.emplace_back(began, i);
  }
  std::sort(order.begin(), order.end());
  return order;
}

/// Steps of the runs of a side: the mean variance of a run's median, over the number of runs; false where a run has too few.
bool add_steps(std::span<const MeasuredRun> runs, Sum& sum) {
  const auto count = static_cast<double>(runs.size());
  for (const MeasuredRun& run : runs) {
    if (run.steps.size() < least_steps) return false;
    std::vector<double> logs;
    for (const double step : run.steps) logs.push_back(std::log(step));
    const auto [variance, freedom] = batch_variance(logs, median_of);
    sum.add(variance / (count * count), freedom);
  }
  return true;
}

Contrast of_single_runs(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b, const Confidence& confidence,
                        Contrast contrast) {
  Sum sum;
  if (!add_steps(a, sum) || !add_steps(b, sum)) {
    contrast.problem = "a run has fewer than " + std::to_string(least_steps) +
                       " steps behind its warm-up; make it longer, or at least three runs of each side";
    return contrast;
  }
  const double spread = confidence.run_spread;
  sum.add(spread * spread * (1 / static_cast<double>(a.size()) + 1 / static_cast<double>(b.size())), many);
  contrast.method = Method::batch_means;
  contrast.run_spread = spread;
  set_interval(contrast, std::log(contrast.ratio), half_width(sum.variance(), sum.freedom(), confidence.level));
  return contrast;
}

}  // namespace

bool by_turns(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b) {
  if (a.size() != b.size()) return false;
  const auto order = starts(a, b);
  for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
    if ((order[i].second < a.size()) == (order[i + 1].second < a.size())) return false;
  }
  return !order.empty();
}

Contrast contrast_of_pairs(std::span<const double> a, std::span<const double> b, const Confidence& confidence) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) differences.push_back(std::log(b[i] / a[i]));
  const Moments moments = moments_of(differences);
  const auto count = static_cast<double>(moments.count);
  Contrast contrast{.method = Method::paired_runs,
                    .runs_a = static_cast<int>(a.size()),
                    .runs_b = static_cast<int>(b.size()),
                    .run_spread = std::sqrt(moments.variance / 2),
                    .problem = {}};
  set_interval(contrast, moments.mean, half_width(moments.variance / count, count - 1, confidence.level));
  return contrast;
}

Contrast contrast_of_runs(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b, const Confidence& confidence) {
  const std::vector<double> logs_a = logarithms(a), logs_b = logarithms(b);
  const Moments of_a = moments_of(logs_a), of_b = moments_of(logs_b);
  const auto count_a = static_cast<double>(a.size()), count_b = static_cast<double>(b.size());
  const double mean = of_b.mean - of_a.mean, freedom = count_a + count_b - 2;
  if (a.size() >= least_pairs && by_turns(a, b)) {
    std::vector<double> first, second;
    for (const auto& [began, i] : starts(a, b)) {
      if (i < a.size()) first.push_back(a[i].value);
      if (i >= a.size()) second.push_back(b[i - a.size()].value);
    }
    return contrast_of_pairs(first, second, confidence);
  }
  Contrast contrast{
      .ratio = std::exp(mean), .runs_a = static_cast<int>(a.size()), .runs_b = static_cast<int>(b.size()), .problem = {}};
  const bool own = a.size() >= least_runs && b.size() >= least_runs;
  if (!own && a.size() + b.size() < least_together) return of_single_runs(a, b, confidence, contrast);
  const double pooled = ((count_a - 1) * of_a.variance + (count_b - 1) * of_b.variance) / freedom;
  Sum sum;
  sum.add(own ? of_a.variance / count_a : pooled * (1 / count_a + 1 / count_b), own ? count_a - 1 : freedom);
  if (own) sum.add(of_b.variance / count_b, count_b - 1);
  contrast.method = own ? Method::welch_runs : Method::pooled_runs;
  contrast.run_spread = std::sqrt(pooled);
  set_interval(contrast, mean, half_width(sum.variance(), sum.freedom(), confidence.level));
  return contrast;
}

Contrast contrast_of_plans(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b) {
  const std::vector<double> logs_a = logarithms(a), logs_b = logarithms(b);
  const auto [least_a, most_a] = std::minmax_element(logs_a.begin(), logs_a.end());
  const auto [least_b, most_b] = std::minmax_element(logs_b.begin(), logs_b.end());
  const bool exact = *least_a == *most_a && *least_b == *most_b;
  return {.method = exact ? Method::exact : Method::range,
          .ratio = std::exp(moments_of(logs_b).mean - moments_of(logs_a).mean),
          .low = std::exp(*least_b - *most_a),
          .high = std::exp(*most_b - *least_a),
          .runs_a = static_cast<int>(a.size()),
          .runs_b = static_cast<int>(b.size()),
          .problem = {}};
}

Contrast contrast_of_steps(std::span<const double> a, std::span<const double> b, const Confidence& confidence) {
  Contrast contrast{.runs_a = 1, .runs_b = 1, .problem = {}};
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) differences.push_back(std::log(b[i] / a[i]));
  const Moments moments = moments_of(differences);
  contrast.ratio = std::exp(moments.mean);
  if (differences.size() < least_steps) {
    contrast.problem = "there are fewer than " + std::to_string(least_steps) + " steps";
    return contrast;
  }
  const auto [variance, freedom] =
      batch_variance(differences, [](std::span<const double> batch) { return moments_of(batch).mean; });
  contrast.method = variance == 0 && moments.mean == 0 ? Method::exact : Method::paired_steps;
  set_interval(contrast, moments.mean, half_width(variance, freedom, confidence.level));
  return contrast;
}

double level_at_look(double level, int look) {
  return 1 - (1 - level) / (static_cast<double>(look) * (look + 1));
}

}  // namespace consist::launch
