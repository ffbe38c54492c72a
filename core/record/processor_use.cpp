#include "core/record/processor_use.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace consist {
namespace {

/// A host with more than 1,024 processors counts as one that this process may use throughout.
bool may_use(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(getpid(), sizeof set, &set) != 0 || processor >= CPU_SETSIZE) return true;
  return CPU_ISSET(processor, &set);
}

std::optional<ProcessorTimes> processor_times() {
  std::ifstream file("/proc/stat");
  std::stringstream text;
  text << file.rdbuf();
  return read_processor_times(text.str(), may_use);
}

double own_seconds() {
  rusage use{};
  if (getrusage(RUSAGE_SELF, &use) != 0) return 0;
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

}  // namespace

std::optional<ProcessorTimes> read_processor_times(std::string_view proc_stat, bool (*counts)(int processor)) {
  const double tick = 1.0 / static_cast<double>(std::max(1L, sysconf(_SC_CLK_TCK)));
  ProcessorTimes times;
  std::istringstream lines{std::string(proc_stat)};
  for (std::string line; std::getline(lines, line);) {
    int processor = -1;
    if (!line.starts_with("cpu") || std::from_chars(line.data() + 3, line.data() + line.size(), processor).ec != std::errc() ||
        !counts(processor)) {
      continue;  // "cpu " is the sum
    }
    std::istringstream words(line.substr(line.find(' ')));
    double user = 0, nice = 0, system = 0, idle = 0, disk = 0, interrupts = 0, soft = 0, stolen = 0;
    if (!(words >> user >> nice >> system >> idle >> disk >> interrupts >> soft >> stolen)) return {};
    times.idle += tick * (idle + disk);
    times.stolen += tick * stolen;
    times.total += tick * (user + nice + system + idle + disk + interrupts + soft + stolen);
  }
  if (times.total <= 0) return {};
  return times;
}

ProcessorUse processor_use(const ProcessorTimes& before, const ProcessorTimes& after, double own) {
  const double total = after.total - before.total;
  if (total <= 0) return {};
  const double idle = after.idle - before.idle, stolen = after.stolen - before.stolen;
  const auto share = [&](double seconds) { return std::clamp(seconds / total, 0.0, 1.0); };
  return {.own = share(own), .others = share(total - idle - stolen - own), .stolen = share(stolen), .idle = share(idle)};
}

ProcessorWatch::ProcessorWatch() : before_(processor_times()), own_(own_seconds()) {}

std::optional<ProcessorUse> ProcessorWatch::finish(Job& job) const {
  const std::optional<ProcessorTimes> after = processor_times();
  double own = own_seconds() - own_;
  if (job.host_ranks().front() != 0) return {};
  const std::vector<std::string> all = job.gather("processor_seconds", std::to_string(own), job.timeout(), job.host_ranks());
  if (job.rank() != 0) return {};
  own = 0;
  for (const std::string& seconds : all) own += std::stod(seconds);
  if (!before_ || !after) return {};
  return processor_use(*before_, *after, own);
}

}  // namespace consist
