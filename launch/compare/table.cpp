#include "launch/compare/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "consist/text.h"
#include "core/archive/comparison.h"
#include "core/base/quantity_text.h"
#include "launch/compare/winner.h"
#include "launch/predict/costs.h"

namespace consist::launch {
namespace {

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

/// Characters, not bytes.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string bytes_of(double bytes) {
  return bytes_text(static_cast<std::int64_t>(bytes));
}

/// A column of numbers: its header and a finished row's cell.
struct NumberColumn {
  const char* header;
  std::string (*cell)(const CompareOutcome& outcome, const RunOutcome& figures, double parity);
};

std::string cost_cell(const CompareOutcome& /*outcome*/, const RunOutcome& r, double /*parity*/) {
  return std::isnan(r.cost) ? "-" : price_text(r.cost);
}
std::string energy_cell(const CompareOutcome& /*outcome*/, const RunOutcome& r, double /*parity*/) {
  return std::isnan(r.joules) ? "-" : si_text(r.joules);
}

constexpr NumberColumn measured_columns[] = {
    {"TOKENS/S", [](const CompareOutcome&, const RunOutcome& r, double) { return si_text(r.tokens_per_second); }},
    {"±95%", [](const CompareOutcome& o, const RunOutcome&, double) { return spread_text(o.speed); }},
    {"STEP ms", [](const CompareOutcome&, const RunOutcome& r, double) { return fixed_text(r.step_seconds * 1e3, 1); }},
    {"PREDICTED ms",
     [](const CompareOutcome& o, const RunOutcome& r, double) {
       if (std::isnan(o.predicted_seconds)) return std::string("-");
       char error[16];
       std::snprintf(error, sizeof error, " %+.1f%%", 100 * (o.predicted_seconds / r.step_seconds - 1));
       return fixed_text(o.predicted_seconds * 1e3, 1) + error;
     }},
    {"BOUND", [](const CompareOutcome&, const RunOutcome& r,
                 double) { return std::isnan(r.share_of_bound) ? std::string("-") : percent_text(r.share_of_bound); }},
    {"PLANNED", [](const CompareOutcome&, const RunOutcome& r, double) { return bytes_of(r.planned_bytes); }},
    {"MEASURED",
     [](const CompareOutcome&, const RunOutcome& r, double) {
       return bytes_of(r.measured_bytes) + (r.measured_rank > 0 ? " @" + std::to_string(r.measured_rank) : "");
     }},
    {"SENT/STEP",
     [](const CompareOutcome&, const RunOutcome& r, double) {
       if (std::isnan(r.bytes_sent_per_step)) return std::string("-");
       return (r.sent_is_counted ? "" : "~") + bytes_of(r.bytes_sent_per_step);
     }},
    {"COST/BTOK", cost_cell},
    {"J/BTOK", energy_cell},
    {"LOSS", [](const CompareOutcome&, const RunOutcome& r, double) { return fixed_text(r.final_loss, 4); }},
    {"PARITY", [](const CompareOutcome&, const RunOutcome&, double parity) { return scientific(parity); }},
};

/// Columns for rows that were simulated, not run.
constexpr NumberColumn predicted_columns[] = {
    {"TOKENS/S", [](const CompareOutcome&, const RunOutcome& r, double) { return si_text(r.tokens_per_second); }},
    {"STEP ms", [](const CompareOutcome&, const RunOutcome& r, double) { return fixed_text(r.step_seconds * 1e3, 1); }},
    {"ERROR",
     [](const CompareOutcome& o, const RunOutcome&, double) {
       const std::optional<double>& error = o.prediction->time.error.value;
       return error ? "±" + percent_text(*error) : std::string("?");
     }},
    {"MFU",
     [](const CompareOutcome& o, const RunOutcome&, double) { return percent_text(o.prediction->model_flops_utilization, 1); }},
    {"MEMORY",
     [](const CompareOutcome&, const RunOutcome& r, double) {
       return bytes_of(r.planned_bytes) + (r.planned_host_bytes > 0 ? " +" + bytes_of(r.planned_host_bytes) + " host" : "");
     }},
    {"SENT/STEP", [](const CompareOutcome&, const RunOutcome& r, double) { return bytes_of(r.bytes_sent_per_step); }},
    {"COST/BTOK", cost_cell},
    {"J/BTOK", energy_cell},
    {"WAITS",
     [](const CompareOutcome& o, const RunOutcome&, double) {
       const StepTime& time = o.prediction->time;
       return percent_text((time.exposed() + time.bubble + time.copies) / time.seconds);
     }},
};

bool any_predicted(const std::vector<CompareOutcome>& outcomes) {
  return std::any_of(outcomes.begin(), outcomes.end(), [](const CompareOutcome& o) { return o.prediction.has_value(); });
}

/// Those that the outcomes have something to say in.
std::vector<NumberColumn> number_columns(const std::vector<CompareOutcome>& outcomes) {
  const auto any = [&](auto value) {
    return std::any_of(outcomes.begin(), outcomes.end(),
                       [&](const CompareOutcome& o) { return o.finished() && !std::isnan(value(o)); });
  };
  std::set<std::string_view> silent;
  if (!any([](const CompareOutcome& o) { return o.predicted_seconds; })) silent.insert("PREDICTED ms");
  if (!any([](const CompareOutcome& o) { return o.runs.front().cost; })) silent.insert("COST/BTOK");
  if (!any([](const CompareOutcome& o) { return o.runs.front().joules; })) silent.insert("J/BTOK");
  const std::span<const NumberColumn> all = any_predicted(outcomes) ? std::span<const NumberColumn>(predicted_columns)
                                                                    : std::span<const NumberColumn>(measured_columns);
  std::vector<NumberColumn> columns;
  std::copy_if(all.begin(), all.end(), std::back_inserter(columns),
               [&](const NumberColumn& column) { return !silent.contains(column.header); });
  return columns;
}

/// Names of the own metrics that all finished rows report.
std::vector<std::string> common_metrics(const std::vector<CompareOutcome>& outcomes) {
  std::vector<std::string> names;
  bool first = true;
  for (const CompareOutcome& outcome : outcomes) {
    if (!outcome.finished()) continue;
    const std::vector<OwnMetricValue>& metrics = outcome.runs.front().metrics;
    if (std::exchange(first, false)) std::ranges::transform(metrics, std::back_inserter(names), &OwnMetricValue::name);
    std::erase_if(
        names, [&](const std::string& name) { return std::ranges::find(metrics, name, &OwnMetricValue::name) == metrics.end(); });
  }
  return names;
}

std::string metric_cell(const CompareOutcome& outcome, const std::string& name) {
  if (!outcome.finished()) return {};
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", std::ranges::find(outcome.runs.front().metrics, name, &OwnMetricValue::name)->value);
  return text;
}

/// Labels of the other rows for which row `of` was run.
std::vector<std::string> stands_for(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                                    std::size_t of) {
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i != of && outcomes[i].same_program_as == of) labels.push_back(rows[i].label);
  }
  return labels;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

