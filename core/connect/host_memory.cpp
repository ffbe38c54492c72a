#include "core/connect/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/host.h"
#include "consist/text.h"

namespace consist {

std::int64_t available_host_memory() {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) available = std::strtoll(line.c_str() + 13, nullptr, 10) * 1024;
  }
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  std::int64_t limit = 0, used = 0;
  if (limit_file >> limit && used_file >> used) available = std::min(available, std::max<std::int64_t>(limit - used, 0));
  return available;
}

void check_host_memory(Job& job, std::int64_t pinned, std::int64_t limit) {
  // Pods of one machine have network namespaces and memory limits of their own.
  const std::string prefix = "host_memory." + network::machine_identity() + "." + std::string(job.host()) + ".";
  job.put(prefix + std::to_string(job.local_rank()), std::to_string(pinned));
  if (job.local_rank() != 0) {
    job.get(prefix + "fits", job.timeout());
    return;
  }
  std::int64_t sum = 0;
  for (int rank = 0; rank < job.local_size(); ++rank) sum += std::stoll(job.get(prefix + std::to_string(rank), job.timeout()));
  const std::int64_t allowed = limit > 0 ? limit : available_host_memory();
  if (sum > allowed) {
    throw UsageError(
        "this configuration pins " + bytes_text(sum) + " of the memory of " + std::string(job.host()) +
        " for what is offloaded (" + std::to_string(job.local_size()) + (job.local_size() == 1 ? " rank" : " ranks") + "), " +
        bytes_text(allowed) + (limit > 0 ? " may be pinned by --host-memory-limit" : " are available there") +
        ". What would make it fit: offloading less (--offload-activations of fewer layers, offload-param.device none, "
        "offload-optimizer.ratio below 1), more hosts, or, "
        "where the host gives more than it shows (a virtual machine that grows, a control group that is about to), a larger "
        "--host-memory-limit");
  }
  job.put(prefix + "fits", "yes");
}

}  // namespace consist
