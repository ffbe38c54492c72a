#include "core/runtime/idle_share.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/passes/timeline.h"

namespace consist {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%", 100 * share);
  return text;
}

std::string key_of(int rank) {
  return "idle_share." + std::to_string(rank);
}

}  // namespace

double IdleShares::mean() const {
  return ranks.empty() ? 0 : std::accumulate(ranks.begin(), ranks.end(), 0.0) / static_cast<double>(ranks.size());
}

double idle_share(const Program& program, const Profile& profile, double step_seconds) {
  const double optimizer = profile.compute_seconds(program, true), busy = profile.compute_seconds(program, false);
  const double time = step_seconds - optimizer;
  return time > 0 ? std::clamp(1 - busy / time, 0.0, 1.0) : 0;
}

IdleShares collect_idle_shares(Job& job, double own) {
  job.put(key_of(job.rank()), std::to_string(own));
  IdleShares shares;
  for (int rank = 0; job.rank() == 0 && rank < job.size(); ++rank)
    shares.ranks.push_back(std::stod(job.get(key_of(rank), job.timeout())));
  return shares;
}

std::string idle_text(const IdleShares& measured, std::span<const Program* const> stages) {
  std::string text = "idle " + percent(measured.mean()) + " of forward and backward, measured (by rank:";
  for (double share : measured.ranks) text += " " + percent(share);
  return text + "); the schedule gives " + percent(simulate(stages, TimelineCost::equal).idle_share()) +
         " if all stages are equal, " + percent(simulate(stages, TimelineCost::by_ops).idle_share()) +
         " by the costs of their ops\n";
}

std::string idle_json(const IdleShares& measured, std::span<const Program* const> stages) {
  const nlohmann::ordered_json json{{"ranks", measured.ranks},
                                    {"mean", measured.mean()},
                                    {"equal_stages", simulate(stages, TimelineCost::equal).idle_share()},
                                    {"by_ops", simulate(stages, TimelineCost::by_ops).idle_share()}};
  return json.dump();
}

}  // namespace consist
