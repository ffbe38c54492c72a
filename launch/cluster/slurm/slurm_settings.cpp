#include "launch/cluster/slurm/slurm_settings.h"

#include "launch/cluster/cluster_table.h"

namespace consist::launch {
namespace {

constexpr const char* slurm_example =
    "\nA file needs little:\n  [slurm]\n  partition = \"gpu\"\n  nodes = 2\n  gpus-per-node = 8\n  folder = "
    "\"/shared/me/consist\""
    "\ndocs/clusters.md has all keys";

void check_sbatch_options(const ConfigEntry& entry, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (!line.starts_with("-"))
      ClusterTable::refuse(entry, "has '" + line + "'; its lines are options of sbatch and begin with a dash");
    for (const char* ours : {"--nodes", "-N", "--ntasks", "-n", "--output", "-o", "--error", "-e", "--array", "-a"}) {
      const std::string option(ours);
      const bool is_that = line == option || line.starts_with(option + "=") || line.starts_with(option + " ") ||
                           (option.size() == 2 && line.starts_with(option));
      if (is_that)
        ClusterTable::refuse(entry, "has '" + line + "', which follows from the run and from nodes, ranks-per-node and folder");
    }
  }
}

}  // namespace

SlurmSettings read_slurm_settings(const CommandLine& line) {
  SlurmSettings settings;
  ClusterTable table("slurm", slurm_example, settings);
  table.text("partition", settings.partition);
  table.text("account", settings.account);
  table.text("time", settings.time);
  table.text("image", settings.image);
  table.nodes(settings.gpus_per_node);
  table.number("cpus-per-rank", "0", "0..4096", settings.cpus_per_rank);
  table.flag("exclusive", settings.exclusive);
  table.texts("lines", settings.lines, check_sbatch_options);
  table.read(line);
  if (settings.consist.empty()) settings.consist = settings.image.empty() ? own_executable() : "consist";
  return settings;
}

}  // namespace consist::launch
