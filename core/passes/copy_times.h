// When copies of activations to the host and back run, by estimates of how long compute takes.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/cost.h"
#include "core/passes/kept_activations.h"

namespace consist {

/// A storage that goes to the host, and when, or one that stays. Positions are instructions of the program.
struct Move {
  Kept kept;
  bool stays = false;
  double seconds = 0;         ///< for which it may travel in one direction: twice what the link needs for it
  InstructionId release = 0;  ///< behind it the memory on the device is free
  InstructionId arrive = 0;   ///< in front of it the copies back are asked for
};

/// In the order in which they go to the host, and come back.
bool leaves_before(const Move& a, const Move& b);
bool comes_back_before(const Move& a, const Move& b);

class CopyTimes {
 public:
  explicit CopyTimes(const Program& program);

  double seconds(const Program& program, const Kept& kept) const;

  /// Sets the releases: when copies have ended. Where more than `most` bytes would be on their way, compute waits for the oldest;
  /// those that stay count as well, so that what goes in front of them leaves in any case.
  void leave(std::vector<Move>& moves, std::int64_t most) const;

  /// Sets the arrivals: as late as copies end in time. No more than about `most` bytes come before they are read.
  void come_back(std::vector<Move>& moves, std::int64_t most) const;

 private:
  double begin_of(InstructionId i) const { return begins_[static_cast<std::size_t>(i)]; }

  const CostModel& costs_;
  std::vector<double> begins_;  // by instruction, if compute never waits; behind them the end
};

}  // namespace consist
