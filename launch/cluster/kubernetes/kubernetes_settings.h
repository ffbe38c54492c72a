// The table [kubernetes] of the cluster's file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/cli/command_line.h"
#include "launch/cluster/settings.h"

namespace consist::launch {

struct KubernetesSettings : ClusterSettings {
  std::string image;
  std::string name_space;              ///< empty: kubectl's
  std::string zone;                    ///< empty: any, but one for all
  std::string memory;                  ///< of a node's pod: "512Gi"; empty: no limit
  std::string shared_memory = "16Gi";  ///< of /dev/shm
  std::string working_folder;          ///< of the ranks; empty: the image's
  int gpus_per_node = 0;
  int efa_per_node = 0;                  ///< devices of EFA
  int cpus_per_node = 0;                 ///< 0: no request
  std::vector<std::string> resources;    ///< more of them, of a node: "rdma/hca=1"
  std::vector<std::string> node_labels;  ///< that nodes have: "node.kubernetes.io/instance-type=p5.48xlarge"
  std::vector<std::string> claims;       ///< of volumes, with their folders: "training-data:/data"
  std::vector<std::string> options;      ///< more options of kubectl: "--context=east"

  /// True if pods have network cards of their own, which pin memory.
  bool has_cards() const noexcept { return efa_per_node > 0 || !resources.empty(); }
};

/// Throws as ClusterTable::read().
KubernetesSettings read_kubernetes_settings(const CommandLine& line);

/// "rdma/hca=1" at its separator. The texts of the settings have one.
std::pair<std::string, std::string> cut(const std::string& text, char separator);

}  // namespace consist::launch
