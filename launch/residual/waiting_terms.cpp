#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/residual/terms.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr double slower_link = 1.1;  // own seconds over predicted ones, from which the link is the cause

struct OwnSeconds {
  double measured = 0, predicted = 0, bytes = 0;
  double ratio() const { return predicted > 0 ? measured / predicted : 1; }
};

OwnSeconds own_seconds(const std::vector<InstructionGroup>& groups) {
  OwnSeconds sum;
  for (const InstructionGroup& group : groups) {
    sum.measured += group.own_seconds;
    sum.predicted += group.simulated_own_seconds;
    sum.bytes += group.bytes;
  }
  return sum;
}

/// "data.0+data.1" uses the paths of both.
std::string path_of(const Conditions& c, const std::string& axes) {
  for (const auto& [axis, path] : c.paths) {
    if (axes == axis || axes.starts_with(axis + "+") || axes.find("+" + axis) != std::string::npos) return " over " + path;
  }
  return "";
}

std::string link_text(const Sides& sides, const std::string& axis, const OwnSeconds& own, double waited_for_ranks) {
  const double measured = own.measured - waited_for_ranks;
  return "collectives over " + axis + path_of(sides.conditions, axis) + " take " + milliseconds_text(measured) + ", predicted " +
         milliseconds_text(own.predicted) + ": " + si_text(own.bytes / measured) + "B/s of each rank's input instead of " +
         si_text(own.bytes / own.predicted) + "B/s";
}

/// Explains one axis. `ranks`: seconds that rank 0 has to wait for slower ranks and that no axis has accounted for yet.
void add_axis(const Sides& sides, const std::string& part, double& ranks, std::vector<ResidualTerm>& terms) {
  const std::string axis = part.substr(part.find(':') + 1);
  const Conditions& c = sides.conditions;
  const std::vector<InstructionGroup> groups = sides.groups_of(part);
  double rest = sides.difference(part);
  const double least = least_share * sides.step.step_seconds;
  const OwnSeconds own = own_seconds(groups);
  const double for_ranks = std::clamp(rest, 0.0, ranks);
  if (for_ranks > least) {
    const SlowestRank slowest = slowest_rank(c);
    const bool experts = std::isfinite(c.expert_imbalance) && c.expert_imbalance > 1.1;
    std::string text = "rank " + std::to_string(slowest.rank) + " works " + percent_text(slowest.over_rank_0, 1) +
                       " longer than rank 0, which waits for it";
    if (experts) text += "; its experts have " + fixed_text(c.expert_imbalance, 2) + " times their share of the choices";
    terms.push_back({part, experts ? "experts" : "rank", for_ranks, text, largest_changes(groups)});
    ranks -= for_ranks;
    rest -= for_ranks;
  }
  if (std::abs(rest) <= least) {
    if (rest != 0) terms.push_back({part, "", rest, "", {}});
    return;
  }
  const double ratio = own.predicted > 0 ? (own.measured - for_ranks) / own.predicted : 1;
  if (rest > 0 && std::isfinite(c.expert_imbalance) && c.expert_imbalance > 1.1 &&
      axis.find(c.expert_axis) != std::string::npos) {
    terms.push_back({part, "experts", rest,
                     "the rank with the most choices has " + fixed_text(c.expert_imbalance, 2) + " times its share",
                     largest_changes(groups)});
  } else if (ratio > slower_link || ratio < 1 / slower_link) {
    terms.push_back({part, "link", rest, link_text(sides, axis, own, for_ranks), largest_changes(groups)});
  } else {
    terms.push_back({part, "overlap", rest,
                     "collectives over " + axis + " take as long as predicted; " +
                         (rest > 0 ? "less of them is hidden behind computing" : "more of them is hidden"),
                     largest_changes(groups)});
  }
}

/// The stage whose work takes the longest beside what was predicted for it.
std::string stage_text(const Json& classes) {
  double most = 0, least = 0;
  int rank = 0, stage = -1, n = 0;
  for (const Json& c : classes) {
    if (!c.contains("simulated_parts")) return "";
    double measured = 0, predicted = 0;
    for (const char* part : {"products", "attention", "memory_bound"}) {
      measured += c.at("parts").value(part, 0.0);
      predicted += c.at("simulated_parts").value(part, 0.0);
    }
    const double ratio = predicted > 0 ? measured / predicted - 1 : 0;
    if (stage < 0 || ratio > most) {
      most = ratio;
      stage = n;
      rank = c.at("rank").get<int>();
    }
    least = n == 0 ? ratio : std::min(least, ratio);
    ++n;
  }
  if (most - least < 0.02) return "";
  return "stage " + std::to_string(stage) + " (rank " + std::to_string(rank) + ") works " + percent_text(most, 1) +
         " longer than predicted, the fastest stage " + percent_text(least, 1);
}

