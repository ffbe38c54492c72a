#include "launch/cluster/cluster.h"

#include "consist/error.h"
#include "launch/cluster/kubernetes/kubernetes_cluster.h"
#include "launch/cluster/mpi/mpi_cluster.h"
#include "launch/cluster/slurm/slurm_cluster.h"
#include "launch/cluster/ssh/ssh_cluster.h"

namespace consist::launch {

std::unique_ptr<Cluster> make_cluster(const CommandLine& line) {
  if (line.value("on") == "ssh") return std::make_unique<SshCluster>(line);
  if (line.value("on") == "kubernetes") return std::make_unique<KubernetesCluster>(line);
  if (line.value("on") == "mpi") return std::make_unique<MpiCluster>(line);
  return std::make_unique<SlurmCluster>(line);
}

bool is_on_cluster(const CommandLine& line) {
  const bool on = line.value("on") != "here";
  for (const char* of_cluster : {"cluster", "dry-run"}) {
    if (!on && line.has(of_cluster))
      throw UsageError(std::string("--") + of_cluster +
                       " is for runs on a cluster; give --on slurm (or ssh, kubernetes, mpi), too, or leave it out");
  }
  return on;
}

}  // namespace consist::launch
