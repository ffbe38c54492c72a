#include "launch/compare/winner.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace consist::launch {
namespace {

constexpr double simulated_apart = 1.02;  // predicted winners by less are not promised (docs/predict.md)

/// Why two rows cannot be told apart; empty if they can.
std::string not_apart(const CompareOutcome& a, const CompareOutcome& b) {
  if (a.prediction && b.prediction) {
    const double ratio = a.speed.mean / b.speed.mean;
    return std::max(ratio, 1 / ratio) > simulated_apart ? "" : "predictions within 2% of one another do not tell which is faster";
  }
  if (!a.disturbance.empty()) return a.disturbance;
  if (!b.disturbance.empty()) return b.disturbance;
  if (!a.speed.known() || !b.speed.known()) return "each was measured once, which gives no interval: see --repeats";
  return apart(a.speed, b.speed) ? "" : "their 95% intervals meet: more --repeats narrow them";
}

}  // namespace

std::string model_of(const CompareRow& row) {
  for (const auto& [option, value] : row.varied) {
    if (option == "model") return value;
  }
  return {};
}

std::string choices_of(const CompareRow& row) {
  std::string text;
  for (const auto& [option, value] : row.varied) {
    if (option != "model" && value != no_such_option) text += (text.empty() ? "" : ", ") + option + " " + value;
  }
  return text;
}

Ranking rank_rows(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, const std::string& model) {
  Ranking ranking;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (model_of(rows[i]) == model && outcomes[i].finished() && outcomes[i].same_program_as == i) ranking.rows.push_back(i);
  }
  if (ranking.rows.empty()) return ranking;
  std::stable_sort(ranking.rows.begin(), ranking.rows.end(),
                   [&](std::size_t a, std::size_t b) { return outcomes[a].speed.mean > outcomes[b].speed.mean; });
  const CompareOutcome& best = outcomes[ranking.rows.front()];
  const auto told_apart = std::stable_partition(ranking.rows.begin() + 1, ranking.rows.end(), [&](std::size_t i) {
    const std::string why = not_apart(best, outcomes[i]);
    if (ranking.reason.empty()) ranking.reason = why;
    return !why.empty();
  });
  ranking.leaders = static_cast<std::size_t>(told_apart - ranking.rows.begin());
  return ranking;
}

std::vector<std::size_t> contested_rows(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::set<std::string> models;
  for (const CompareRow& row : rows) models.insert(model_of(row));
  std::vector<std::size_t> contested;
  for (const std::string& model : models) {
    const Ranking ranking = rank_rows(rows, outcomes, model);
    if (ranking.leaders < 2) continue;
    const Interval& best = outcomes[ranking.rows.front()].speed;
    std::vector<std::size_t> others;
    for (std::size_t place = 1; place < ranking.leaders; ++place) {
      const CompareOutcome& other = outcomes[ranking.rows[place]];
      if (!best.known() || !other.speed.known() || !other.disturbance.empty()) continue;
      const double gap = std::log(best.mean / other.speed.mean);
      const double halves = std::log(best.mean / best.low) + std::log(other.speed.high / other.speed.mean);
      if (gap * std::sqrt(2) > halves) others.push_back(ranking.rows[place]);
    }
    if (others.empty() || !outcomes[ranking.rows.front()].disturbance.empty()) continue;
    contested.push_back(ranking.rows.front());
    contested.insert(contested.end(), others.begin(), others.end());
  }
  return contested;
}

std::optional<std::size_t> winner_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                                     const std::string& model) {
  const Ranking ranking = rank_rows(rows, outcomes, model);
  if (ranking.leaders != 1 || ranking.rows.size() < 2) return {};
  return ranking.rows.front();
}

}  // namespace consist::launch
