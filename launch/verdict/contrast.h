// The ratio between the runs of two sides, and how far it can be trusted. Methods and their sources, of which none is invented
// here:
// - pairs of runs, and runs whose sides scatter alike: Student, The probable error of a mean, Biometrika 6 (1908);
// - runs whose sides scatter differently: Welch, The generalization of "Student's" problem, Biometrika 34 (1947), with the
// degrees of
//   freedom of Satterthwaite, Biometrics Bulletin 2 (1946);
// - steps of single runs, which depend on one another: means of batches of about the square root of their number of steps,
// Conway,
//   Management Science 10 (1963), consistent by Flegal and Jones, Annals of Statistics 38 (2010);
// - decisions after several looks at growing data: the shares alpha/(k(k+1)) of Bonferroni's bound, which sum to alpha.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

namespace consist::launch {

/// One run's measurement of a positive quantity.
struct MeasuredRun {
  double value = 0;
  /// The quantity step by step in the steady state, in any unit: used where there are too few runs. Empty: not known.
  std::vector<double> steps = {};
  double began = std::numeric_limits<double>::quiet_NaN();  ///< seconds since the epoch; NaN: not known
};

enum class Method {
  none,          ///< there is no interval; Contrast::problem says why
  exact,         ///< every run of a side has the same value
  range,         ///< the least and the largest ratio of any two runs
  paired_runs,   ///< at least five pairs of runs that were made by turns, or with the same seeds
  welch_runs,    ///< at least three runs of each side
  pooled_runs,   ///< fewer of a side, at least four together: both scatter alike
  batch_means,   ///< steps of single runs, and an assumed scatter between runs
  paired_steps,  ///< steps of both sides that trained on the same tokens, by batch means
};

/// B over A, with its confidence interval. All statistics are of logarithms.
struct Contrast {
  Method method = Method::none;
  double ratio = std::numeric_limits<double>::quiet_NaN();
  double low = std::numeric_limits<double>::quiet_NaN(), high = std::numeric_limits<double>::quiet_NaN();
  int runs_a = 0, runs_b = 0;
  /// Standard deviation of the logarithm of a run's value, as measured or assumed; NaN: the method has none.
  double run_spread = std::numeric_limits<double>::quiet_NaN();
  std::string problem;

  bool known() const { return method != Method::none; }
};

struct Confidence {
  double level = 0.95;       ///< of the interval, in (0, 1)
  double run_spread = 0.01;  ///< standard deviation between runs, for batch_means
};

/// True if the runs of both sides were made by turns: in the order of their starts, the first and the second are one of each
/// side, the third and the fourth, and so on.
bool by_turns(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b);

/// Contrast of quantities that scatter from run to run and from step to step: speed and energy. Neither side is empty.
Contrast contrast_of_runs(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b, const Confidence& confidence);

/// Contrast of quantities that are planned before a run: memory. The interval is the range over the runs.
Contrast contrast_of_plans(std::span<const MeasuredRun> a, std::span<const MeasuredRun> b);

/// Contrast of pairs of values, at least three: a[i] and b[i] belong together.
Contrast contrast_of_pairs(std::span<const double> a, std::span<const double> b, const Confidence& confidence);

/// Contrast of steps that belong together, a[i] and b[i]: losses on the same tokens. At least ten, or there is no interval.
Contrast contrast_of_steps(std::span<const double> a, std::span<const double> b, const Confidence& confidence);

/// Level of the interval at the `look`-th look (from 1) at growing data, so that all looks together err with 1 - `level`.
double level_at_look(double level, int look);

}  // namespace consist::launch
