// What EFA needs and this machine lacks, found out without starting anything.
#pragma once

#include <string>

#include "plugins/transports/efa/connect.h"

namespace consist::efa {

/// What a transport was asked for.
struct EfaOptions {
  HostOptions host;
  bool gpudirect = true;   ///< CUDA: NICs read and write the GPUs' memory
  std::string nccl;        ///< file or folder of libnccl.so.2
  std::string ofi_plugin;  ///< file or folder of the AWS OFI plugin
};

/// What is missing for host memory, or for GPUs, as a list with a line for each thing; empty: nothing is. Takes about a second at
/// most.
std::string problem_on_host(const HostOptions& options);
std::string problem_on_cuda(const EfaOptions& options);
/// What is missing for EFA on this machine with the default options: both lists, or on a machine without GPUs the first.
std::string problem_of_machine();

/// What the limit of memory that a process may pin (RLIMIT_MEMLOCK) is too low for; empty if it is not.
std::string memlock_problem();

}  // namespace consist::efa
