#include "plugins/strategies/pipeline/estimate.h"

#include <algorithm>
#include <cstddef>

namespace consist::pipeline {
namespace {

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

void add(LayerWork& sum, const LayerWork& work, double share) {
  sum.forward += share * work.forward;
  sum.backward += share * work.backward;
  sum.weight_gradients += share * work.weight_gradients;
  sum.first_forward += share * work.first_forward;
  sum.last_backward += share * work.last_backward;
  sum.finish += share * work.finish;
  sum.kept_bytes += share * work.kept_bytes;
  sum.state_bytes += share * work.state_bytes;
}

/// Equal pieces of layers, as many of each as there are places to cut it. The work before and after the layers lies with
/// the first and the last one.
std::vector<LayerWork> pieces_of(const std::vector<LayerWork>& parts, Cut cut) {
  const int of_layer = cut == Cut::layers ? 1 : cut == Cut::operators ? 4 : 2;
  std::vector<LayerWork> pieces;
  for (std::size_t p = 1; p + 1 < parts.size(); ++p) {
    for (int n = 0; n < of_layer; ++n) add(pieces.emplace_back(), parts[p], 1.0 / of_layer);
  }
  add(pieces.front(), parts.front(), 1);
  add(pieces.back(), parts.back(), 1);
  return pieces;
}

/// Seconds by stage.
std::vector<LayerWork> stages_of(const EstimatedSchedule& asked, const StageRequest& request, int stages) {
  const std::vector<LayerWork> works = pieces_of(request.parts, asked.cut);
  std::vector<Piece> pieces;
  for (const LayerWork& work : works) {
    pieces.push_back({.cost = work.forward + work.backward,
                      .cut = 2 * crossing_share * request.message_seconds,
                      .lead = asked.schedule == Schedule::zero_bubble_h2 ? work.forward / request.micro_batches : 0});
  }
  const std::vector<int> stage_of = balanced(pieces, stages, asked.speeds);
  std::vector<LayerWork> result(index(stages));
  for (std::size_t p = 0; p < works.size(); ++p) add(result[index(stage_of[p])], works[p], 1);
  return result;
}

/// All ranks' parts in the order of the schedule.
class Play {
 public:
  Play(const EstimatedSchedule& asked, const StageRequest& request, std::vector<LayerWork> stages)
      : asked_(asked), request_(request), stages_(std::move(stages)) {
    const std::size_t parts = stages_.size() * index(request.micro_batches);
    sent_[0].assign(parts, -1);
    sent_[1].assign(parts, -1);
  }

  /// Seconds until each rank has run its last part.
  std::vector<double> run() {
    const int ranks = request_.ranks;
    std::vector<std::vector<Action>> orders;
    for (int r = 0; r < ranks; ++r) orders.push_back(order_of(asked_.schedule, ranks, asked_.chunks, request_.micro_batches, r));
    std::vector<std::size_t> next(orders.size(), 0);
    std::vector<double> now(orders.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < orders.size(); ++r) {
        for (; next[r] < orders[r].size(); ++next[r], moved = true) {
          const Action& action = orders[r][next[r]];
          const double ready = received_at(action);
          if (ready < 0) break;
          now[r] = std::max(now[r], ready) + seconds_of(action) / speed_of(r);
          if (action.part == Part::forward && action.micro_batch == 0) now[r] = std::max(now[r], gathered_at(action, r));
          if (action.part != Part::weight_gradient) sent_at(action) = now[r] - behind_message(action) / speed_of(r);
        }
      }
    }
    return now;
  }

  /// Most bytes that a rank keeps from forward to backward at one time.
  double kept_by(int rank) const {
    double kept = 0, most = 0;
    for (const Action& a : order_of(asked_.schedule, request_.ranks, asked_.chunks, request_.micro_batches, rank)) {
      const double bytes = stages_[index(a.stage)].kept_bytes;
      if (a.part == Part::forward) most = std::max(most, kept += bytes);
      if (a.part == (splits(asked_.schedule) ? Part::weight_gradient : Part::backward)) kept -= bytes;
    }
    return most;
  }

 private:
  double speed_of(std::size_t rank) const { return asked_.speeds.empty() ? 1 : asked_.speeds[rank]; }

  double seconds_of(const Action& action) const {
    const LayerWork& stage = stages_[index(action.stage)];
    // Gradients of a rank's other chunks are reduced beside backward parts that come later.
    const bool is_last = action.micro_batch + 1 == request_.micro_batches && action.stage < request_.ranks;
    const double more = is_last ? stage.last_backward : 0;
    if (action.part == Part::forward) return stage.forward;
    if (action.part == Part::weight_gradient) return stage.weight_gradients + more;
    return stage.backward + (splits(asked_.schedule) ? -stage.weight_gradients : more);
  }

  /// Time at which the parameters of a part and of those before it on the rank are gathered and used; gathers fill waits.
  double gathered_at(const Action& action, std::size_t rank) const {
    double seconds = 0;
    for (int stage = static_cast<int>(rank); stage <= action.stage; stage += request_.ranks)
      seconds += stages_[index(stage)].forward + stages_[index(stage)].first_forward;
    return seconds;
  }

  /// Seconds of a backward part that come behind its message.
  double behind_message(const Action& action) const {
    constexpr double put_off = 2.0 / 3;  // of the weight gradients: those that keep little
    if (action.part != Part::backward || splits(asked_.schedule) || !asked_.sends_first || request_.has_collectives) return 0;
    return put_off * stages_[index(action.stage)].weight_gradients;
  }

  double& sent_at(const Action& action) {
    return sent_[action.part == Part::forward ? 0 : 1][index(action.stage * request_.micro_batches + action.micro_batch)];
  }

  /// Earliest start of the part by the messages that it receives; -1: not known yet.
  double received_at(const Action& action) {
    if (action.part == Part::weight_gradient) return 0;
    Action sender = action;
    if (action.part == Part::backward && action.stage + 1 == static_cast<int>(stages_.size())) return 0;
    sender.stage += action.part == Part::forward ? -1 : 1;
    if (sender.stage < 0) return 0;
    const double sent = sent_at(sender);
    return sent < 0 ? -1 : sent + request_.message_seconds;
  }

  const EstimatedSchedule& asked_;
  const StageRequest& request_;
  std::vector<LayerWork> stages_;
  std::vector<double> sent_[2];  // forward and backward, by stage and micro-batch; -1: not yet
};

}  // namespace

StageEstimate estimate_stages(const EstimatedSchedule& asked, const StageRequest& request) {
  const int layers = static_cast<int>(request.parts.size()) - 2, count = request.ranks * asked.chunks;
  check_stages(layers, count);
  check_speeds(asked.speeds, request.ranks);
  const std::vector<LayerWork> stages = stages_of(asked, request, count);
  Play play(asked, request, stages);
  const std::vector<double> ends = play.run();
  StageEstimate result;
  for (int rank = 0; rank < request.ranks; ++rank) {
    double finish = 0, bytes = play.kept_by(rank);
    for (int s = rank; s < count; s += request.ranks) {
      finish += stages[index(s)].finish;
      bytes += stages[index(s)].state_bytes;
    }
    result.seconds = std::max(result.seconds, ends[index(rank)] + finish);
    result.bytes = std::max(result.bytes, bytes);
  }
  return result;
}

}  // namespace consist::pipeline
