#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/residual/terms.h"

namespace consist::launch {
namespace {

/// Kernels of one kind of work are alike if they are this close to their common ratio; others are explained one by one. Those
/// that change the step by more than `much` of it must be closer.
constexpr double alike = 0.12, alike_if_much = 0.05, much = 0.01;
/// Less than this common change is the error of any prediction, where its own error is not known.
constexpr double least_common = 0.02;
/// From this share of the step on, gaps tell that the host starts work late. The times of instructions that are shorter than
/// `short_seconds` then contain its delays.
constexpr double late_gaps = 0.05, short_seconds = 2e-4;

/// Median of measured over predicted seconds, weighted by the predicted ones. 1 without any.
double common_ratio(const std::vector<InstructionGroup>& groups) {
  std::vector<std::pair<double, double>> ratios;
  double total = 0;
  for (const InstructionGroup& group : groups) {
    if (group.simulated_seconds <= 0 || group.seconds <= 0) continue;
    ratios.emplace_back(group.seconds / group.simulated_seconds, group.simulated_seconds);
    total += group.simulated_seconds;
  }
  std::sort(ratios.begin(), ratios.end());
  double below = 0;
  for (const auto& [ratio, weight] : ratios) {
    below += weight;
    if (below >= total / 2) return ratio;
  }
  return 1;
}

std::string times_text(double ratio) {
  return fixed_text(ratio, ratio < 1.1 && ratio > 0.9 ? 3 : 2) + " times";
}

/// By how much work of a kind takes longer (or shorter) alike, and why.
struct Common {
  double ratio = 1;
  std::string cause, text;
};
struct Commons {
  Common computing, moving;  ///< products and attention; memory-bound ops and the optimizer
};

bool host_is_late(const Sides& sides) {
  return !sides.conditions.is_processor && sides.difference("gaps") > late_gaps * sides.step.step_seconds;
}

bool is_short(const InstructionGroup& group) {
  return group.count > 0 && group.simulated_seconds / group.count < short_seconds;
}

std::string clock_text(const Conditions& c) {
  if (!std::isfinite(c.clock)) return "";
  std::string text = "; the clock was " + si_text(c.clock) + "Hz";
  if (std::isfinite(c.machine_clock)) text += ", the machine's file was measured at " + si_text(c.machine_clock) + "Hz";
  return text;
}

Commons commons_of(const Sides& sides) {
  const Conditions& c = sides.conditions;
  std::vector<InstructionGroup> products = sides.groups_of("products"), moved_groups = sides.groups_of("memory_bound");
  if (sides.predicted("products") < 0.02 * sides.step.step_seconds) products = sides.groups_of("attention");
  if (sides.predicted("memory_bound") < 0.01 * sides.step.step_seconds) moved_groups = sides.groups_of("optimizer");
  Common computing{.ratio = common_ratio(products), .cause = {}, .text = {}},
      moving{.ratio = common_ratio(moved_groups), .cause = {}, .text = {}};
  const double slower = computing.ratio - 1, moved = moving.ratio - 1;
  const double rank = slowest_rank(c).rank_0_over;
  const std::string alike_text = "products take " + times_text(computing.ratio) + " as long as predicted, alike";
  const double least = sides.step_error.value_or(least_common);
  const bool as_a_whole = slower > least && moved > least && moved > 0.5 * slower && slower > 0.5 * moved;
  if (rank > 0.02 && (slower > 0.5 * rank || moved > 0.5 * rank)) {
    computing.cause = moving.cause = "rank";
    computing.text = moving.text =
        "rank 0 works " + percent_text(rank, 1) + " longer than the other ranks do, all kinds of work together";
  } else if (as_a_whole) {
    computing.cause = moving.cause = "device";
    computing.text = moving.text = alike_text + ", memory-bound ops " + times_text(moving.ratio);
    if (c.other_work > 0.05) computing.text += "; others had " + percent_text(c.other_work) + " of the host's processors";
  } else {
    computing.cause = "clock";
    computing.text = alike_text + clock_text(c);
    moving.cause = "memory";
    moving.text = "memory-bound ops take " + times_text(moving.ratio) + " as long as predicted, alike";
  }
  if (std::abs(slower) < least) computing.cause.clear();
  if (std::abs(moved) < least) moving.cause.clear();
  return {std::move(computing), std::move(moving)};
}

bool of_experts(const InstructionGroup& group) {
  return group.text.starts_with("moe_") || group.text.find("grouped") != std::string::npos ||
         group.text.find("experts") != std::string::npos;
}

/// Experts of rank 0 that got more or fewer rows than their share, or tokens that crowd on few experts.
bool experts_tell(const InstructionGroup& group, const Conditions& c) {
  if (!of_experts(group)) return false;
  return std::isfinite(c.own_experts) && std::abs(c.own_experts - 1) > 0.05;  // one rank alone has all rows, whatever the load
}

std::string experts_text(const Conditions& c) {
  std::string text = "the most chosen expert has " + fixed_text(c.expert_load, 2) + " times the mean of its layer's choices";
  if (std::isfinite(c.own_experts)) text += ", rank 0's experts " + fixed_text(c.own_experts, 2) + " times their share";
  return text;
}

/// Terms of one part: the common change, kernels that differ from it, and the rest.
void add_terms(const Sides& sides, const std::string& part, const Common& common, std::vector<ResidualTerm>& terms) {
  const double ratio = common.ratio;
  const double least = least_share * sides.step.step_seconds;
  const std::vector<InstructionGroup> groups = sides.groups_of(part);
  const bool late = host_is_late(sides);
  double kernels = 0, experts = 0, delays = 0;
  std::vector<InstructionGroup> own, crowded, alike_ones;
  for (const InstructionGroup& group : groups) {
    const double excess = group.seconds - ratio * group.simulated_seconds;
    const double close = std::abs(excess) > much * sides.step.step_seconds ? alike_if_much : alike;
    const bool differs = std::abs(excess) > close * ratio * group.simulated_seconds && std::abs(excess) > least / 2;
    if (late && is_short(group) && group.seconds > group.simulated_seconds) {
      delays += group.seconds - group.simulated_seconds;
    } else if (!differs) {
      alike_ones.push_back(group);
    } else if (experts_tell(group, sides.conditions)) {
      crowded.push_back(group);
      experts += excess;
    } else {
      own.push_back(group);
      kernels += excess;
    }
  }
  double rest = sides.difference(part) - kernels - experts - delays;
  if (delays > 0)
    terms.push_back(
        {part, "host", delays, "the host starts work late, and the times of short instructions contain its delays", {}});
  if (!own.empty()) {
    const InstructionGroup& first = *std::max_element(own.begin(), own.end(), [](const auto& a, const auto& b) {
      return std::abs(a.seconds - a.simulated_seconds) < std::abs(b.seconds - b.simulated_seconds);
    });
    terms.push_back(
        {part, "kernel", kernels,
         first.text + " takes " +
             (first.simulated_seconds > 0 ? times_text(first.seconds / first.simulated_seconds) + " as long as predicted"
                                          : milliseconds_text(first.seconds) + ", and nothing was predicted") +
             ", other work of its kind " + times_text(ratio),
         largest_changes(own)});
  }
  if (!crowded.empty()) terms.push_back({part, "experts", experts, experts_text(sides.conditions), largest_changes(crowded)});
  const double shared = (ratio - 1) * sides.predicted(part);
  if (!common.cause.empty() && std::abs(shared) > least && shared * rest > 0) {
    terms.push_back({part, common.cause, rest, common.text, largest_changes(alike_ones)});
    rest = 0;
  }
  if (rest != 0) terms.push_back({part, "", rest, "", largest_changes(alike_ones)});
}

}  // namespace

std::vector<ResidualTerm> compute_terms(const Sides& sides) {
  std::vector<ResidualTerm> terms;
  const Commons commons = commons_of(sides);
  for (const char* part : {"products", "attention"}) add_terms(sides, part, commons.computing, terms);
  for (const char* part : {"memory_bound", "optimizer"}) add_terms(sides, part, commons.moving, terms);
  return terms;
}

}  // namespace consist::launch
