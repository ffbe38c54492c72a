// Over which links the axes of a plan go: the transport of each, and what the machine's file knows of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/export.h"
#include "consist/program.h"
#include "core/plan/plan.h"

namespace consist {

/// An axis of the plan's mesh.
struct AxisLinks {
  std::string axis;
  std::string transport;  ///< the name of its plugin
  bool crosses_nodes = false;
  bool is_automatic = false;  ///< --transport auto
  /// Why `auto` took no transport that is preferred to it: "not efa: ..."; else empty.
  std::string reason;
  /// A sentence for people where the machine knows nothing of the transport there, so that it counts with its links for none in
  /// particular; else empty.
  std::string unknown;
};

/// AxisLinks::unknown of axes of a mesh.
CONSIST_API std::string unknown_links(const CostModel& costs, AxisSet axes);

/// By axis; the plan is laid out.
CONSIST_API std::vector<AxisLinks> links_of(const Plan& plan);

/// "data.1 over nvlink within nodes, data.0 over socket across nodes (--transport auto; not efa: ...)"; empty without axes.
CONSIST_API std::string text_of(std::span<const AxisLinks> links);

/// AxisLinks::unknown of these, each once and on a line of its own; empty if the machines know all that is there.
CONSIST_API std::string unknown_text(std::span<const AxisLinks> links);

/// The transports of a plan as --transport takes them, where `auto` had a choice between several, so that a run elsewhere could
/// come to another one; else empty.
CONSIST_API std::string chosen_transports(const Plan& plan);

}  // namespace consist