/// A line of the table: texts, which are aligned left and repeated when the table is continued, and numbers.
struct Line {
  std::vector<std::string> cells;
  std::string remark;  ///< behind the last cell
};

struct Columns {
  std::vector<std::size_t> widths;
  std::size_t texts = 0;

  explicit Columns(const std::vector<Line>& lines, std::size_t texts_of_line)
      : widths(lines.front().cells.size(), 0), texts(texts_of_line) {
    for (const Line& line : lines) {
      for (std::size_t c = 0; c < line.cells.size(); ++c) widths[c] = std::max(widths[c], width_of(line.cells[c]));
    }
  }
  /// The number column behind the last that fits beside the texts, from `first` on; at least one does.
  std::size_t end_of_block(std::size_t first, std::size_t columns) const {
    std::size_t used = 0, end = first;
    for (std::size_t c = 0; c < texts; ++c) used += widths[c] + 2;
    while (end < widths.size() && (end == first || columns == 0 || used + widths[end] <= columns)) used += widths[end++] + 2;
    return end;
  }
  std::string text_of(const Line& line, std::size_t first, std::size_t end) const {
    std::string text;
    const auto add = [&](std::size_t c) {
      const std::string space(widths[c] - width_of(line.cells[c]), ' ');
      text += (c == 0 ? "" : "  ") + (c < texts ? line.cells[c] + space : space + line.cells[c]);
    };
    for (std::size_t c = 0; c < texts; ++c) add(c);
    for (std::size_t c = first; c < end; ++c) add(c);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }
};

/// Those that rows were simulated for, each once.
std::vector<std::string> machines_of(const std::vector<CompareOutcome>& outcomes) {
  std::vector<std::string> machines;
  for (const CompareOutcome& outcome : outcomes) {
    if (outcome.prediction && std::find(machines.begin(), machines.end(), outcome.prediction->machine) == machines.end())
      machines.push_back(outcome.prediction->machine);
  }
  return machines;
}

/// Why errors of the table are not known, each reason once and on a line of its own.
std::string unknown_errors(const std::vector<CompareOutcome>& outcomes) {
  std::set<std::string> reasons;
  for (const CompareOutcome& outcome : outcomes) {
    if (outcome.finished() && outcome.prediction && !outcome.prediction->time.error.value)
      reasons.insert("?: for " + outcome.prediction->machine + " " + why_unknown(outcome.prediction->time.error) + ".\n");
  }
  std::string text;
  for (const std::string& reason : reasons) text += reason;
  return text;
}

