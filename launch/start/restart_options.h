// Options of replacing ranks that fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace consist::launch {

struct RestartOptions {
  int most = 0;                     ///< LaunchOptions::max_restarts
  std::int64_t snapshot_every = 0;  ///< Continuation::snapshot_every
  double snapshot_share = 0;        ///< Continuation::snapshot_share
  int timeout_seconds = 60;         ///< NodeOptions::timeout, as long as ranks wait for one another
  int min_nodes = 0;                ///< NodeOptions::least
  int node_wait_seconds = 20;       ///< NodeOptions::wait
  std::map<int, std::string> unfit = {};  ///< NodeOptions::unfit
};

}  // namespace consist::launch
