// The place of this process in a job, from the environment that a launcher sets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/job/job.h"

namespace consist {

/// The value of an environment variable; nothing if it is not set. Values that are empty count as not set.
using GetEnvironment = std::function<std::optional<std::string>(const char* name)>;

/// Returns a function that reads the environment variables of this process.
GetEnvironment process_environment();

// clang-format off
/// The place of this process in its job, by the first of these launchers that describes it (an inner one before the outer one):
///   torchrun, consist launch  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
///   Open MPI (mpirun)         OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; MASTER_ADDR unless all are on one host
///   Kubernetes indexed job    JOB_COMPLETION_INDEX, WORLD_SIZE, MASTER_ADDR
///   Slurm (srun)              SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NODELIST or SLURM_JOB_NODELIST
/// Without any of them: one rank alone. MASTER_ADDR and MASTER_PORT win over values that a launcher implies. The port is else
/// 29500, with Slurm one that follows from the job's id, and the next one if torchrun's agent occupies MASTER_PORT;
/// CONSIST_JOB_PORT wins over all. The token is CONSIST_JOB_TOKEN or in the file CONSIST_JOB_TOKEN_FILE; else the ranks
/// agree on one where they are all on one host, or the launcher speaks PMIx (JobAddress::channel). CONSIST_JOB_FD is
/// rank 0's inherited listening socket; CONSIST_JOB_JOINED_FD: see JobAddress::joined_fd; CONSIST_JOB_GENERATION
/// and CONSIST_JOB_MACHINE: see JobAddress::generation and machine. The timeout keeps its default.
/// Throws UsageError for a value that is missing, malformed or contradicts another, SystemError for an unreadable token file.
// clang-format on
JobAddress job_address_from_environment(const GetEnvironment& environment);

/// The job's secret, of CONSIST_JOB_TOKEN or the file CONSIST_JOB_TOKEN_FILE. Throws as job_address_from_environment().
std::string job_token(const GetEnvironment& environment);

/// The first host of a Slurm node list: "node[07-09,12],login1" gives "node07". Throws UsageError for an empty or malformed list.
std::string first_slurm_host(std::string_view nodes);

}  // namespace consist
