// libnccl.so.2, loaded at run time, so that a transport loads on machines that have none.
#pragma once

#include <nccl.h>

#include <string>

namespace consist::nccl {

struct Library {
  std::string path;  ///< of the file, as the loader resolved it
  int version = 0;   ///< 22809
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) init_rank;
  decltype(&::ncclCommSplit) split;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  decltype(&::ncclCommGetAsyncError) async_error;
  decltype(&::ncclGetErrorString) error_string;
  decltype(&::ncclGetLastError) last_error;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) receive;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;

  std::string version_text() const;  ///< "2.28.9"
};

/// The process's one NCCL. `wanted` is a file or a folder to take it from; empty: NCCL_ROOT or NCCL_HOME, the loader's path, the
/// active Python environment (VIRTUAL_ENV, CONDA_PREFIX), CUDA_HOME, the library that this was built with. Thread-safe. Throws
/// UnavailableError naming the places that were tried, UsageError when `wanted` differs from what is loaded already.
const Library& load_library(const std::string& wanted);

}  // namespace consist::nccl
