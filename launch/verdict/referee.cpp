#include "launch/verdict/referee.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/text.h"
#include "launch/cli/exit_status.h"
#include "launch/verdict/amounts.h"
#include "launch/verdict/request.h"
#include "launch/verdict/verdict_json.h"
#include "launch/verdict/words.h"

namespace consist::launch {
namespace {

Side side_of(const CompareRow& row, const CompareOutcome& outcome) {
  std::vector<std::string> archives;
  for (const RunOutcome& run : outcome.runs) archives.push_back(run.archive);
  return read_side(row.label, archives);
}

bool was_run(const std::vector<CompareOutcome>& outcomes, std::size_t row) {
  return outcomes[row].finished() && outcomes[row].same_program_as == row;
}

bool is_decided(const Verdict& verdict) {
  if (!verdict.speed().comparable && !prevented_by(verdict.differences, "speed").empty()) return true;
  return verdict.request.slower ? verdict.exit_status() != exit_unclear : verdict.speed().call != Call::unclear;
}

}  // namespace

Referee::Referee(VerdictRequest request, std::optional<Side> reference, double until_sure)
    : request_(request), until_sure_(until_sure), reference_(std::move(reference)) {}

Side Referee::reference_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) const {
  return reference_ ? *reference_ : side_of(rows[*reference_row_], outcomes[*reference_row_]);
}

bool Referee::look(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  if (!reference_ && !reference_row_) {
    for (std::size_t i = 0; i < rows.size() && !reference_row_; ++i) {
      if (was_run(outcomes, i)) reference_row_ = i;
    }
    if (!reference_row_) return false;
  }
  const Side reference = reference_of(rows, outcomes);
  bool open = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!was_run(outcomes, i) || i == reference_row_) continue;
    auto ruling = std::find_if(rulings_.begin(), rulings_.end(), [&](const Ruling& known) { return known.row == i; });
    if (ruling == rulings_.end()) ruling = rulings_.insert(ruling, Ruling{.row = i, .verdict = {}});
    if (ruling->decided) continue;
    VerdictRequest request = request_;
    request.confidence = level_at_look(request_.confidence, ++ruling->looks);
    ruling->verdict = judge(reference, side_of(rows[i], outcomes[i]), request, false);
    ruling->decided = is_decided(ruling->verdict);
    open = open || !ruling->decided;
  }
  return open;
}

bool Referee::wants(std::size_t row) const {
  if (row == reference_row_) return true;
  return std::any_of(rulings_.begin(), rulings_.end(),
                     [&](const Ruling& ruling) { return ruling.row == row && !ruling.decided; });
}

std::string Referee::text(const std::vector<CompareRow>& rows) const {
  if (rulings_.empty()) return {};
  std::string text = "Verdicts against A, " + (reference_ ? reference_->name : rows[*reference_row_].label) +
                     " (all looks of a row together err in " + fixed_text(100 * (1 - request_.confidence), 1) +
                     "% of rows at most; docs/verdict.md):\n";
  for (const Ruling& ruling : rulings_) {
    const Verdict& verdict = ruling.verdict;
    text += "  B, " + rows[ruling.row].label + ": " + sentence_of(verdict.speed(), verdict.request.confidence) + ", after " +
            std::to_string(ruling.looks) + (ruling.looks == 1 ? " look, " : " looks, ") + std::to_string(verdict.b.runs.size()) +
            " runs\n";
    if (const std::string gate = gate_text(verdict); !gate.empty()) text += "    " + gate + "\n";
  }
  return text;
}

nlohmann::ordered_json Referee::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Ruling& ruling : rulings_) {
    const nlohmann::ordered_json whole = json_of(ruling.verdict);
    list.push_back({{"row", ruling.row},
                    {"against", reference_row_ ? nlohmann::ordered_json(*reference_row_) : nlohmann::ordered_json(nullptr)},
                    {"looks", ruling.looks},
                    {"decided", ruling.decided},
                    {"confidence", request_.confidence},
                    {"interval_confidence", ruling.verdict.request.confidence},
                    {"differences", whole.at("differences")},
                    {"judgements", whole.at("judgements")},
                    {"status", whole.at("status")}});
  }
  return list;
}

int Referee::exit_status() const {
  int status = 0;
  for (const Ruling& ruling : rulings_) {
    const int own = ruling.verdict.exit_status();
    if (own == exit_failed || status == 0) status = own;
  }
  return status;
}

std::optional<Referee> read_referee(const CommandLine& line) {
  const VerdictRequest request = read_verdict_request(line);
  const char* const needing = line.has("slower")       ? "--slower"
                              : line.has("within")     ? "--within"
                              : line.has("confidence") ? "--confidence"
                                                       : nullptr;
  if (!line.has("against") && !line.has("until-sure")) {
    if (needing == nullptr) return {};
    throw UsageError(std::string(needing) +
                     " is of a verdict on the rows, which --against ARCHIVE or --until-sure DURATION asks for");
  }
  const double until_sure = line.has("until-sure") ? seconds_of("until-sure", line.text("until-sure")) : 0;
  if (!line.has("against")) return Referee(request, {}, until_sure);
  return Referee(request, read_side(line.text("against")), until_sure);
}

}  // namespace consist::launch
