#include "core/record/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace consist {

double model_flops_per_token(const ModelSizes& s, std::int64_t sequence) {
  // Twice the keys that a query sees on average, with a window and without.
  const auto all = static_cast<double>(sequence);
  const double hidden = s.window > 0 ? std::max(0.0, all - static_cast<double>(s.window)) : 0.0,
               seen = all - hidden * hidden / all;
  const double keys = static_cast<double>(s.layers - s.windowed_layers) * all + static_cast<double>(s.windowed_layers) * seen;
  return 6.0 * static_cast<double>(s.matmul_parameters) +
         6.0 * static_cast<double>(s.heads) * static_cast<double>(s.head_dim) * keys;
}

double trained_flops_per_token(const Architecture& architecture, std::int64_t sequence, const FreezeRequest& request) {
  return model_flops_per_token(architecture.sizes(), sequence) * trained_share_of_flops(architecture, sequence, request);
}

double largest_load(std::span<const float> choices, std::span<const Router> routers) {
  double largest = 0;
  const std::size_t width = routers.empty() ? 0 : choices.size() / routers.size();
  for (std::size_t row = 0; row < routers.size(); ++row) {
    const auto experts = static_cast<std::size_t>(routers[row].experts);
    double sum = 0, most = 0;
    for (const float count : choices.subspan(row * width, std::min(experts, width))) {
      sum += static_cast<double>(count);
      most = std::max(most, static_cast<double>(count));
    }
    if (sum > 0) largest = std::max(largest, most * static_cast<double>(experts) / sum);
  }
  return largest;
}

std::int64_t warmup_steps(std::int64_t steps) {
  return steps <= 1 ? 0 : std::clamp<std::int64_t>(steps / 5, 1, 10);
}

Steady steady_state(std::span<const double> seconds) {
  const auto count = static_cast<std::int64_t>(seconds.size());
  Steady steady;
  if (count == 0) return steady;
  const std::int64_t warmup = warmup_steps(count);
  std::vector<double> sorted(seconds.begin() + warmup, seconds.end());
  for (double& s : sorted) s = std::isnan(s) ? std::numeric_limits<double>::infinity() : s;  // as damaged archives have it
  std::sort(sorted.begin(), sorted.end());
  auto quantile = [&](double q) { return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)]; };
  steady.first_step = warmup + 1;
  steady.steps = static_cast<std::int64_t>(sorted.size());
  const std::size_t half = sorted.size() / 2;
  steady.median_seconds = sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
  steady.low_seconds = quantile(0.1);
  steady.high_seconds = quantile(0.9);
  return steady;
}

}  // namespace consist
