#include "launch/doctor/on_cluster.h"

#include <utility>

#include "consist/error.h"
#include "launch/cluster/train_on_cluster.h"

namespace consist::doctor {
namespace {

launch::TrainRequest request_of(const std::vector<std::string>& words, int ranks) {
  launch::TrainRequest request{.kind = "doctor", .config = {}, .plugins = {}, .words = words};
  request.config.ranks = ranks;
  request.command = "examine";
  return request;
}

/// Gives hosts the names by which the cluster knows them, also where ranks were measured: those of its file, where each of its
/// nodes was seen as one host, else those that hosts give themselves (of Kubernetes the node's, not the pod's).
void name_hosts(const launch::Cluster& cluster, int ranks, Examination& examination) {
  const auto hosts = static_cast<int>(examination.hosts.size());
  const bool is_node = hosts == launch::divide_ranks(cluster.settings(), ranks).nodes;
  for (int node = 0; node < hosts; ++node) {
    std::string& name = examination.hosts[static_cast<std::size_t>(node)].host;
    if (const std::string in_file = is_node ? cluster.node_name(node) : ""; !in_file.empty()) name = in_file;
    if (!examination.figures) continue;
    for (launch::RankFigures& rank : examination.figures->ranks) {
      if (rank.node == node) rank.host = name;
    }
  }
}

}  // namespace

std::string dry_run_text(const launch::Cluster& cluster, const std::vector<std::string>& words, int ranks, PluginHost& host) {
  return cluster.dry_run_text(plan_train_job(cluster, request_of(words, ranks), host));
}

Examination examine_on(const launch::Cluster& cluster, const std::vector<std::string>& words, int ranks, PluginHost& host) {
  ExaminationLines lines;
  const launch::TrainJob job = make_train_job(cluster, request_of(words, ranks), host);
  const launch::JobEnd end = follow_to_its_end(cluster, job, false,
                                               {.output = [&](const std::string& line) { lines.take_output(line); },
                                                .errors = [&](const std::string& line) { lines.take_error(line); }});
  Examination examination = std::move(lines).ended(end.status);
  if (!end.reason.empty()) examination.problem = end.reason;
  if (examination.hosts.empty())
    throw SystemError("the hosts could not be examined: " +
                      (examination.problem.empty() ? "they said nothing" : examination.problem));
  name_hosts(cluster, ranks, examination);
  return examination;
}

}  // namespace consist::doctor
