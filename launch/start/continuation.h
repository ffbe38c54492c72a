// Words of a launcher that replaces failed ranks to these, in their environment.
#pragma once

#include <optional>

#include "core/job/continuation.h"
#include "core/job/environment.h"
#include "core/job/rank_board.h"

namespace consist::launch {

inline constexpr const char* board_variable = "CONSIST_JOB_BOARD_FD";       ///< the RankBoard's inherited descriptor
inline constexpr const char* snapshots_variable = "CONSIST_JOB_SNAPSHOTS";  ///< Continuation::snapshots
inline constexpr const char* most_ranks_variable = "CONSIST_JOB_MOST_RANKS";  ///< LocalJob::at_most

/// A rank's side of its launcher; empty where no such launcher has started this process.
class ReplacingLauncher {
 public:
  /// Throws UsageError for variables that make no sense.
  explicit ReplacingLauncher(const GetEnvironment& environment);

  bool is_there() const noexcept { return board_.has_value(); }
  Continuation continuation(std::int64_t snapshot_every, double snapshot_share = 0);
  /// The ranks that the job was asked to have, of which nodes that are left out may be missing; 0: those that it has.
  int most_ranks() const noexcept { return most_ranks_; }
  /// Tells that the rank with this local number ends by an error; `blamed` is the rank of the job that is to blame.
  void tell_end(int local_rank, int blamed, const char* why) noexcept;

 private:
  std::optional<RankBoard> board_;
  std::string snapshots_;
  int most_ranks_ = 0;
};

}  // namespace consist::launch
