// The text that sbatch gets.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster_file.h"

namespace consist::launch {

/// A job: its name, its places, its ranks.
struct BatchJob {
  std::string name;                ///< "consist-train-3"
  std::string folder;              ///< of its files, within SlurmSettings::folder
  std::string working_folder;      ///< where the command was given: relative names of files are meant from there
  int ranks = 1;                   ///< one a task
  std::vector<std::string> words;  ///< behind `consist`
};

/// Files of a job, in its folder.
namespace job_files {
inline constexpr const char* script = "job.sbatch";
inline constexpr const char* config = "run.toml";
inline constexpr const char* token = "token";  ///< for its owner's eyes alone, until the job has ended
inline constexpr const char* output = "out";
inline constexpr const char* errors = "err";
inline constexpr const char* status = "status";  ///< the exit status of srun, once the ranks have ended
inline constexpr const char* archive = "run.h5";
}  // namespace job_files

/// Throws UsageError for a number of ranks that does not fill nodes of ranks_per_node.
std::string batch_script(const SlurmSettings& settings, const BatchJob& job);

/// A word as a shell reads it back; in quotes where it needs them.
std::string shell_word(const std::string& word);

}  // namespace consist::launch
