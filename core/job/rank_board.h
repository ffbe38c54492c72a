// Memory that a launcher shares with the ranks that it starts: where each rank is, why it ended, and why the present ranks were
// started in place of others. It outlives the ranks, however they end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/socket.h"

namespace consist {

/// Reason for which all ranks were replaced.
struct RestartReason {
  int restart = 0;        ///< counted from 1
  int most = 0;           ///< restarts that are allowed (--max-restarts)
  int rank = -1;          ///< the rank that failed
  std::int64_t step = 0;  ///< the step that it was in; 0: before the first
  std::string what;       ///< "rank 2 was ended by signal 9 (Killed) in step 57"; cut to 500 bytes
};

/// Nodes that were left out of a job, or came to it.
struct NodeChange {
  int ranks_before = 0, ranks = 0;  ///< of the job
  std::string left_out, came;       ///< numbers, "1, 3"; cut to 500 bytes
};

/// THREADS: any, in all processes that have mapped it.
class CONSIST_API RankBoard {
 public:
  /// For `ranks` local ranks, by the launcher. Throws SystemError.
  static RankBoard create(int ranks);
  /// In a rank: maps the board that it inherited as `fd`, which is owned from now on. Throws SystemError, UsageError for a
  /// descriptor that is no board.
  explicit RankBoard(int fd);
  ~RankBoard();
  RankBoard(RankBoard&& other) noexcept;
  RankBoard& operator=(RankBoard&&) = delete;
  int fd() const noexcept { return file_.fd(); }

  // Of ranks, by their local numbers.
  void begin_step(int rank, std::int64_t step) noexcept;
  /// The rank ends by an error. `blamed`: the rank of the job to blame for it, itself or another one.
  void end(int rank, int blamed, std::string_view why) noexcept;
  /// A step has ended now.
  void end_step(std::int64_t step) noexcept;
  /// Seconds since the step ended (0: since the board was made); nothing if that is not known any more.
  std::optional<double> seconds_since_step(std::int64_t step) const noexcept;

  /// Marks of earlier ranks of the run, with what they began later ones go on.
  void set_observed() noexcept;
  bool observed() const noexcept;  ///< observers were told of the run
  void set_archived() noexcept;
  bool archived() const noexcept;  ///< the archive has its name

  /// True once the launcher wants all ranks to end in good order, since others are to go on with more ranks.
  bool pause_requested() const noexcept;

  // Of the launcher.
  void request_pause() noexcept;
  struct End {
    std::int64_t step = 0;  ///< 0: before the first
    int blamed = -1;        ///< -1: the rank has told nothing
    std::string why;
  };
  End end_of(int rank) const;
  /// Clears what ranks have left, before other ones are started.
  void begin_generation();
  /// The same, for this reason.
  void begin_generation(const RestartReason& reason);

  /// The launcher tells that the next ranks are on other nodes than those before; the newest such change is kept.
  void tell_change(const NodeChange& change);
  /// The change that was told and not returned before, by whichever process.
  std::optional<NodeChange> take_change();
  /// Reasons that take_reasons() has not returned before, by whichever process, the oldest first; at most the newest 16.
  std::vector<RestartReason> take_reasons();

 private:
  struct Content;
  RankBoard(network::Socket file, int ranks);
  void map(std::size_t bytes);

  network::Socket file_;
  Content* content_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace consist
