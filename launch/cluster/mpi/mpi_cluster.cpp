#include "launch/cluster/mpi/mpi_cluster.h"

#include <filesystem>
#include <functional>
#include <utility>

#include "launch/cli/exit_status.h"
#include "launch/cluster/mpi/mpi_job.h"
#include "launch/cluster/shell.h"

namespace consist::launch {
namespace {

/// The time that mpirun gives ranks after SIGTERM; all of it passes whenever one has failed. Its own patience is a second.
constexpr int seconds_of_ranks = 5;

/// Commands of one rank or, with restarts, of one host's launcher.
std::string process_script(const MpiSettings& settings, const TrainJob& job) {
  const std::string config = shell_word(job.folder + "/" + job_files::config);
  const std::string port = std::to_string(20'000 + std::hash<std::string>()(job.folder) % 10'000);
  const LaunchPlaces places{"\"$OMPI_COMM_WORLD_RANK\"", settings.hosts[0] + ":" + port, config};
  const std::string program = job.restarts ? launch_command(settings, divide_ranks(settings, job.ranks), places, job)
                                           : shell_word(settings.consist) + rank_words(job, config);
  const std::string token = "export CONSIST_JOB_TOKEN_FILE=" + shell_word(job.folder + "/" + job_files::token) + "\n";
  // mpirun passes SIGUSR1 on, to all processes of a rank's group; of SIGTERM it ends the ranks itself, in bad order.
  return environment_lines(settings, token) + "trap '' USR1\n" + trapped_lines(program, "USR1 TERM") +
         "# mpirun takes the status of the first one that ends: the rank that has failed by itself.\n[ \"$status\" != " +
         std::to_string(exit_peer_failed) + " ] || sleep 2\nexit \"$status\"";
}

}  // namespace

std::string MpiCluster::script(const TrainJob& job) const {
  const Division division = divide_ranks(settings_, job.ranks, "ranks-per-host");
  check_hosts(settings_, division, job.ranks, "mpi.hosts");
  const int a_host = job.restarts ? 1 : division.ranks_per_node;
  std::string hosts;
  for (int node = 0; node < division.nodes; ++node)
    hosts += settings_.hosts[static_cast<std::size_t>(node)] + " slots=" + std::to_string(a_host) + "\n";
  std::string mpirun = "mpirun --hostfile " + shell_word(job.folder + "/hosts") + " -np " +
                       std::to_string(division.nodes * a_host) + " --map-by ppr:" + std::to_string(a_host) +
                       ":node --bind-to none --mca odls_base_sigkill_timeout " + std::to_string(seconds_of_ranks) +
                       shell_words(settings_.options) + " \\\n  bash -c " + shell_word(process_script(settings_, job));
  return "#!/usr/bin/env bash\nexec 3<&0 < /dev/null\ncd -- " + shell_word(job.working_folder) + " || exit 1\n" + forget_lines() +
         "command -v mpirun > /dev/null || { echo 'consist: --on mpi: there is no mpirun in PATH; install Open MPI' >&2; exit 2; "
         "}\n"
         "printf '%s' " +
         shell_word(hosts) + " > " + shell_word(job.folder + "/hosts") + " || exit 1\n" + watched_lines(mpirun, "USR1") +
         "rm -f -- " + shell_word(job.folder + "/" + job_files::token) + "\nexit \"$status\"\n";
}

std::unique_ptr<ClusterJobs> MpiCluster::jobs() const {
  return std::make_unique<JobList>(
      [](const TrainJob& job, JobListener listener) { return std::make_unique<MpiJob>(job, std::move(listener)); });
}

}  // namespace consist::launch
