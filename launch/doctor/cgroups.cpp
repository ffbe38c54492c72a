#include "launch/doctor/cgroups.h"

#include <algorithm>
#include <sstream>

#include "consist/host.h"
#include "core/base/number.h"
#include "core/base/split.h"

namespace consist::doctor {
namespace {

/// The process's group, and those above it, as paths that end in a slash. In a container its own is often the topmost.
std::vector<std::string> groups_of(const Machine& machine, std::string_view controller) {
  std::string group;
  const std::string text = machine.read("proc/self/cgroup").value_or("");
  for (const std::string_view line : split(text, '\n')) {  // "0::/user.slice", "4:memory:/slurm/job_1"
    const std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() != 3) continue;
    const std::vector<std::string_view> controllers = split(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) group = fields[2];
  }
  std::vector<std::string> groups;
  const std::string top = "sys/fs/cgroup" + (controller.empty() ? std::string() : "/" + std::string(controller));
  for (; group.size() > 1; group.resize(group.find_last_of('/'))) groups.push_back(top + group + "/");
  groups.push_back(top + "/");
  return groups;
}

std::optional<std::int64_t> bytes_in(const std::optional<std::string>& text) {
  std::int64_t value = 0;
  if (!text || !parse_number(*text, value)) return std::nullopt;  // "max"
  constexpr std::int64_t no_limit = std::int64_t{1} << 60;        // the older groups write a number of that size
  return value >= no_limit ? std::nullopt : std::optional(value);
}

void note_memory(const Machine& machine, const std::string& limit_file, const std::string& used_file, GroupLimits& limits) {
  const std::optional<std::int64_t> limit = bytes_in(machine.read(limit_file));
  if (!limit) return;
  const std::int64_t left = std::max<std::int64_t>(0, *limit - bytes_in(machine.read(used_file)).value_or(0));
  if (limits.memory && limits.memory_left <= left) return;
  limits.memory = limit;
  limits.memory_left = left;
}

void note_quota(const std::string& text, GroupLimits& limits) {
  const int cores = cores_of_quota(text);
  if (cores > 0) limits.cores = limits.cores == 0 ? cores : std::min(limits.cores, cores);
}

}  // namespace

GroupLimits read_group_limits(const Machine& machine) {
  GroupLimits limits;
  for (const std::string& group : groups_of(machine, "")) {
    note_memory(machine, group + "memory.max", group + "memory.current", limits);
    note_quota(machine.read(group + "cpu.max").value_or(""), limits);
  }
  for (const std::string& group : groups_of(machine, "memory"))
    note_memory(machine, group + "memory.limit_in_bytes", group + "memory.usage_in_bytes", limits);
  for (const std::string& group : groups_of(machine, "cpu"))
    note_quota(
        machine.read(group + "cpu.cfs_quota_us").value_or("") + " " + machine.read(group + "cpu.cfs_period_us").value_or(""),
        limits);
  return limits;
}

}  // namespace consist::doctor
