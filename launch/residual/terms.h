// The terms of a residual, part by part: each function explains the difference of some parts by what was seen beside it.
#pragma once

#include <optional>
#include <vector>

#include "launch/residual/residual.h"

namespace consist::launch {

/// The parts of a step as predicted and as measured, with their groups.
struct Sides {
  const StepParts& step;
  const Conditions& conditions;
  std::optional<double> step_error;  ///< of predictions of such steps; nothing: not known

  double predicted(const std::string& part) const;
  double measured(const std::string& part) const;
  double difference(const std::string& part) const { return measured(part) - predicted(part); }
  std::vector<InstructionGroup> groups_of(const std::string& part) const;
};

/// A difference of less than this share of the step is explained by nothing.
inline constexpr double least_share = 0.002;

/// Products, attention, memory-bound ops and the optimizer.
std::vector<ResidualTerm> compute_terms(const Sides& sides);
/// Exposed communication, by axis.
std::vector<ResidualTerm> communication_terms(const Sides& sides);
/// Copies, the bubble, the host and the data.
std::vector<ResidualTerm> waiting_terms(const Sides& sides);

/// The groups with the largest changes, at most three.
std::vector<ResidualGroup> largest_changes(const std::vector<InstructionGroup>& groups);

/// By how much the slowest rank's work takes longer than rank 0's (a fraction of it), and which rank that is; 0 where ranks are
/// as fast, or that is not known.
struct SlowestRank {
  int rank = 0;
  double over_rank_0 = 0;  ///< its work over rank 0's, less 1
  double rank_0_over = 0;  ///< rank 0's work over the others' median, less 1; 0 with one rank
};
SlowestRank slowest_rank(const Conditions& conditions);

}  // namespace consist::launch
