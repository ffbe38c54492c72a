// Over which links the axes of a plan go: the transport of each, and what the machine's file knows of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/export.h"
#include "consist/job.h"
#include "consist/program.h"
#include "core/plan/plan.h"

namespace consist {

/// An axis of the plan's mesh.
struct AxisLinks {
  std::string axis;
  std::string transport;  ///< by --transport; empty: not named, and the axis has the machine's links for none in particular
  bool crosses_nodes = false;
  /// A sentence for people where the machine knows nothing of the transport there, so that it counts with its links for none in
  /// particular; else empty.
  std::string unknown;
};

/// AxisLinks::unknown of axes of a mesh.
CONSIST_API std::string unknown_links(const CostModel& costs, AxisSet axes);

/// By axis; the plan is laid out.
CONSIST_API std::vector<AxisLinks> links_of(const Plan& plan);

/// "data over nvlink within nodes, data.1 over socket across nodes": of the axes whose transport is named, or empty.
CONSIST_API std::string text_of(std::span<const AxisLinks> links);

/// AxisLinks::unknown of these, each once and on a line of its own; empty if the machines know all that is named.
CONSIST_API std::string unknown_text(std::span<const AxisLinks> links);

/// Throws UsageError for an axis whose transport cannot connect its groups (Transport::cannot_connect), as far as the machine's
/// nodes say: what a run with these options would refuse once it connects. A transport that cannot be made here is not asked.
CONSIST_API void check_links(const Plan& plan, PluginHost& host);

/// By axis of the layout's mesh, as CostModel takes them.
std::vector<std::string> named_transports(const RunConfig& config, const Layout& layout);

/// Collective over the job: by axis, the transports that all ranks plan with, since other links would make other programs: those
/// that rank 0's configuration names. Throws as Job::get.
CONSIST_API std::vector<std::string> agree_on_transports(Job& job, const RunConfig& config, const Layout& layout);

/// The index of the transport by which the axes are connected, of `transports` by axis. Throws UsageError if they have different
/// ones.
CONSIST_API std::size_t transport_over(AxisSet axes, const Mesh& mesh, std::span<const std::string> transports);
/// Throws it if the program has collectives over such axes.
void check_transports(const Program& program, std::span<const std::string> transports);

}  // namespace consist
