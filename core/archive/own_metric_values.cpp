#include "core/archive/own_metric_values.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/program/own_metrics.h"

namespace consist {

nlohmann::ordered_json json_of(const std::vector<OwnMetricValue>& metrics) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const OwnMetricValue& metric : metrics)
    values[metric.name] = std::isfinite(metric.value) ? nlohmann::ordered_json(metric.value) : nlohmann::ordered_json();
  return values;
}

std::vector<OwnMetricValue> final_metrics(const ArchiveReader& archive) {
  std::vector<OwnMetricValue> metrics;
  for (const std::string& name : archive.columns()) {
    if (is_column_of_runs(name)) continue;
    const std::vector<double> values = archive.column(name);
    if (!values.empty()) metrics.push_back({name, values.back()});
  }
  return metrics;
}

}  // namespace consist
