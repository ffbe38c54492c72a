#include "core/passes/copy_times.h"

#include <algorithm>
#include <utility>

#include "consist/op.h"

namespace consist {
namespace {

/// Estimates are no promises, and the link may be busy in the other direction.
constexpr double times_the_estimate = 2;

/// A copy on its queue. Times are those of compute, as if it never waited.
struct Trip {
  bool stays = false;  ///< made and read as the others are, and not copied
  double ready = 0, seconds = 0;
  std::int64_t bytes = 0;
  double end = 0;  ///< at the latest when the next copy that must wait for it is ready
};

/// Schedules the copies of one queue: sets their ends. At most `most` bytes are in flight: before a copy that would exceed them,
/// compute waits for the oldest ones.
void travel(std::vector<Trip>& trips, std::int64_t most) {
  std::vector<double> real_ends;
  double free = 0, late = 0;  // when the queue is; for how long compute has waited so far
  std::int64_t bytes = 0;
  std::size_t oldest = 0;
  if (!trips.empty()) free = trips.front().ready;
  for (std::size_t n = 0; n < trips.size(); ++n) {
    Trip& trip = trips[n];
    bytes += trip.bytes;
    for (; bytes > most && oldest < n; ++oldest) {
      late = std::max(late, real_ends[oldest] - trip.ready);
      trips[oldest].end = std::min(trips[oldest].end, trip.ready);
      bytes -= trips[oldest].bytes;
    }
    if (trip.stays) {
      real_ends.push_back(trip.ready);
      continue;
    }
    free = std::max(free, trip.ready + late) + trip.seconds;
    real_ends.push_back(free);
    trip.end = free - late;
  }
}

}  // namespace

bool leaves_before(const Move& a, const Move& b) {
  return std::pair(a.kept.written, a.kept.storage) < std::pair(b.kept.written, b.kept.storage);
}

bool comes_back_before(const Move& a, const Move& b) {
  return std::pair(a.kept.first_use, a.kept.storage) < std::pair(b.kept.first_use, b.kept.storage);
}

CopyTimes::CopyTimes(const Program& program) : costs_(costs_of(program)), begins_(program, costs_.durations(program)) {}

double CopyTimes::seconds(const Program& program, const Kept& kept) const {
  static const Op& copy = registry().get("copy");
  double sum = 0;
  for (TensorId value : kept.values) {
    Instruction one;
    one.op = &copy;
    one.inputs = one.outputs = {value};
    one.queue = Queue::device_to_host();
    sum += costs_.seconds(program, one);
  }
  return times_the_estimate * sum;
}

void CopyTimes::leave(std::vector<Move>& moves, std::int64_t most) const {
  std::sort(moves.begin(), moves.end(), leaves_before);
  std::vector<Trip> trips;
  for (const Move& move : moves) trips.push_back({move.stays, begins_.of(move.kept.written + 1), move.seconds, move.kept.bytes});
  travel(trips, most);
  for (std::size_t m = 0; m < moves.size(); ++m) {
    moves[m].release = std::max(moves[m].kept.last_forward, begins_.first_from(trips[m].end) - 1);
  }
}

void CopyTimes::come_back(std::vector<Move>& moves, std::int64_t most) const {
  // The same from the end: there a copy begins where one to the host ends.
  std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return comes_back_before(b, a); });
  std::vector<Trip> trips;
  for (const Move& move : moves) trips.push_back({move.stays, -begins_.of(move.kept.first_use), move.seconds, move.kept.bytes});
  travel(trips, most);
  for (std::size_t m = 0; m < moves.size(); ++m) {
    moves[m].arrive = begins_.last_until(-trips[m].end, moves[m].kept.first_use + 1);
  }
}

}  // namespace consist
