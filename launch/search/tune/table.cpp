#include "launch/search/tune/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/config/price.h"
#include "launch/predict/costs.h"

namespace consist::launch {
namespace {

/// `device_price`: nothing where no price is known. Columns of what is not known are not there.
std::string row_of(const Candidate& c, std::optional<double> device_price, const Power& power) {
  char line[120];
  std::snprintf(line, sizeof line, "%10.2f %10s %11s %6.1f%% %6s ", c.prediction.time.seconds * 1e3,
                c.measured > 0      ? fixed_text(c.measured * 1e3, 2).c_str()
                : c.problem.empty() ? ""
                                    : "failed",
                bytes_text(c.prediction.most_bytes()).c_str(), 100 * c.prediction.model_flops_utilization,
                c.best_for_memory ? "*" : "");
  const int ranks = c.config.ranks;
  const Costs costs = costs_of(
      ranks, c.prediction.tokens_per_second, device_price,
      power.is_known() ? std::optional(joules_of(c.prediction, power, ranks) / c.prediction.time.seconds / ranks) : std::nullopt);
  std::string cost;
  char cell[32];
  if (device_price) {
    std::snprintf(cell, sizeof cell, "%9s ", price_text(costs.per_billion_tokens.value_or(0)).c_str());
    cost += cell;
  }
  if (power.is_known()) {
    std::snprintf(cell, sizeof cell, "%9s ", si_text(costs.joules_per_billion_tokens.value_or(0)).c_str());
    cost += cell;
  }
  return line + cost + text_of(c.choices) + "\n";
}

/// States how far the predictions can be trusted.
std::string trust_text(const SearchResult& result, const Machine& machine) {
  return "Error of the first: " + text_of(result.candidates.front().prediction.time.error) + ".\n" + scope_text(machine.name);
}

}  // namespace

std::string extent_of(const SearchResult& result, const std::string& machine) {
  const auto count = [](std::size_t number, const char* what) { return std::to_string(number) + what; };
  std::string text = "Searched for " + machine + ": ";
  if (result.estimated > 0)
    text += count(result.estimated, " configurations estimated by ") + count(result.compiled, " steps of a few layers, ");
  if (result.simulated > 0) text += count(result.simulated, " simulated with few micro-batches, ");
  text += count(result.whole, " simulated whole, in ") + fixed_text(result.seconds, 1) + " s.\n";
  if (result.mean_error > 0)
    text += "Estimates were " + percent_text(result.mean_error, 1) + " off in the mean of those that were simulated, " +
            percent_text(result.largest_error, 1) + " at most. ";
  text += count(result.too_large, " are too large, ") + count(result.refused, " do not go together.\n");
  if (result.candidates.empty()) return text + (result.ended_early ? "The search ended by --search-seconds.\n" : "");
  text += result.has_converged()
              ? "The search has converged: none that was left out is estimated to be faster.\n"
              : "The search has not converged" +
                    (result.open > 0 ? ": " + count(result.open, " that were not simulated may be faster") : std::string()) +
                    (result.ended_early ? "; it ended by --search-seconds.\n" : "; it ended by --configurations.\n");
  if (result.nearly_as_good > 0)
    text += count(result.nearly_as_good, result.nearly_as_good == 1 ? " other is" : " others are") +
            " within 2% of the first, less than predictions can tell apart: measure them (--measure).\n";
  return text;
}

std::string table_of(const SearchResult& result, std::size_t rows, const std::string& price, const Machine& machine,
                     const Power& power) {
  const std::optional<double> device_price = Price(price).of(machine.name.substr(0, machine.name.find(',')), "");
  std::string text = std::string(" PREDICTED   MEASURED      MEMORY     MFU PARETO ") + (device_price ? "COST/BTOK " : "") +
                     (power.is_known() ? "   J/BTOK " : "") + "CONFIGURATION\n      (ms)       (ms)\n";
  std::size_t shown = 0;
  std::vector<AxisLinks> links;
  for (std::size_t n = 0; n < result.candidates.size(); ++n) {
    const Candidate& candidate = result.candidates[n];
    if (n >= rows && !candidate.best_for_memory && !candidate.best_of_transport) continue;
    text += row_of(candidate, device_price, power);
    links.insert(links.end(), candidate.prediction.links.begin(), candidate.prediction.links.end());
    ++shown;
  }
  const std::size_t all = result.whole + result.simulated;
  if (shown < all) text += "  and " + std::to_string(all - shown) + " others that were simulated\n";
  return text + "PARETO: no other configuration is both as fast and as small." +
         (device_price ? " COST/BTOK: of a billion tokens, predicted, by --price." : "") +
         (power.is_known() ? "\nJ/BTOK: joules of all devices for a billion tokens, " + origin_of(power) + ".\n" : "\n") +
         unknown_text(links) + trust_text(result, machine);
}

std::string why(const Candidate& winner, const Candidate& other) {
  static const std::string communication = "exposed communication";
  const auto parts_of = [](const Prediction& p) {
    return std::map<std::string, double>{{"products", p.time.of(Work::products)},
                                         {"attention", p.time.of(Work::attention)},
                                         {"memory-bound ops", p.time.of(Work::memory_bound)},
                                         {"the optimizer", p.time.of(Work::optimizer)},
                                         {"the pipeline's bubble", p.time.bubble},
                                         {"copies from and to the host", p.time.copies},
                                         {communication, p.time.exposed()}};
  };
  std::map<std::string, double> less = parts_of(other.prediction);
  for (const auto& [name, seconds] : parts_of(winner.prediction)) less[name] -= seconds;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, seconds] : less) sorted.emplace_back(seconds, name);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  std::string text;
  constexpr std::size_t most = 3;
  const double difference = other.prediction.time.seconds - winner.prediction.time.seconds;
  for (std::size_t n = 0; n < most && n < sorted.size(); ++n) {
    if (std::abs(sorted[n].first) < 0.05 * std::abs(difference)) break;
    text += (text.empty() ? "" : ", ") + milliseconds_text(std::abs(sorted[n].first), 2) + " " +
            (sorted[n].first > 0 ? "less" : "more") + " of " + sorted[n].second;
    if (sorted[n].second == communication && transports_text(winner.config) != transports_text(other.config))
      text += " (" + consist::text_of(winner.prediction.links) + ", not " + consist::text_of(other.prediction.links) + ")";
  }
  return text;
}

}  // namespace consist::launch
