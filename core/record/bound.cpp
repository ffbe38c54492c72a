#include "core/record/bound.h"

#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "consist/text.h"
#include "core/base/quantity_text.h"

namespace consist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int most_looks = 5;
constexpr double longest_seconds = 3;
constexpr double agreement = 0.9;      // of the fastest look
constexpr double largest_wait = 0.05;  // of the time of measuring

}  // namespace

Bound bound_from_rates(std::span<const double> rates) {
  std::vector<double> sorted(rates.begin(), rates.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (sorted.empty() || !(sorted.back() > 0)) return {0, "the device measured no rate"};
  const auto agreeing = static_cast<std::size_t>(
      std::count_if(sorted.begin(), sorted.end(), [&](double rate) { return rate >= agreement * sorted.front(); }));
  if (2 * agreeing <= sorted.size()) {
    return {0, "the product ran at " + si_text(sorted.back()) + "FLOP/s to " + si_text(sorted.front()) + "FLOP/s in " +
                   std::to_string(sorted.size()) + " looks: the device was doing other work"};
  }
  return {sorted[(agreeing - 1) / 2], ""};
}

Bound measure_bound(const std::function<double()>& look, const std::function<double()>& waited) {
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const double waited_before = waited();
  std::vector<double> rates;
  while (rates.size() < most_looks && (rates.size() < 2 || seconds() < longest_seconds)) rates.push_back(look());
  const double share = waited_before < 0 ? 0 : (waited() - waited_before) / seconds();
  if (share > largest_wait) {
    return {0, "while the product was measured, the threads waited " + percent_text(share) +
                   " of the time for a processor, all together: there is other work, or there are more threads than processors"};
  }
  return bound_from_rates(rates);
}

std::string too_short_for_bound(double flops) {
  if (flops >= least_work_for_bound) return {};
  return "the run is too short for one: " + si_text(flops) + "FLOP a rank, less than " + si_text(least_work_for_bound) + "FLOP";
}

double seconds_waited_for_processor() {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return -1;
  double seconds = -1;
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    const std::string path = std::string("/proc/self/task/") + entry->d_name + "/schedstat";
    std::FILE* file = std::fopen(path.c_str(), "re");
    unsigned long long ran = 0, waited = 0;
    if (file != nullptr && std::fscanf(file, "%llu %llu", &ran, &waited) == 2) {
      seconds = std::max(seconds, 0.0) + static_cast<double>(waited) * 1e-9;
    }
    if (file != nullptr) std::fclose(file);
  }
  closedir(tasks);
  return seconds;
}

Bound checked_bound(const Bound& bound, double model_flops) {
  if (bound.flops <= 0 || model_flops <= bound.flops) return bound;
  return {0, "the steps ran at " + si_text(model_flops) + "FLOP/s, the product alone at " + si_text(bound.flops) +
                 "FLOP/s: it was measured while the device did other work, or it is too small to be a bound"};
}

}  // namespace consist
