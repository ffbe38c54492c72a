#include "launch/start/continuation.h"

#include "consist/error.h"
#include "core/base/number.h"

namespace consist::launch {

ReplacingLauncher::ReplacingLauncher(const GetEnvironment& environment) {
  const std::optional<std::string> number = environment(board_variable);
  if (!number || number->empty()) return;
  int fd = -1;
  if (!parse_number(*number, fd) || fd < 0)
    throw UsageError(std::string("the environment variable ") + board_variable + " is '" + *number +
                     "', which is no file descriptor; consist launch sets it, nobody else should");
  board_.emplace(fd);
  snapshots_ = environment(snapshots_variable).value_or("");
  const std::optional<std::string> most = environment(most_ranks_variable);
  if (most && (!parse_number(*most, most_ranks_) || most_ranks_ < 1))
    throw UsageError(std::string("the environment variable ") + most_ranks_variable + " is '" + *most +
                     "', which is no number of ranks; consist launch sets it, nobody else should");
}

Continuation ReplacingLauncher::continuation(std::int64_t snapshot_every, double snapshot_share) {
  return {board_ ? &*board_ : nullptr, snapshots_, snapshot_every, snapshot_share, most_ranks_ > 0};
}

void ReplacingLauncher::tell_end(int local_rank, int blamed, const char* why) noexcept {
  if (board_) board_->end(local_rank, blamed, why);
}

}  // namespace consist::launch