/// The lines of a reason behind the first stand indented below it.
std::string remark_of(const CompareOutcome& outcome) {
  if (outcome.finished()) return {};
  std::string text = "  " + outcome.status + ": ";
  for (char c : outcome.reason) text += c == '\n' ? std::string("\n      ") : std::string(1, c);
  return text;
}

std::string legend(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  const auto any = [&](auto holds) {
    return std::any_of(outcomes.begin(), outcomes.end(), [&](const CompareOutcome& o) { return o.finished() && holds(o); });
  };
  std::string text =
      any_predicted(outcomes)
          ? "Simulated for " + joined(machines_of(outcomes)) +
                ", not measured. * faster than every other row of its model by more than 2%.\n"
                "ERROR: 95% of steps lie within it (?: not known). MEMORY: of the rank that needs the most. WAITS: of the\n"
                "step, compute waits for other ranks or the host.\n" +
                unknown_errors(outcomes) + scope_text(joined(machines_of(outcomes)))
          : "* faster than every other row of its model. ±95%: confidence interval over the repeats. BOUND: share of the\n"
            "measured rate of the model's largest linear. PARITY: final loss against the first row of the model.\n";
  const std::vector<std::string> units = loss_units(outcomes);
  if (std::ranges::any_of(units, [](const std::string& unit) { return unit != Loss::default_unit; }))
    text += "LOSS: of the last step, in " + joined(units) + ".\n";
  std::vector<AxisLinks> links;
  for (const CompareOutcome& outcome : outcomes) {
    if (outcome.prediction) links.insert(links.end(), outcome.prediction->links.begin(), outcome.prediction->links.end());
  }
  text += unknown_text(links);
  if (any([](const CompareOutcome& o) { return !std::isnan(o.predicted_seconds); }))
    text += "PREDICTED: a step as simulated for the machine, and how far that is from the measured one.\n";
  const bool costs = any([](const CompareOutcome&o) { return !std::isnan(o.runs.front().cost); }),
             energy = any([](const CompareOutcome&o) { return !std::isnan(o.runs.front().joules); });
  if (costs) text += "COST/BTOK: of a billion tokens, by --price.";
  if (energy)
    text += std::string(costs ? " " : "") + "J/BTOK: joules of all devices for a billion tokens, by " +
            (any_predicted(outcomes) ? "the powers of the machine's file." : "the power of rank 0's.");
  if (costs && !energy)
    text += any_predicted(outcomes) ? " Energy is not known: the machine's file has no power, or its limit alone."
                                    : " Energy was not measured: these devices do not tell their power.";
  if (costs || energy) text += "\n";
  if (any([](const CompareOutcome& o) { return figures_of(o).measured_rank > 0; }))
    text += "@3: of rank 3, which takes the most.\n";
  if (any([](const CompareOutcome& o) { return !o.runs.front().sent_is_counted; }))
    text += "~: the transport does not count what it sends; this is what the step's collectives need, if rings carry them.\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (const auto labels = stands_for(rows, outcomes, i); !labels.empty())
      text += "= " + rows[i].label + " is the same program as " + joined(labels) + ": one row for all of them.\n";
  }
  return text;
}

/// The --loss of a row, where rows have several.
std::string loss_of(const CompareRow& row) {
  for (const auto& [option, value] : row.varied) {
    if (option == "loss") return value;
  }
  return {};
}

}  // namespace

std::vector<double> parities(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::map<std::pair<std::string, std::string>, const CompareOutcome*> reference;  // by model and kind of loss
  std::vector<double> parity(rows.size(), unknown);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!outcomes[i].finished()) continue;
    const CompareOutcome& first = *reference.try_emplace({model_of(rows[i]), loss_of(rows[i])}, &outcomes[i]).first->second;
    const double loss = outcomes[i].runs.front().final_loss, of_first = first.runs.front().final_loss;
    if (outcomes[i].step_tokens == first.step_tokens) parity[i] = (loss - of_first) / of_first;
  }
  return parity;
}

