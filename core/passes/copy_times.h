// Times at which copies of activations to the host and back run, by estimates of compute.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/begins.h"
#include "consist/cost.h"
#include "core/passes/kept_activations.h"

namespace consist {

/// A storage that is copied to the host and back, or one that stays. Positions are instructions of the program.
struct Move {
  Kept kept;
  bool stays = false;
  double seconds = 0;         ///< that it may be in flight in one direction: twice the time that the link needs
  InstructionId release = 0;  ///< after it the memory on the device is free
  InstructionId arrive = 0;   ///< before it the copies back are started
};

/// True if a is copied to the host, or back, before b.
bool leaves_before(const Move& a, const Move& b);
bool comes_back_before(const Move& a, const Move& b);

class CopyTimes {
 public:
  explicit CopyTimes(const Program& program);

  double seconds(const Program& program, const Kept& kept) const;

  /// Sets the releases: when copies have ended. Where more than `most` bytes would be in flight, compute waits for the oldest;
  /// storages that stay count as well, so that those before them are copied in any case.
  void leave(std::vector<Move>& moves, std::int64_t most) const;

  /// Sets the arrivals: as late as copies end in time. No more than about `most` bytes are back before they are read.
  void come_back(std::vector<Move>& moves, std::int64_t most) const;

 private:
  const CostModel& costs_;
  Begins begins_;
};

}  // namespace consist
