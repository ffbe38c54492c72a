#include "launch/cluster/slurm/batch_script.h"

#include "launch/cluster/shell.h"

namespace consist::launch {
namespace {

/// Seconds that ranks have to end by themselves after the first one has: as long as the launcher of one machine gives them after
/// a signal. They leave a job together, within moments.
constexpr int seconds_after_the_first = 60;

std::string directive(const std::string& text) {
  return "#SBATCH " + text + "\n";
}

std::string resources(const SlurmSettings& settings, int ranks) {
  const auto [nodes, tasks] = divide_ranks(settings, ranks);
  std::string text = directive("--nodes=" + std::to_string(nodes)) + directive("--ntasks-per-node=" + std::to_string(tasks));
  const int gpus = (settings.gpus_per_node * tasks + settings.ranks_per_node - 1) / settings.ranks_per_node;
  if (gpus > 0) text += directive("--gpus-per-node=" + std::to_string(gpus));
  if (settings.cpus_per_rank > 0) text += directive("--cpus-per-task=" + std::to_string(settings.cpus_per_rank));
  return text;
}

std::string head(const SlurmSettings& settings, const TrainJob& job) {
  std::string text = "#!/usr/bin/env bash\n" + directive("--job-name=consist-" + job.name);
  if (!settings.partition.empty()) text += directive("--partition=" + settings.partition);
  if (!settings.account.empty()) text += directive("--account=" + settings.account);
  if (!settings.time.empty()) text += directive("--time=" + settings.time);
  text += resources(settings, job.ranks);
  if (settings.exclusive) text += directive("--exclusive");
  text += directive("--no-requeue") + directive("--output=" + job.folder + "/" + job_files::output) +
          directive("--error=" + job.folder + "/" + job_files::errors);
  for (const std::string& line : settings.lines) text += directive(line);
  return text;
}

/// The options of srun for all ranks, or for one launcher a node, which starts that node's.
std::string placement(const SlurmSettings& settings, const TrainJob& job) {
  const auto [nodes, ranks] = divide_ranks(settings, job.ranks);
  const int cpus = settings.cpus_per_rank * (job.restarts ? ranks : 1);
  std::string text;
  // A launcher is one task, but has the processors of all its ranks.
  if (job.restarts)
    text = " --nodes=" + std::to_string(nodes) + " --ntasks=" + std::to_string(nodes) + " --ntasks-per-node=1 --cpu-bind=none";
  return cpus > 0 ? text + " --cpus-per-task=" + std::to_string(cpus) : text;
}

std::string program(const SlurmSettings& settings, const TrainJob& job) {
  const std::string config = shell_word(job.folder + "/" + job_files::config);
  if (!job.restarts) return shell_word(settings.consist) + rank_words(job, config);
  const LaunchPlaces places{"\"$SLURM_NODEID\"", "\"$CONSIST_LAUNCHER\"", config};
  return "bash -c " + shell_word("exec " + launch_command(settings, divide_ranks(settings, job.ranks), places, job));
}

std::string command(const SlurmSettings& settings, const TrainJob& job) {
  std::string text;
  if (job.restarts)
    text =
        "# Where the launchers of the nodes meet: on the first one.\n"
        "CONSIST_LAUNCHER=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1):$((20000 + SLURM_JOB_ID % 10000))\n"
        "export CONSIST_LAUNCHER\n";
  text += "srun --kill-on-bad-exit=0 --wait=" + std::to_string(seconds_after_the_first) + placement(settings, job);
  if (!settings.image.empty()) {
    const std::string mounts = settings.folder + ":" + settings.folder + "," + job.working_folder + ":" + job.working_folder;
    text += " --container-image=" + shell_word(settings.image) + " --container-mounts=" + shell_word(mounts) +
            " --container-workdir=" + shell_word(job.working_folder);
  }
  return text + " \\\n  " + program(settings, job) + "\n";
}

}  // namespace

std::string batch_script(const SlurmSettings& settings, const TrainJob& job) {
  const std::string status = shell_word(job.folder + "/" + job_files::status);
  const std::string token = "export CONSIST_JOB_TOKEN_FILE=" + shell_word(job.folder + "/" + job_files::token) + "\n";
  return head(settings, job) + "cd -- " + shell_word(job.working_folder) + " || exit 1\n\n" +
         "# sbatch passes the submitting shell's environment on, which may describe another job.\n" + forget_lines() +
         environment_lines(settings, token) +
         "\n# Ranks that are asked for their end take time for it; this shell waits to say how they ended.\n"
         "trap : TERM\n"
         "# The end of one rank ends the others through the job, with their messages; --wait is for those that it cannot.\n" +
         command(settings, job) +
         "status=$?\n"
         "rm -f -- \"$CONSIST_JOB_TOKEN_FILE\"\n"
         "echo \"$status\" > " +
         status + ".new && mv -- " + status + ".new " + status + "\nexit \"$status\"\n";
}

}  // namespace consist::launch
