// Gathers of parameters: in buckets ahead of use, freed when they are not needed for a while.
#pragma once

#include <span>
#include <vector>

#include "consist/edit.h"
#include "plugins/strategies/zero/prefetch_distance.h"
#include "plugins/strategies/zero/settings.h"
#include "plugins/strategies/zero/strip.h"

namespace consist::zero {

/// A period of the step in which a parameter is unsharded.
struct Period {
  TensorId source = no_tensor;
  std::int64_t elements = 0;      ///< unsharded, on this rank
  std::vector<std::size_t> uses;  ///< indices of the uses that it serves
  InstructionId ready = -1;       ///< the instruction after which it can be gathered at the earliest
  InstructionId first = 0, last = 0;
  bool kept = false;  ///< kept to the step's last use: small, or all of them
};

/// Periods in the order of their first use. A parameter is freed after a use unless it is small, or is used again before more
/// than `max_reuse_distance` elements of others are; of those that are kept unused, the ones needed last are freed first when
/// more than `max_live` elements would be unsharded.
std::vector<Period> plan_periods(const Program& step, std::span<const Use> uses, const Settings& settings);

/// Periods that one instruction gathers, and its place.
struct GatherBucket {
  std::vector<std::size_t> periods;
  InstructionId before = 0;  ///< the instruction before which it goes
};

/// Buckets in the order in which they are to be issued: those of kept parameters first, at the start of the step; the others each
/// when the bucket before it begins to be used. A parameter that is larger than a bucket begins earlier if it would not be there
/// in time, and so do those that must then be done before it, up to as many elements as it has. All begin later
/// where `max_live` elements would be exceeded. `sent_bytes`: by period, bytes that a rank sends.
std::vector<GatherBucket> plan_gathers(std::span<const Period> periods, std::span<const std::int64_t> sent_bytes,
                                       const PrefetchDistance& prefetch_distance, const Settings& settings);

/// Inserts the gathers and makes the uses read their outputs.
void insert_gathers(Program& step, Inserter& inserter, std::span<const Use> uses, AxisSet axes, const Settings& settings);

}  // namespace consist::zero
