// Schedules of pipelines: the order in which stages run the forward and backward parts of micro-batches.
#pragma once

#include <cstdint>
#include <vector>

namespace consist::pipeline {

enum class Schedule : std::uint8_t {
  gpipe,        ///< all forward, then all backward (Huang et al., 2019)
  one_f_one_b,  ///< one forward, one backward: as few micro-batches in flight as the stages need (Narayanan et al., 2019)
  interleaved,  ///< the same with several chunks of the model per rank (Narayanan et al., 2021)
  zero_bubble,  ///< weight gradients fill the gaps: ZB-H1 (Qi et al., 2024)
  /// The same with twice as many micro-batches in flight: ZB-H2, and one more than its 2·ranks - 1, since gradients of inputs
  /// take longer than forward parts.
  zero_bubble_h2,
};

/// True if weight gradients are parts of their own.
constexpr bool splits(Schedule schedule) {
  return schedule == Schedule::zero_bubble || schedule == Schedule::zero_bubble_h2;
}

enum class Part : std::uint8_t {
  forward,
  backward,         ///< of the inputs alone where weight gradients are parts of their own
  weight_gradient,  ///< where the schedule splits() them off
};

struct Action {
  Part part = Part::forward;
  int micro_batch = 0;
  int stage = 0;  ///< rank + ranks·chunk: stage s runs on rank s % ranks
  bool operator==(const Action&) const = default;
};

/// Returns the actions of `rank` of `ranks`, in order. `chunks` is 1 for all schedules but interleaved. Micro-batches of a stage
/// keep their order, forward, backward and in weight gradients alike; any number of them >= 1 is served. Together the ranks'
/// orders are free of deadlocks.
std::vector<Action> order_of(Schedule schedule, int ranks, int chunks, int micro_batches, int rank);

/// By index into order_of(): the part of that order before which the rank posts the receives of the part. At the latest one part
/// ahead, so that messages are in flight while that one computes; and before they are sent, if all stages are equal. No memory is
/// then taken by messages without a posted receive, and all that ranks wait for lies earlier in that order, so that they cannot
/// block each other, however long parts really take.
std::vector<std::size_t> asked_before(Schedule schedule, int ranks, int chunks, int micro_batches, int rank);

/// The bubble fraction: the share of time in which a rank is idle if all stages are equal and a backward part takes as long as
/// `backward` forward ones, its weight gradients `weight_gradient` (included in `backward`): the published formulas, for at least
/// as many micro-batches as ranks; for interleaved the number must be a multiple of the ranks. That of zero_bubble_h2, which the
/// paper runs without an end of the step that all ranks share, is for 2, 1 and at least 2·ranks micro-batches.
double bubble_fraction(Schedule schedule, int ranks, int chunks, int micro_batches, double backward = 2,
                       double weight_gradient = 1);

}  // namespace consist::pipeline