std::string comparison_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, int columns) {
  std::vector<Line> lines(1);
  lines[0].cells.push_back("");
  for (const auto& [option, value] : rows.front().varied)
    lines[0].cells.push_back(option == "loss" ? "TRAINED ON" : upper(option));
  const std::size_t texts = lines[0].cells.size();
  const std::vector<NumberColumn> numbers = number_columns(outcomes);
  const std::vector<std::string> metrics = common_metrics(outcomes);
  for (const NumberColumn& column : numbers) lines[0].cells.emplace_back(column.header);
  for (const std::string& metric : metrics) lines[0].cells.push_back(upper(metric));
  const std::vector<double> parity = parities(rows, outcomes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (outcomes[i].same_program_as != i) continue;
    const bool best = winner_of(rows, outcomes, model_of(rows[i])) == i;
    const bool several = !stands_for(rows, outcomes, i).empty();
    Line line{{std::string(best ? "*" : " ") + (several ? "=" : "")}, remark_of(outcomes[i])};
    for (const auto& [option, value] : rows[i].varied) line.cells.push_back(value);
    const RunOutcome figures = outcomes[i].finished() ? figures_of(outcomes[i]) : RunOutcome();
    for (const NumberColumn& column : numbers)
      line.cells.push_back(outcomes[i].finished() ? column.cell(outcomes[i], figures, parity[i]) : std::string());
    for (const std::string& metric : metrics) line.cells.push_back(metric_cell(outcomes[i], metric));
    lines.push_back(std::move(line));
  }
  const Columns table(lines, texts);
  std::string text;
  for (std::size_t first = texts; first < lines[0].cells.size();) {
    const std::size_t end = table.end_of_block(first, static_cast<std::size_t>(std::max(columns, 0)));
    for (const Line& line : lines) text += table.text_of(line, first, end) + (first == texts ? line.remark : "") + "\n";
    first = end;
    if (first < lines[0].cells.size()) text += "\n";
  }
  return text + legend(rows, outcomes);
}

void write_comparison_archive(const std::string& path, const std::vector<CompareRow>& rows,
                              const std::vector<CompareOutcome>& outcomes) {
  std::vector<ComparisonColumn> columns;
  for (const auto& [option, value] : rows.front().varied) columns.push_back({option, ""});
  const std::string loss_unit = common_loss_unit(outcomes);
  for (const auto& [name, unit] : {std::pair{"status", ""},
                                   {"reason", ""},
                                   {"repeats", "1"},
                                   {"tokens_per_second", "1/s"},
                                   {"tokens_per_second_low", "1/s"},
                                   {"tokens_per_second_high", "1/s"},
                                   {"step_seconds", "s"},
                                   {"predicted_step_seconds", "s"},
                                   {"share_of_bound", "1"},
                                   {"planned_bytes", "B"},
                                   {"measured_peak_bytes", "B"},
                                   {"bytes_sent_per_step", "B"},
                                   {"bytes_sent_are_counted", "1"},
                                   {"final_loss", loss_unit.c_str()},
                                   {"cost_per_billion_tokens", "1"},
                                   {"joules_per_billion_tokens", "J"},
                                   {"parity", "1"},
                                   {"best", "1"},
                                   {"disturbance", ""},
                                   {"stands_for", ""}}) {
    columns.push_back({name, unit});
  }
  const std::vector<double> parity = parities(rows, outcomes);
  std::vector<ComparedRun> runs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CompareOutcome& outcome = outcomes[i];
    if (outcome.same_program_as != i) continue;
    const RunOutcome o = outcome.finished() ? figures_of(outcome) : RunOutcome{};
    const auto number = [&](double value) -> ComparisonValue { return outcome.finished() ? value : unknown; };
    ComparedRun run{.label = rows[i].label, .archive = "", .values = {}};
    for (const RunOutcome& repeat : outcome.runs) {
      if (run.archive.empty()) {
        run.archive = repeat.archive;
      } else {
        run.repeats.emplace_back(label_of_repeat(rows[i], repeat.repeat), repeat.archive);
      }
    }
    for (const auto& [option, value] : rows[i].varied) run.values.emplace_back(value);
    run.values.insert(run.values.end(), {outcome.status,
                                         outcome.reason,
                                         static_cast<double>(outcome.runs.size()),
                                         number(o.tokens_per_second),
                                         number(outcome.speed.low),
                                         number(outcome.speed.high),
                                         number(o.step_seconds),
                                         number(outcome.predicted_seconds),
                                         number(o.share_of_bound),
                                         number(o.planned_bytes),
                                         number(o.measured_bytes),
                                         number(o.bytes_sent_per_step),
                                         number(o.sent_is_counted ? 1 : 0),
                                         number(o.final_loss),
                                         number(o.cost),
                                         number(o.joules),
                                         parity[i],
                                         winner_of(rows, outcomes, model_of(rows[i])) == i ? 1.0 : 0.0,
                                         outcome.disturbance,
                                         joined(stands_for(rows, outcomes, i))});
    runs.push_back(std::move(run));
  }
  write_comparison(path, columns, runs);
}

}  // namespace consist::launch
