// Jobs whose files lie in a folder that all nodes and this machine see.
#pragma once

#include <string>

#include "launch/cluster/cluster.h"

namespace consist::launch {

/// Everything of a cluster but its script and its jobs.
class SharedFolderCluster : public Cluster {
 public:
  std::string next_name(const std::string& kind, int ahead) const override;
  bool shares_folder() const noexcept override { return true; }
  std::string dry_run_text(const TrainJob& job) const override;
  bool prepare(const TrainJob& job) const override;
  void discard(const TrainJob& job) const noexcept override;
  std::string fetch(const TrainJob& job) const override;

 protected:
  explicit SharedFolderCluster(const char* script_file) : script_file_(script_file) {}

 private:
  void write_files(const TrainJob& job) const;

  const char* const script_file_;
};

}  // namespace consist::launch
