#include "launch/cluster/mpi/mpi_settings.h"

#include "launch/cluster/cluster_table.h"

namespace consist::launch {
namespace {

constexpr const char* mpi_example =
    "\nA file needs little:\n  [mpi]\n  hosts = [\"node07\", \"node08\"]\n  ranks-per-host = 8\n  folder = "
    "\"/shared/me/consist\"\ndocs/clusters.md has all keys";

void check_names(const ConfigEntry& entry, const std::vector<std::string>& names) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  for (const std::string& name : names) {
    if (name.empty() || name.starts_with('-') || name.find_first_not_of(plain) != std::string::npos)
      ClusterTable::refuse(entry, "has '" + name + "'; a host is a name or an address, as a line of mpirun's hostfile has it");
  }
}

}  // namespace

MpiSettings read_mpi_settings(const CommandLine& line) {
  MpiSettings settings;
  settings.max_jobs = 1;  // there is no queue: a job has the hosts for itself
  ClusterTable table("mpi", mpi_example, settings);
  table.texts("hosts", settings.hosts, check_names);
  table.texts("options", settings.options);
  table.number("ranks-per-host", "1", "1..1024", settings.ranks_per_node);
  table.read(line);
  if (settings.hosts.empty()) table.lacks("hosts", "the machines on which mpirun starts ranks, the one with rank 0 first");
  settings.nodes = static_cast<int>(settings.hosts.size());
  if (settings.consist.empty()) settings.consist = own_executable();
  return settings;
}

}  // namespace consist::launch
