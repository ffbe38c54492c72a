// Limits of the process and of its container.
#include <algorithm>
#include <limits>
#include <sstream>

#include "consist/host.h"
#include "consist/text.h"
#include "core/base/number.h"
#include "core/base/one_line.h"
#include "launch/doctor/check.h"
#include "launch/doctor/facts.h"
#include "launch/doctor/words.h"

namespace consist::doctor {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20, gib = std::int64_t{1} << 30;

/// The most that a process may have of a limit, which it can raise its own to; nothing if it cannot be read.
std::optional<std::int64_t> hard_limit(const Machine& machine, std::string_view name) {
  std::istringstream lines(machine.read("proc/self/limits").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::string soft, hard;
    words >> soft >> hard;
    std::int64_t value = 0;
    if (hard == "unlimited") return std::numeric_limits<std::int64_t>::max();
    if (parse_number(hard, value)) return value;
  }
  return std::nullopt;
}

Finding memory_may_be_pinned(const Facts& facts) {
  constexpr std::int64_t enough = 64 * gib, least = gib;  // buffers of NICs take less than the latter at their start
  if (!facts.has_rdma() && facts.gpus.none()) return not_applicable("there is neither a GPU nor an RDMA device");
  const std::optional<std::int64_t> limit = hard_limit(facts.machine, "Max locked memory");
  if (!limit) return unknown("/proc/self/limits cannot be read");
  if (*limit == std::numeric_limits<std::int64_t>::max()) return ok("unlimited");
  if (*limit >= enough) return ok(bytes_text(*limit));
  if (has_ipc_lock(facts.machine.read("proc/self/status").value_or("")))
    return ok(bytes_text(*limit) + ", which the capability IPC_LOCK lifts");
  const std::string found = "a process may pin " + bytes_text(*limit);
  const std::string remedy =
      "ulimit -l unlimited (limits.conf: memlock; docker --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK)";
  // The driver of GPUs pins memory without regard to this limit; network devices do not get theirs.
  return facts.has_rdma() && *limit < least ? wrong(found, remedy) : warning(found, remedy);
}

Finding files_may_be_opened(const Facts& facts) {
  const std::int64_t ranks = std::max(facts.job.size, facts.ranks_here()), needed = 1024 + ranks;
  constexpr std::int64_t own_files = 256;  // as core/job counts them
  const std::optional<std::int64_t> limit = hard_limit(facts.machine, "Max open files");
  if (!limit) return unknown("/proc/self/limits cannot be read");
  if (*limit >= needed) return ok(*limit == std::numeric_limits<std::int64_t>::max() ? "unlimited" : std::to_string(*limit));
  const std::string found = "a process may open " + std::to_string(*limit) + " files; " + std::to_string(needed) +
                            " are enough for " + number_of(static_cast<int>(ranks), "rank");
  const std::string remedy = "ulimit -n 65536, as far as ulimit -Hn lets it (limits.conf: nofile; docker --ulimit nofile=65536)";
  return *limit < ranks + own_files ? wrong(found, remedy) : warning(found, remedy);
}

Finding memory_is_shared(const Facts& facts) {
  if (facts.gpus.listed.size() < 2) return not_applicable("there are not several GPUs");
  const std::optional<Space> space = facts.machine.space("/dev/shm");
  const char* remedy = "docker run --shm-size=8g, or --ipc=host; Kubernetes: an emptyDir with medium Memory at /dev/shm";
  if (!space) return wrong("/dev/shm is not there", remedy);
  if (space->bytes < gib)
    return wrong("/dev/shm has " + bytes_text(space->bytes) + ", in which NCCL finds too little for its buffers", remedy);
  if (space->free_bytes < gib / 2)
    return warning("of /dev/shm " + bytes_text(space->free_bytes) + " are free of " + bytes_text(space->bytes),
                   "remove what ended processes left there (ls -l /dev/shm)");
  return ok(bytes_text(space->bytes));
}

/// Kilobytes of a line of /proc/meminfo, as bytes.
std::optional<std::int64_t> memory_of(const Machine& machine, std::string_view name) {
  std::istringstream lines(machine.read("proc/meminfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::int64_t kilobytes = 0;
    if (words >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

Finding memory_is_left(const Facts& facts) {
  constexpr std::int64_t a_rank = 2 * gib;
  const GroupLimits& limits = facts.group;
  std::optional<std::int64_t> left = memory_of(facts.machine, "MemAvailable:");
  if (limits.memory && (!left || limits.memory_left < *left)) left = limits.memory_left;
  if (!left) return unknown("neither /proc/meminfo nor a control group can be read");
  const std::string found =
      bytes_text(*left) + " are left" + (limits.memory ? ", the limit is " + bytes_text(*limits.memory) : "");
  if (*left >= facts.ranks_here() * a_rank) return ok(found);
  return warning(found + ", for " + number_of(facts.ranks_here(), "rank"),
                 "end other processes, or raise the limit (docker --memory; Kubernetes: resources.limits.memory; Slurm: --mem)");
}

Finding all_processors_may_work(const Facts& facts) {
  const int quota = facts.group.cores, seen = facts.machine.processors;
  if (quota == 0 || quota >= seen)
    return ok(number_of(seen, "processor") + (quota == 0 ? ", no quota" : ", quota " + std::to_string(quota)));
  return warning("the quota is worth " + std::to_string(quota) + " of the " + number_of(seen, "processor") + " that are seen",
                 "raise it (docker --cpus; Kubernetes: resources.limits.cpu), or set OMP_NUM_THREADS to " +
                     std::to_string(quota) + " divided by the ranks: threads that count processors halt one another");
}

Finding threads_fit(const Facts& facts) {
  const int quota = facts.group.cores;
  const int cores = quota == 0 ? facts.machine.processors : std::min(quota, facts.machine.processors);
  const std::optional<std::string> variable = facts.machine.variable("OMP_NUM_THREADS");
  if (!variable || variable->empty()) return ok("OMP_NUM_THREADS is not set: ranks share " + number_of(cores, "processor"));
  const std::string found = "OMP_NUM_THREADS=" + one_line(*variable) + " beside " + number_of(cores, "processor");
  int threads = 0;
  if (!parse_number(variable->substr(0, variable->find(',')), threads) || threads < 1)
    return warning(found + ", which is no number of threads", "unset it, or set it to processors divided by ranks");
  if (threads > cores) return warning(found, "unset it, or set it to processors divided by ranks");
  return ok(found);
}

Finding archives_have_space(const Facts& facts) {
  constexpr std::int64_t least = 100 * mib, comfortable = 10 * gib;
  const std::string folder = in_quotes(facts.archive_folder);
  const std::optional<Space> space = facts.machine.space(facts.archive_folder);
  if (!space) return wrong(folder + " is no folder that can be read", "make it (mkdir -p), or name another with --archive");
  if (!space->writable) return wrong(folder + " may not be written", "name another folder with --archive, or change its rights");
  const std::string found = bytes_text(space->free_bytes) + " are free in " + folder;
  const char* remedy = "free some, or name another folder: checkpoints take 12 to 16 bytes a parameter";
  if (space->free_bytes < least) return wrong(found, remedy);
  return space->free_bytes < comfortable ? warning(found, remedy) : ok(found);
}

constexpr Check limit_table[] = {
    {"limits", "memlock", "64 GiB or more may be pinned, where there is a GPU or an RDMA device", memory_may_be_pinned},
    {"limits", "open-files", "1024 files and one for each rank may be opened", files_may_be_opened},
    {"limits", "shared-memory", "/dev/shm has 1 GiB or more, where there are several GPUs", memory_is_shared},
    {"limits", "memory", "2 GiB of the host's memory are left for each rank", memory_is_left},
    {"limits", "cpu-quota", "no quota is below the processors that are seen", all_processors_may_work},
    {"limits", "threads", "OMP_NUM_THREADS is not above the processors", threads_fit},
    {"limits", "archive-space", "10 GiB are free where archives will lie", archives_have_space},
};

}  // namespace

std::span<const Check> limit_checks() {
  return limit_table;
}

}  // namespace consist::doctor
