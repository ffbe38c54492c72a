// Finds what InfiniBand and RoCE need and this machine lacks, and which devices to use, without starting anything.
#pragma once

#include <filesystem>
#include <string>

#include "consist/rdma.h"

namespace consist::ib {

/// Where the kernel shows devices. Tests make up trees of their own.
struct Places {
  std::filesystem::path devices = rdma_folder;
  std::filesystem::path verbs = "/dev/infiniband";
};

struct Choice {
  /// As NCCL_IB_HCA takes them behind its "=": "mlx5_0:1,mlx5_1:1"; empty: NCCL's choice.
  std::string hcas;
  /// Why there is no port to use; empty if there is.
  std::string problem;
};

/// Looks for the ports that are named in `wanted` ("mlx5_0,mlx5_1:1"; empty: all) and active. Without names, and where ports of
/// InfiniBand and of Ethernet are active, it takes those of InfiniBand: NCCL takes both and cannot connect one to the other.
/// Devices of EFA are none of these. `environment`: the value of NCCL_IB_HCA, or null; with it, and without names, the choice is
/// NCCL's.
Choice choose_ports(const std::string& wanted, const char* environment, const Places& places = {});

/// Lists what is missing, with a line for each thing; empty: nothing is. `library`: of NCCL.
std::string problem_of_machine(const std::string& wanted, const std::string& library, const Places& places = {});

}  // namespace consist::ib
