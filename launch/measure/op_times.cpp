#include "launch/measure/op_times.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace consist::launch {

double measuring_seconds(const std::vector<OpSample>& samples, double seconds) {
  double sum = 0;
  for (const OpSample& sample : samples) sum += sample.seconds;
  return samples.empty() ? 0 : std::max(0.0, (sum - seconds) / static_cast<double>(samples.size()));
}

void take_off(std::vector<OpSample>& samples, double measuring) {
  for (OpSample& sample : samples) sample.seconds = std::max(sample.seconds / 2, sample.seconds - measuring);
}

std::vector<DeviceRates::OpTimes> op_times(const std::vector<std::vector<OpSample>>& steps, const ThrottlingFit& fit) {
  struct Sum {
    double unloaded = 0;  ///< seconds at no load
    double load = 0, scratch = 0, demand = 0, sensitivity = 0;
    int count = 0;
  };
  std::map<std::tuple<std::string, DType, int, double, double>, Sum> sums;
  for (const std::vector<OpSample>& step : steps) {
    const std::vector<double> loads = loads_of(step, fit);
    for (std::size_t n = 0; n < step.size(); ++n) {
      const OpSample& sample = step[n];
      Sum& sum = sums[{sample.op, sample.dtype, sample.depth, sample.flops, sample.bytes}];
      sum.unloaded += sample.seconds / (1 + fit.sensitivity_of(sample) * loads[n]);
      sum.load += loads[n];
      sum.scratch += sample.scratch;
      sum.demand = fit.demand_of(sample);
      sum.sensitivity = fit.sensitivity_of(sample);
      ++sum.count;
    }
  }
  std::vector<DeviceRates::OpTimes> all;
  for (const auto& [key, sum] : sums) {
    const auto& [op, dtype, depth, flops, bytes] = key;
    if (sum.unloaded <= 0) continue;
    if (all.empty() || all.back().op != op || all.back().dtype != dtype || all.back().depth != depth)
      all.push_back({.op = op, .dtype = dtype, .depth = depth, .points = {}, .source = FigureSource::measured_here, .demand = sum.demand});
    // Behind long pauses a load is all but 0; machine files have no figures that small.
    const double load = sum.load / sum.count < 1e-9 ? 0 : sum.load / sum.count;
    all.back().points.push_back({.flops = flops,
                                 .bytes = bytes,
                                 .seconds = sum.unloaded / sum.count * (1 + sum.sensitivity * load),
                                 .load = load,
                                 .scratch = sum.scratch / sum.count});
  }
  return all;
}

}  // namespace consist::launch
