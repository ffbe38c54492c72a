// Numbers that a model, loss or strategy reports of its own (Builder::metric), as a run reads them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/observer.h"
#include "consist/program.h"

namespace consist {

/// True for the columns of /steps and /evaluations that a run records whatever its model says; own metrics have other names.
CONSIST_API bool is_column_of_runs(std::string_view name);

/// Moves what own metrics alone need behind the last instruction whose outputs or parameters it reads, with that one's tag, so
/// that a stage of a pipeline that has these makes it, whatever place a model gave it.
CONSIST_API void place_own_metrics(Program& forward);

/// The own metrics of a program, in the order of Builder::metric.
CONSIST_API std::vector<OwnMetric> own_metrics(const Program& program);

/// Sums of own metrics over several runs of a program, such as the batches of an evaluation.
class CONSIST_API OwnMetricSums {
 public:
  explicit OwnMetricSums(const Program& program);
  /// Adds what the program has computed. `read`: the value of the metric of that name.
  void add(const std::function<double(std::string_view)>& read);
  std::vector<OwnMetricValue> values() const;

 private:
  struct Sum {
    std::string name, count_name;  ///< as the program calls them; no count: empty
    double sum = 0, count = 0;
  };
  std::vector<Sum> sums_;
};

}  // namespace consist
