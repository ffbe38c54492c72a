#include "launch/compare_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "core/archive/comparison.h"
#include "core/runtime/text.h"

namespace consist::launch {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::string model_of(const CompareRow& row) {
  for (const auto& [option, value] : row.varied) {
    if (option == "model") return value;
  }
  return {};
}

bool finished(const CompareOutcome& outcome) {
  return outcome.status == "finished";
}

/// Relative difference of the final loss to that of the first finished row of the same model; NaN for rows without one.
std::vector<double> parities(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::map<std::string, double> reference;
  std::vector<double> parity(rows.size(), none);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!finished(outcomes[i])) continue;
    const double first = reference.try_emplace(model_of(rows[i]), outcomes[i].final_loss).first->second;
    parity[i] = (outcomes[i].final_loss - first) / first;
  }
  return parity;
}

/// Index of the fastest finished row of each model.
std::map<std::string, std::size_t> best_rows(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::map<std::string, std::size_t> best;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!finished(outcomes[i])) continue;
    auto [known, added] = best.try_emplace(model_of(rows[i]), i);
    if (!added && outcomes[i].tokens_per_second > outcomes[known->second].tokens_per_second) known->second = i;
  }
  return best;
}

std::string scientific(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%+.1e", value);
  return value == 0 ? "0" : text;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

/// Every varied option's value, one row each; options in the order of their first appearance.
std::vector<std::string> varied_options(const std::vector<CompareRow>& rows) {
  std::vector<std::string> options;
  for (const auto& [option, value] : rows.front().varied) options.push_back(option);
  return options;
}

std::vector<std::string> figures(const CompareOutcome& o, double parity) {
  if (!finished(o)) return {};
  return {si_text(o.tokens_per_second),
          si_text(o.low) + ".." + si_text(o.high),
          fixed_text(o.step_seconds * 1e3, 1),
          std::isnan(o.share_of_bound) ? "-" : fixed_text(100 * o.share_of_bound, 0) + "%",
          bytes_text(static_cast<std::int64_t>(o.planned_bytes)),
          bytes_text(static_cast<std::int64_t>(o.measured_bytes)),
          std::isnan(o.bytes_sent_per_step)
              ? "-"
              : (o.sent_is_counted ? "" : "~") + bytes_text(static_cast<std::int64_t>(o.bytes_sent_per_step)),
          fixed_text(o.final_loss, 4),
          scientific(parity)};
}

}  // namespace

std::string comparison_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::vector<std::vector<std::string>> cells;
  std::vector<std::string> header{""};
  for (const std::string& option : varied_options(rows)) header.push_back(upper(option));
  header.insert(header.end(), {"TOKENS/S", "P10..P90", "STEP ms", "BOUND", "PLANNED", "MEASURED", "SENT/STEP", "LOSS", "PARITY"});
  cells.push_back(header);
  const std::vector<double> parity = parities(rows, outcomes);
  const auto best = best_rows(rows, outcomes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto marked = best.find(model_of(rows[i]));
    std::vector<std::string> line{marked != best.end() && marked->second == i ? "*" : " "};
    for (const auto& [option, value] : rows[i].varied) line.push_back(value);
    const std::vector<std::string> numbers = figures(outcomes[i], parity[i]);
    line.insert(line.end(), numbers.begin(), numbers.end());
    cells.push_back(std::move(line));
  }
  std::vector<std::size_t> widths(header.size(), 0);
  for (const auto& line : cells) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  const std::size_t texts = 1 + rows.front().varied.size();  // left-aligned columns; numbers go right
  std::string text;
  for (std::size_t l = 0; l < cells.size(); ++l) {
    for (std::size_t c = 0; c < cells[l].size(); ++c) {
      const std::string space(widths[c] - cells[l][c].size(), ' ');
      text += (c == 0 ? "" : "  ") + (c < texts ? cells[l][c] + space : space + cells[l][c]);
    }
    if (l > 0 && !finished(outcomes[l - 1])) text += "  " + outcomes[l - 1].status + ": " + outcomes[l - 1].reason;
    text += "\n";
  }
  text +=
      "* fastest of its model. BOUND: share of the measured rate of the model's largest matrix product. PARITY: final loss "
      "against the first row of the model.\n";
  if (std::any_of(outcomes.begin(), outcomes.end(), [](const CompareOutcome& o) { return finished(o) && !o.sent_is_counted; }))
    text += "~: the transport does not count what it sends; this is what the step's collectives need, if rings carry them.\n";
  return text;
}

void write_comparison_archive(const std::string& path, const std::vector<CompareRow>& rows,
                              const std::vector<CompareOutcome>& outcomes, const std::vector<std::string>& archives) {
  std::vector<ComparisonColumn> columns;
  for (const std::string& option : varied_options(rows)) columns.push_back({option, ""});
  for (const auto& [name, unit] : {std::pair{"status", ""},
                                   {"reason", ""},
                                   {"tokens_per_second", "1/s"},
                                   {"tokens_per_second_p10", "1/s"},
                                   {"tokens_per_second_p90", "1/s"},
                                   {"step_seconds", "s"},
                                   {"share_of_bound", "1"},
                                   {"planned_bytes", "B"},
                                   {"measured_peak_bytes", "B"},
                                   {"bytes_sent_per_step", "B"},
                                   {"bytes_sent_are_counted", "1"},
                                   {"final_loss", "nat/token"},
                                   {"parity", "1"},
                                   {"best", "1"}}) {
    columns.push_back({name, unit});
  }
  const std::vector<double> parity = parities(rows, outcomes);
  const auto best = best_rows(rows, outcomes);
  std::vector<ComparedRun> runs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CompareOutcome& o = outcomes[i];
    auto number = [&](double value) -> ComparisonValue { return finished(o) ? value : none; };
    ComparedRun run{.label = rows[i].label, .archive = archives[i], .values = {}};
    for (const auto& [option, value] : rows[i].varied) run.values.emplace_back(value);
    const auto marked = best.find(model_of(rows[i]));
    run.values.insert(run.values.end(),
                      {o.status, o.reason, number(o.tokens_per_second), number(o.low), number(o.high), number(o.step_seconds),
                       number(o.share_of_bound), number(o.planned_bytes), number(o.measured_bytes), number(o.bytes_sent_per_step),
                       number(o.sent_is_counted ? 1 : 0), number(o.final_loss), parity[i],
                       marked != best.end() && marked->second == i ? 1.0 : 0.0});
    runs.push_back(std::move(run));
  }
  write_comparison(path, columns, runs);
}

}  // namespace consist::launch
