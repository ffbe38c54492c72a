#include "plugins/strategies/zero/prefetch_distance.h"

#include <algorithm>

#include "consist/op.h"

namespace consist::zero {
namespace {

/// Bytes of a chunk of a rank's message. Transports that cut messages make chunks of about this size.
constexpr std::int64_t piece_bytes = std::int64_t{96} << 20;

}  // namespace

PrefetchDistance::PrefetchDistance(const Program& step, AxisSet axes) : costs_(step.costs), axes_(axes), begins_(step) {}

InstructionId PrefetchDistance::latest_begin(std::int64_t bytes, InstructionId needed) const {
  static const Op& gather = registry().get("all_gather");
  InstructionId at = needed;
  while (bytes > 0 && at > 0) {
    const std::int64_t piece = std::min(bytes, piece_bytes);
    const double seconds = costs_->transfer_seconds(gather, static_cast<double>(piece), axes_);
    at = begins_.last_until(begins_.of(at) - seconds, at);
    bytes -= piece;
  }
  return at;
}

}  // namespace consist::zero
