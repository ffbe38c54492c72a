#include "launch/search/tune/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/predict/costs.h"

namespace consist::launch {
namespace {

/// "1498-1614": 95% of measured steps, in milliseconds.
std::string interval_text(const StepTime& time) {
  if (!time.error.value) return "?";
  const double low = 1e3 * *time.low(), high = 1e3 * *time.high();
  const int decimals = low < 10 ? 2 : low < 100 ? 1 : 0;
  return fixed_text(low, decimals) + "-" + fixed_text(high, decimals);
}

/// Figures of the rows, of which less is better. Money and bounds of energy have the order of time.
struct Figure {
  const char* name;
  double (*of)(const Candidate&, const Power&);
};
std::vector<Figure> figures_of(bool has_price, const Power& power) {
  const bool has_energy = !power.is_bound();
  std::vector<Figure> figures{
      {has_price ? "time,money" : "time", [](const Candidate& c, const Power&) { return c.prediction.time.seconds; }},
      {"memory", [](const Candidate& c, const Power&) { return static_cast<double>(c.prediction.most_bytes()); }}};
  if (has_energy)
    figures.push_back({"energy", [](const Candidate& c, const Power& p) { return joules_of(c.prediction, p, c.config.ranks); }});
  return figures;
}

/// "time,memory": the figures of which the row has the least; "*" if it is on the frontier for none alone.
std::string frontier_cell(const Candidate& c, const std::vector<Candidate>& all, const std::vector<Figure>& figures,
                          const Power& power) {
  if (!c.on_frontier) return {};
  std::string cell;
  for (const Figure& figure : figures) {
    const auto is_less = [&](const Candidate& a, const Candidate& b) { return figure.of(a, power) < figure.of(b, power); };
    if (&*std::ranges::min_element(all, is_less) == &c) cell += (cell.empty() ? "" : ",") + std::string(figure.name);
  }
  return cell.empty() ? "*" : cell;
}

/// A cell of each of `rates` that is known.
std::string rates_cells(const Candidate& c, const RowRates& rates, const Machine& machine) {
  const Costs costs = costs_of(c, rates);
  std::string cells;
  const auto add = [&](const std::string& text) {
    cells += std::string(9 - std::min<std::size_t>(9, text.size()), ' ') + text + " ";
  };
  if (rates.failures) add(si_text(goodput_of(c, rates, machine).tokens_per_day));
  if (rates.device_price) add(price_text(costs.per_billion_tokens.value_or(0)));
  if (rates.power.is_known()) add(si_text(costs.joules_per_billion_tokens.value_or(0)));
  return cells;
}
std::string rates_headings(const RowRates& rates) {
  return std::string(rates.failures ? "  TOK/DAY " : "") + (rates.device_price ? "COST/BTOK " : "") +
         (rates.power.is_known() ? "   J/BTOK " : "");
}
std::string rates_text(const SearchResult& result, const RowRates& rates, const Machine& machine) {
  std::string text;
  if (rates.failures) {
    const Goodput first = goodput_of(result.candidates.front(), rates, machine);
    text += " TOK/DAY: tokens of a day with failures, of the first row " + percent_text(first.best.goodput, 1) +
            " of those without, at a checkpoint every " + std::to_string(first.best.steps) + " steps.";
  }
  if (rates.device_price) text += " COST/BTOK: of a billion tokens, predicted, by --price.";
  if (rates.power.is_known()) text += "\nJ/BTOK: joules of all devices for a billion tokens, " + origin_of(rates.power) + ".";
  return text + "\n";
}

std::string row_of(const Candidate& c, const std::string& frontier, int frontier_width, const std::string& rates) {
  char line[160];
  std::snprintf(line, sizeof line, "%10.2f %11s %10s %11s %6.1f%% %-*s ", c.prediction.time.seconds * 1e3,
                interval_text(c.prediction.time).c_str(),
                c.measured > 0      ? fixed_text(c.measured * 1e3, 2).c_str()
                : c.problem.empty() ? ""
                                    : "failed",
                bytes_text(c.prediction.most_bytes()).c_str(), 100 * c.prediction.model_flops_utilization, frontier_width,
                frontier.c_str());
  return line + rates + text_of(c.choices) + "\n";
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

Costs costs_of(const Candidate& c, const RowRates& rates) {
  const int ranks = c.config.ranks;
  std::optional<double> watts;
  if (rates.power.is_known()) watts = joules_of(c.prediction, rates.power, ranks) / c.prediction.time.seconds / ranks;
  return costs_of(ranks, c.prediction.tokens_per_second, rates.device_price, watts);
}

Goodput goodput_of(const Candidate& c, const RowRates& rates, const Machine& machine) {
  return goodput_of(c.prediction, c.config, machine, *rates.failures);
}

std::string table_of(const SearchResult& result, std::size_t rows, const RowRates& rates, const Machine& machine) {
  const std::vector<Figure> figures = figures_of(rates.device_price.has_value(), rates.power);
  std::vector<std::pair<const Candidate*, std::string>> shown;
  const std::string heading = "PARETO";
  std::size_t width = heading.size();
  for (std::size_t n = 0; n < result.candidates.size(); ++n) {
    const Candidate& candidate = result.candidates[n];
    if (n >= rows && !candidate.on_frontier && !candidate.best_of_transport) continue;
    shown.emplace_back(&candidate, frontier_cell(candidate, result.candidates, figures, rates.power));
    width = std::max(width, shown.back().second.size());
  }
  std::string text = " PREDICTED    INTERVAL   MEASURED      MEMORY     MFU " + heading +
                     std::string(width - heading.size() + 1, ' ') + rates_headings(rates) +
                     "CONFIGURATION\n      (ms)        (ms)       (ms)\n";
  std::vector<AxisLinks> links;
  for (const auto& [candidate, frontier] : shown) {
    text += row_of(*candidate, frontier, static_cast<int>(width), rates_cells(*candidate, rates, machine));
    links.insert(links.end(), candidate->prediction.links.begin(), candidate->prediction.links.end());
  }
  const std::size_t all = result.whole + result.simulated;
  if (shown.size() < all) text += "  and " + std::to_string(all - shown.size()) + " others that were simulated\n";
  return text + "INTERVAL: 95% of measured steps lie in it. PARETO: no row is as good in " +
         (figures.size() > 2 ? "time, memory and energy" : "both time and memory") + ", and what it is the best in." +
         rates_text(result, rates, machine) + unknown_text(links) + trust_text(result, machine);
}

std::string sharpness_text(const SearchResult& result) {
  std::vector<std::string> rows;
  for (const Candidate& candidate : result.candidates) rows.push_back(text_of(candidate.choices));
  return text_of(result.around) + text_of(result.other_rates, rows);
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