void add_bubble(const Sides& sides, std::vector<ResidualTerm>& terms) {
  const double difference = sides.difference("bubble");
  if (difference == 0) return;
  const std::string text = stage_text(sides.step.timeline->at("classes"));
  const bool tells = !text.empty() && difference > least_share * sides.step.step_seconds;
  terms.push_back({"bubble", tells ? "stage" : "", difference, tells ? text : "", {}});
}

void add_copies(const Sides& sides, std::vector<ResidualTerm>& terms) {
  const double difference = sides.difference("copies");
  if (difference == 0) return;
  const std::vector<InstructionGroup> groups = sides.groups_of("copies");
  const OwnSeconds own = own_seconds(groups);
  if (std::abs(difference) <= least_share * sides.step.step_seconds) {
    terms.push_back({"copies", "", difference, "", {}});
  } else if (own.ratio() > slower_link || own.ratio() < 1 / slower_link) {
    terms.push_back({"copies", "host-link", difference,
                     "copies between host and device move " + si_text(own.bytes / own.measured) + "B/s instead of " +
                         si_text(own.bytes / own.predicted) + "B/s",
                     largest_changes(groups)});
  } else {
    terms.push_back({"copies", "overlap", difference, "copies take as long as predicted; other amounts of them are hidden", {}});
  }
}

/// Gaps of the timed steps, and what the steps of the steady state took longer or shorter than these.
void add_host(const Sides& sides, std::vector<ResidualTerm>& terms) {
  const Conditions& c = sides.conditions;
  double rest = sides.difference("gaps") + sides.difference("untimed");
  const double least = least_share * sides.step.step_seconds;
  const double computing = sides.measured("products") + sides.measured("attention");
  // The clock of a device falls while it warms up: steps of the steady state then take longer than those that were timed.
  if (std::isfinite(c.clock) && std::isfinite(c.timed_clock) && c.timed_clock > 1.01 * c.clock && rest > least) {
    const double by_clock = std::min(rest, computing * (c.timed_clock / c.clock - 1));
    terms.push_back({"host",
                     "clock",
                     by_clock,
                     "the clock fell from " + si_text(c.timed_clock) + "Hz in the steps that were timed to " + si_text(c.clock) +
                         "Hz in the others",
                     {}});
    rest -= by_clock;
  }
  if (rest == 0) return;
  std::string text;
  if (std::abs(rest) > least) {
    text = milliseconds_text(sides.measured("gaps")) + " of a timed step nothing ran and nothing was awaited; other steps took " +
           milliseconds_text(std::abs(sides.measured("untimed"))) + (sides.measured("untimed") < 0 ? " less" : " more");
    if (c.other_work > 0.05) text += "; others had " + percent_text(c.other_work) + " of the host's processors";
  }
  terms.push_back({"host", rest > least ? "host" : "", rest, text, {}});
}

void add_data(const Sides& sides, std::vector<ResidualTerm>& terms) {
  const double seconds = sides.conditions.data_seconds;
  if (seconds <= 0) return;
  const bool tells = seconds > least_share * sides.step.step_seconds;
  terms.push_back({"data",
                   tells ? "data" : "",
                   seconds,
                   tells ? "rank 0 waits " + milliseconds_text(seconds) + " for the data of a step" : "",
                   {}});
}

}  // namespace

std::vector<ResidualTerm> communication_terms(const Sides& sides) {
  std::vector<std::string> parts;
  for (const PartSeconds* side : {&sides.step.parts, &sides.step.simulated_parts}) {
    for (const auto& [part, seconds] : *side) {
      if (part.starts_with("communication:") && std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [&](const std::string& a, const std::string& b) { return sides.difference(a) > sides.difference(b); });
  const SlowestRank slowest = slowest_rank(sides.conditions);
  double ranks = slowest.over_rank_0 > 0.01 ? slowest.over_rank_0 * sides.conditions.rank_work.front() : 0;
  std::vector<ResidualTerm> terms;
  for (const std::string& part : parts) add_axis(sides, part, ranks, terms);
  return terms;
}

std::vector<ResidualTerm> waiting_terms(const Sides& sides) {
  std::vector<ResidualTerm> terms;
  add_bubble(sides, terms);
  add_copies(sides, terms);
  add_host(sides, terms);
  add_data(sides, terms);
  return terms;
}

}  // namespace consist::launch
