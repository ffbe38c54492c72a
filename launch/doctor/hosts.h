// The hosts of a job, as each sees itself.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "launch/doctor/report.h"

namespace consist::doctor {

struct HostReport {
  std::string host;        ///< as it names itself, or as the cluster's file names it
  std::vector<int> ranks;  ///< on it
  /// By name what should be equal on hosts of one kind: "driver", "GPUs", "kernel".
  std::map<std::string, std::string> facts;
  double clock_seconds = 0;        ///< by which its clock is ahead of that of rank 0's host
  double clock_error_seconds = 0;  ///< how far that may be wrong
  Report report;
};

/// Collective over the job: the first rank of each host looks at it, and at its clock. Returns the hosts by their first ranks, on
/// rank 0; nothing on others. Throws as Job::gather().
std::vector<HostReport> look_at_hosts(JoinedJob& job, const std::vector<std::string>& plugins);

nlohmann::ordered_json json_of(const HostReport& host);
/// Reads what json_of() makes. Throws nlohmann::json::exception.
HostReport host_from(const nlohmann::json& json);

}  // namespace consist::doctor
