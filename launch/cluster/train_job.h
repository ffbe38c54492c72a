// A run of training as a job: its configuration, its script, its archive.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist::launch {

class Cluster;

/// Files of a job, in its folder.
namespace job_files {
inline constexpr const char* config = "run.toml";
inline constexpr const char* token = "token";  ///< for its owner's eyes alone, until the job has ended
inline constexpr const char* output = "out";
inline constexpr const char* errors = "err";
inline constexpr const char* status = "status";  ///< the exit status of the ranks, once they have ended
inline constexpr const char* archive = "run.h5";
}  // namespace job_files

/// A run of training, or another command that ranks run.
struct TrainJob {
  std::string name;            ///< "train-3"
  std::string folder;          ///< of its files, within ClusterSettings::folder
  std::string working_folder;  ///< where the command was given: relative names of files are meant from there
  int ranks = 1;
  bool restarts = false;           ///< Consist's own launcher starts the ranks of each node
  std::string command = "train";   ///< of the ranks; train has its configuration in run.toml
  std::vector<std::string> words;  ///< of its command line, behind the configuration
  std::string script;              ///< text of its script
  std::string config;              ///< text of run.toml
  std::string archive;             ///< where the run writes it; empty: none
  std::string archive_here;        ///< where it is wanted; empty: where it is written
  bool goes_on = false;            ///< in the archive that is there (--resume)
};

/// A run of training that is to be a job.
struct TrainRequest {
  std::string kind;  ///< of the command, "train", after which its folders are named: "train-7"
  RunConfig config;
  std::vector<std::string> plugins;     ///< the paths of --plugin
  std::vector<std::string> words = {};  ///< more words of the command line
  bool restarts = false;
  int ahead = 0;                  ///< jobs that are to be made before it
  std::string command = "train";  ///< of the ranks
};

/// The job as it would be submitted, in a new folder within the cluster's. Makes nothing. Throws UsageError for ranks that do not
/// fill nodes, SystemError if the folder cannot be read.
TrainJob plan_train_job(const Cluster& cluster, const TrainRequest& request, PluginHost& host);

/// The same, prepared. Throws SystemError, too, if its files cannot be written.
TrainJob make_train_job(const Cluster& cluster, const TrainRequest& request, PluginHost& host);

/// A name that no other job has, where there is no folder to count in: "train-20261127-193000-3f9a0c".
std::string dated_name(const std::string& kind);

}  // namespace consist::launch
