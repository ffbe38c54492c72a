// Finds what EFA needs and this machine lacks, without starting anything.
#pragma once

#include <string>

#include "plugins/transports/efa/connect.h"

namespace consist::efa {

/// The options that a transport was given.
struct EfaOptions {
  HostOptions host;
  bool gpudirect = true;   ///< CUDA: NICs read and write the GPUs' memory
  std::string nccl;        ///< file or folder of libnccl.so.2
  std::string ofi_plugin;  ///< file or folder of the AWS OFI plugin
};

/// Lists what is missing for host memory, or for GPUs, with a line for each thing; empty: nothing is. Takes about a second at
/// most.
std::string problem_on_host(const HostOptions& options);
std::string problem_on_cuda(const EfaOptions& options);
/// Lists what EFA lacks on this machine with the default options: both lists; none if it has no GPUs and the first is empty.
std::string problem_of_machine();

}  // namespace consist::efa
