// Options of replacing ranks that fail.
#pragma once

#include <cstdint>

namespace consist::launch {

struct RestartOptions {
  int most = 0;                     ///< LaunchOptions::max_restarts
  std::int64_t snapshot_every = 0;  ///< Continuation::snapshot_every
  int timeout_seconds = 60;         ///< NodeOptions::timeout, as long as ranks wait for one another
};

}  // namespace consist::launch
