#include "core/connect/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <span>
#include <string>

#include "consist/error.h"
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
  const std::span<const int> ranks = job.host_ranks();
  const double own = static_cast<double>(pinned);
  const auto sum = static_cast<std::int64_t>(
      job.reduce("host_memory", {own}, ReduceOp::sum, job.timeout(), ranks).front());  // exact up to 8 PiB
  const std::int64_t allowed = limit > 0 ? limit : available_host_memory();
  if (job.rank() == ranks.front() && sum > allowed) {
    throw UsageError(
        "this configuration pins " + bytes_text(sum) + " of the memory of " + std::string(job.host()) +
        " for what is offloaded (" + std::to_string(ranks.size()) + (ranks.size() == 1 ? " rank" : " ranks") + "), " +
        bytes_text(allowed) + (limit > 0 ? " may be pinned by --host-memory-limit" : " are available there") +
        ". What would make it fit: offloading less (--offload-activations of fewer layers, offload-param.device none, "
        "offload-optimizer.ratio below 1), more hosts, or, "
        "where the host gives more than it shows (a virtual machine that grows, a control group that is about to), a larger "
        "--host-memory-limit");
  }
  job.broadcast("host_memory.fits", "", job.timeout(), ranks);
}

}  // namespace consist
