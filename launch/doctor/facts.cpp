#include "launch/doctor/facts.h"

#include <algorithm>
#include <future>

#include "consist/error.h"
#include "launch/doctor/words.h"

namespace consist::doctor {

const PluginState* Facts::plugin(std::string_view kind, std::string_view name) const {
  const auto at = std::find_if(plugins.begin(), plugins.end(),
                               [&](const PluginState& plugin) { return plugin.kind == kind && plugin.name == name; });
  return at == plugins.end() ? nullptr : &*at;
}

int Facts::ranks_here() const {
  if (job.local_size > 1) return job.local_size;
  return std::max(1, static_cast<int>(gpus.listed.size()));
}

bool Facts::has_efa() const {
  return std::any_of(rdma.begin(), rdma.end(), [](const RdmaDevice& device) { return device.is_of("efa"); });
}

bool was_too_slow(const PluginState& plugin) {
  return plugin.found.reason.starts_with("it did not answer within");
}

std::optional<Finding> without_listed_gpus(const Facts& facts) {
  if (facts.gpus.none()) return not_applicable(no_gpu);
  if (facts.gpus.listed.empty()) return unknown("no GPU could be listed (see gpu-driver)");
  return std::nullopt;
}

Facts read_facts(Machine machine, std::string archive_folder) {
  Facts facts;
  facts.machine = std::move(machine);
  facts.archive_folder = std::move(archive_folder);
  // Each waits for other processes.
  std::future<std::vector<PluginState>> plugins = std::async(std::launch::async, facts.machine.plugins);
  facts.gpus = read_gpus(facts.machine);
  facts.rdma = rdma_devices(facts.machine.root / "sys/class/infiniband");
  facts.group = read_group_limits(facts.machine);
  try {
    facts.job = job_address_from_environment(facts.machine.environment);
  } catch (const Error& error) {
    facts.job_problem = error.what();
  }
  try {
    facts.plugins = plugins.get();
  } catch (const Error& error) {
    facts.plugin_problem = error.what();
  }
  return facts;
}

}  // namespace consist::doctor
