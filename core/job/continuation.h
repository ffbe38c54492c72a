// A run whose ranks a launcher replaces when one fails (--max-restarts).
#pragma once

#include <cstdint>
#include <string>

#include "core/job/rank_board.h"

namespace consist {

/// The launcher's part in a run. Without such a launcher a failure ends the run.
struct Continuation {
  RankBoard* board = nullptr;       ///< null: no such launcher. It outlives the run
  std::string snapshots;            ///< folder in this host's memory, which outlives the ranks; empty: none
  std::int64_t snapshot_every = 0;  ///< steps between snapshots; 0: none
  /// Share of the time that copies for snapshots may take: one that comes too soon for that is not made. 0: all are made.
  double snapshot_share = 0;
  bool ranks_vary = false;          ///< nodes may be left out, and come back (--nnodes LEAST:M)

  /// True if earlier ranks of this run have told its observers or named its archive.
  bool observed() const noexcept { return board != nullptr && board->observed(); }
  bool archived() const noexcept { return board != nullptr && board->archived(); }
};

}  // namespace consist
