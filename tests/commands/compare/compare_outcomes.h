// Outcomes of a comparison's rows, of which the tests of its table and its texts are made.
#pragma once

#include <vector>

#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"

namespace consist::launch::test {

/// Rows of options that need no plugin's table.
inline std::vector<CompareRow> rows_of(const std::vector<std::string>& arguments) {
  return expand_rows(arguments, [](const std::string& name) {
    return name == "deepspeed-set"                                       ? ListRule::keyed
           : name == "checkpoint" || name == "export" || name == "trace" ? ListRule::single
                                                                         : ListRule::commas;
  });
}

/// A row that finished with these rates, one per repeat. `row`: its index.
inline CompareOutcome finished(std::size_t row, const std::vector<double>& rates, double memory = 1e9) {
  CompareOutcome outcome{.status = "finished", .same_program_as = row};
  for (double rate : rates) {
    outcome.runs.push_back({.status = "finished",
                            .repeat = static_cast<int>(outcome.runs.size()) + 1,
                            .tokens_per_second = rate,
                            .step_seconds = 1,
                            .measured_bytes = memory,
                            .bytes_sent_per_step = 1e6,
                            .final_loss = 1});
  }
  settle(std::span(&outcome, 1));
  return outcome;
}

inline CompareOutcome not_finished(std::size_t row, const std::string& status, const std::string& reason = {}) {
  return {.status = status, .reason = reason, .same_program_as = row};
}

/// The same with other work beside its first `runs` runs.
inline CompareOutcome disturbed(CompareOutcome outcome, std::size_t runs) {
  for (std::size_t i = 0; i < runs; ++i) outcome.runs[i].processors = ProcessorUse{.own = 0.5, .others = 0.48, .idle = 0.02};
  settle(std::span(&outcome, 1));
  return outcome;
}

}  // namespace consist::launch::test
