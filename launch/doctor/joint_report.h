// The reports of several hosts as one: what they have in common, what differs between them, which to keep and which to leave out.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/doctor/hosts.h"
#include "launch/doctor/measured_checks.h"

namespace consist::doctor {

struct JointReport {
  std::string cluster;  ///< "slurm", "ssh"
  std::vector<HostReport> hosts;
  Report all;  ///< findings of all hosts, those that are alike as one, and of the hosts beside one another
  std::map<int, std::vector<std::string>> left_out;  ///< hosts that should be left out, by number: the names of the checks
};

/// Joins what hosts have found, and compares them with one another.
JointReport join(const std::string& cluster, std::vector<HostReport> hosts);

/// Adds what was measured. Hosts that it names are left out.
void add_measured(JointReport& joint, const std::vector<MeasuredCheck>& checks);

/// For people: the joint report, a table of the hosts, and the lists in the cluster's own words.
std::string report_text(const JointReport& joint, bool all);
nlohmann::ordered_json json_of(const JointReport& joint);

}  // namespace consist::doctor
