#include "core/plan/links.h"

#include <algorithm>
#include <set>

#include "consist/cost.h"

namespace consist {
namespace {

CostModel costs_of(const Plan& plan) {
  return {plan.target().machine, plan.layout().mesh, plan.transports().by_axis};
}

std::string names_of(const Machine& machine) {
  std::string names;
  for (const TransportLinks& links : machine.transports) names += (names.empty() ? "" : ", ") + links.transport;
  return names.empty() ? "none" : names;
}

}  // namespace

std::string unknown_links(const CostModel& costs, AxisSet axes) {
  if (costs.knows_links(axes)) return {};
  const std::string &transport = costs.transport(axes), &machine = costs.machine().name;
  const bool crosses = costs.crosses_nodes(axes);
  return "How fast '" + transport + "' is " + (crosses ? "between nodes" : "within a node") + " of " + machine +
         " is not known (known: " + names_of(costs.machine()) +
         "): it counts as links without a transport. Measure it with `consist calibrate --transport " + transport +
         "`, or give " + transport + (crosses ? "-network" : "-node") + "=BYTES/S behind --machine.";
}

std::vector<AxisLinks> links_of(const Plan& plan) {
  const CostModel costs = costs_of(plan);
  const PlannedTransports& transports = plan.transports();
  std::vector<AxisLinks> all;
  for (int axis = 0; axis < plan.layout().mesh.axes(); ++axis) {
    const bool crosses = costs.crosses_nodes(axis);
    const bool is_automatic = transports.asked[static_cast<std::size_t>(axis)] == automatic_transport;
    all.push_back({plan.layout().mesh.axis(axis).name, costs.transport(axis), crosses, is_automatic,
                   is_automatic ? transports.automatic.reasons[crosses] : "", unknown_links(costs, axis)});
  }
  return all;
}

std::string text_of(std::span<const AxisLinks> links) {
  std::string text, reasons;
  bool is_automatic = false;
  for (const AxisLinks& of_axis : links) {
    text += (text.empty() ? "" : ", ") + of_axis.axis + " over " + of_axis.transport +
            (of_axis.crosses_nodes ? " across nodes" : " within nodes");
    is_automatic = is_automatic || of_axis.is_automatic;
    if (!of_axis.reason.empty() && reasons.find(of_axis.reason) == std::string::npos) reasons += "; " + of_axis.reason;
  }
  return is_automatic ? text + " (--transport auto" + reasons + ")" : text;
}

std::string unknown_text(std::span<const AxisLinks> links) {
  std::set<std::string> said;
  std::string text;
  for (const AxisLinks& of_axis : links) {
    if (!of_axis.unknown.empty() && said.insert(of_axis.unknown).second) text += of_axis.unknown + "\n";
  }
  return text;
}

std::string chosen_transports(const Plan& plan) {
  const CostModel costs = costs_of(plan);
  const PlannedTransports& transports = plan.transports();
  bool is_open = false;
  for (int axis = 0; axis < plan.layout().mesh.axes(); ++axis) {
    const bool is_automatic = transports.asked[static_cast<std::size_t>(axis)] == automatic_transport;
    is_open = is_open || (is_automatic && transports.automatic.is_open[costs.crosses_nodes(axis)]);
  }
  return is_open ? option_text(transports, costs, plan.layout().mesh) : "";
}

}  // namespace consist
