#include "launch/verdict/words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "consist/text.h"
#include "core/base/one_line.h"
#include "core/base/quantity_text.h"
#include "launch/cli/exit_status.h"

namespace consist::launch {
namespace {

/// "2%", "1.5%", "99.9%".
std::string fraction_text(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g%%", 100 * fraction);
  return text;
}

std::string value_text(const Judgement& judgement, double value) {
  if (std::isnan(value)) return "-";
  if (judgement.quantity == "memory") return bytes_text(static_cast<std::int64_t>(value));
  if (judgement.quantity == "loss") return fixed_text(value, 4);
  return si_text(value);
}

std::string name_of(const Judgement& judgement) {
  if (judgement.quantity == "speed") return "speed, tokens/s";
  if (judgement.quantity == "memory") return "peak memory";
  if (judgement.quantity == "energy") return "energy, J/BTOK";
  if (judgement.last_step == 0) return "loss";
  return "loss, steps " + std::to_string(judgement.first_step) + " to " + std::to_string(judgement.last_step);
}

std::string interval_text(const Contrast& contrast) {
  if (!contrast.known()) return "-";
  if (contrast.method == Method::exact) return "exact";
  return change_text(contrast.low) + " to " + change_text(contrast.high);
}

struct Row {
  std::string name, a, b, change, interval, call;
};

std::vector<Row> rows_of(const Verdict& verdict) {
  std::vector<Row> rows{{"", "A", "B", "B over A", fraction_text(verdict.request.confidence) + " interval", ""}};
  for (const Judgement& judgement : verdict.judgements) {
    if (std::isnan(judgement.a) && judgement.quantity == "energy") continue;  // most devices do not tell
    rows.push_back({name_of(judgement), value_text(judgement, judgement.a), value_text(judgement, judgement.b),
                    std::isnan(judgement.contrast.ratio) ? "-" : change_text(judgement.contrast.ratio),
                    interval_text(judgement.contrast), word_of(judgement)});
  }
  return rows;
}

std::string table_text(const Verdict& verdict) {
  const std::vector<Row> rows = rows_of(verdict);
  std::size_t widths[5]{};
  const auto cells = [](const Row& row) { return std::vector<std::string>{row.name, row.a, row.b, row.change, row.interval}; };
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < 5; ++i) widths[i] = std::max(widths[i], cells(row)[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < 5; ++i) {
      const std::string cell = cells(row)[i], blanks(widths[i] - cell.size(), ' ');
      line += (i == 0 ? "" : "  ") + (i == 0 ? cell + blanks : blanks + cell);
    }
    line += row.call.empty() ? "" : "  " + row.call;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

std::string difference_text(const Difference& difference) {
  return one_line(difference.name) + ": " + one_line(difference.a) + " (A), " + one_line(difference.b) + " (B)";
}

/// Titles and lines of the three kinds of differences.
std::vector<std::pair<std::string, std::vector<std::string>>> sections_of(const Verdict& verdict) {
  std::vector<std::pair<std::string, std::vector<std::string>>> sections{
      {"Not comparable", {}}, {"Conditions that differ", {}}, {"Options that differ", {}}};
  for (const Difference& difference : verdict.differences) {
    const std::string line = difference_text(difference);
    if (!difference.prevents.empty()) {
      sections[0].second.push_back(line + "; prevents: " + list_of(difference.prevents));
    } else {
      sections[difference.kind == "option" ? 2 : 1].second.push_back(line);
    }
  }
  return sections;
}

std::string side_text(const Side& side) {
  return one_line(side.name) + ", " + std::to_string(side.runs.size()) + (side.runs.size() == 1 ? " run" : " runs");
}

std::string ms(double seconds) {
  return fixed_text(1e3 * seconds, std::abs(seconds) < 0.001 ? 3 : 2);
}

std::string signed_ms(double seconds) {
  return (seconds < 0 ? "" : "+") + ms(seconds);
}

/// Lines of the reason; none if there is nothing to explain.
std::vector<std::string> reason_lines(const Verdict& verdict) {
  const SpeedReason& reason = verdict.reason;
  if (!reason.problem.empty()) return {"no reason: " + reason.problem};
  const bool per_tokens = verdict.a.runs.front().outcome.step_tokens != verdict.b.runs.front().outcome.step_tokens;
  std::vector<std::string> lines{std::string(per_tokens ? "time of as many tokens as a step of A has" : "step") + ": " +
                                 ms(reason.step_a) + " ms (A), " + ms(reason.step_b) + " ms (B), " +
                                 signed_ms(reason.step_b - reason.step_a) + " ms, of which" +
                                 (reason.simulated ? " (by simulated parts)" : "")};
  for (const PartChange& part : reason.parts) {
    std::string name = part.part;
    std::replace(name.begin(), name.end(), '_', ' ');
    lines.push_back("  " + signed_ms(part.change()) + " ms " + one_line(name));
  }
  if (!reason.instructions.empty()) lines.emplace_back("instructions that changed most:");
  for (const PartChange& item : reason.instructions)
    lines.push_back("  " + signed_ms(item.change()) + " ms " + one_line(item.text) + " (" + ms(item.a) + " to " + ms(item.b) +
                    ")");
  for (const auto& [name, residual] : {std::pair{"A: ", &verdict.residual_a}, {"B: ", &verdict.residual_b}}) {
    if (!residual->empty()) lines.push_back(name + *residual);
  }
  return lines;
}

std::vector<std::string> method_lines(const Verdict& verdict) {
  std::vector<std::string> lines;
  for (const Judgement& judgement : verdict.judgements) {
    if (!judgement.contrast.known() || judgement.assumption.empty() || judgement.contrast.method == Method::exact) continue;
    const double spread = judgement.contrast.run_spread;
    lines.push_back(judgement.quantity + ": " + judgement.assumption +
                    (std::isnan(spread) ? "" : "; standard deviation between runs " + fraction_text(spread)));
  }
  return lines;
}

std::string head_of(const Verdict& verdict) {
  return sentence_of(verdict.speed(), verdict.request.confidence) + ".";
}

}  // namespace

std::string change_text(double ratio) {
  const double percent = 100 * (ratio - 1);
  if (std::abs(percent) < 0.0005) return "0%";
  const int decimals = std::abs(percent) >= 99.5 ? 0 : std::abs(percent) >= 0.095 ? 1 : 3;
  return (percent > 0 ? "+" : "") + fixed_text(percent, decimals) + "%";
}

std::string sentence_of(const Judgement& judgement, double confidence) {
  const std::string interval = fraction_text(confidence) + " interval of the change: " + interval_text(judgement.contrast);
  const std::string subject = judgement.quantity == "speed" ? "B" : "B's " + judgement.quantity;
  const std::string change = change_text(judgement.contrast.ratio);
  switch (judgement.call) {
    case Call::unclear:
      return (judgement.quantity == "speed" ? "It cannot be told whether B is faster or slower than A: "
                                            : subject + " cannot be told: ") +
             judgement.problem + (judgement.contrast.known() ? " (" + change + ", " + interval + ")" : "");
    case Call::same:
      return subject + (judgement.quantity == "speed" ? " is as fast as A within " : " is the same as A's within ") +
             fraction_text(judgement.within) + " (" + interval + ")";
    default:
      return subject + " is " + word_of(judgement) + (judgement.quantity == "speed" ? " than A: " : ": ") + change + " (" +
             interval + ")";
  }
}

std::string gate_text(const Verdict& verdict) {
  if (!verdict.request.slower) return {};
  const std::string by = "slower than A by more than " + fraction_text(*verdict.request.slower);
  const int status = verdict.exit_status();
  if (status == 0) return "--slower: B is not " + by + ".";
  return status == exit_unclear ? "--slower: it cannot be told whether B is " + by + "." : "--slower: B is " + by + ".";
}

std::string verdict_text(const Verdict& verdict) {
  std::string text = "A: " + side_text(verdict.a) + "\nB: " + side_text(verdict.b) + "\n";
  for (const auto& [title, lines] : sections_of(verdict)) {
    if (lines.empty()) continue;
    text += title + ":\n";
    for (const std::string& line : lines) text += "  " + line + "\n";
  }
  if (verdict.differences.empty()) text += "One configuration, on one machine, with the same versions.\n";
  for (const std::string& note : verdict.notes) text += "note: " + note + "\n";
  text += "\n" + head_of(verdict) + "\n";
  if (const std::string gate = gate_text(verdict); !gate.empty()) text += gate + "\n";
  text += "\n" + table_text(verdict);
  for (std::size_t i = 1; i < verdict.judgements.size(); ++i) {
    const Judgement& judgement = verdict.judgements[i];
    if (!judgement.problem.empty() && judgement.quantity != "energy")
      text += judgement.quantity + ": " + judgement.problem + "\n";
  }
  text += "\n";
  for (const std::string& line : reason_lines(verdict)) text += line + "\n";
  for (const std::string& line : method_lines(verdict)) text += line + "\n";
  return text;
}

std::string verdict_markdown(const Verdict& verdict) {
  const auto cell = [](std::string text) {
    std::string escaped;
    for (const char c : text) escaped += c == '|' || c == '<' || c == '*' || c == '`' ? std::string("\\") + c : std::string(1, c);
    return escaped;
  };
  std::string text;
  for (const auto& [title, lines] : sections_of(verdict)) {
    if (lines.empty()) continue;
    text += title + ":\n\n";
    for (const std::string& line : lines) text += "- " + cell(line) + "\n";
    text += "\n";
  }
  for (const std::string& note : verdict.notes) text += "- note: " + cell(note) + "\n";
  text += (verdict.notes.empty() ? "**" : "\n**") + cell(head_of(verdict)) + "**\n\n";
  if (const std::string gate = gate_text(verdict); !gate.empty()) text += gate + "\n\n";
  bool first = true;
  for (const Row& row : rows_of(verdict)) {
    text += "| " + cell(row.name) + " | " + row.a + " | " + row.b + " | " + row.change + " | " + row.interval + " | " +
            cell(row.call) + " |\n";
    if (first) text += "|---|---:|---:|---:|---:|---|\n";
    first = false;
  }
  text += "\nA: " + cell(side_text(verdict.a)) + ". B: " + cell(side_text(verdict.b)) + ".\n";
  text += "\n<details><summary>Reason and method</summary>\n\n```\n";
  for (const std::string& line : reason_lines(verdict)) text += line + "\n";
  for (const std::string& line : method_lines(verdict)) text += line + "\n";
  return text + "```\n\n</details>\n";
}

}  // namespace consist::launch
