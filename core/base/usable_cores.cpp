#include "consist/host.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace consist {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

int cores_of_quota(std::string_view text) {
  std::istringstream words{std::string(text)};
  long long quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min<long long>((quota + period - 1) / period, 1 << 20));
}

int usable_cores() {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  // As seen from inside of a container; second how the older control groups write it.
  for (const std::string& quota :
       {first_line("/sys/fs/cgroup/cpu.max"),
        first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " + first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us")}) {
    if (const int worth = cores_of_quota(quota); worth > 0) cores = std::min(cores, worth);
  }
  return cores;
}

}  // namespace consist
