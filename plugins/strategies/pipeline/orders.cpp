#include "plugins/strategies/pipeline/orders.h"

#include <algorithm>
#include <utility>

namespace consist::pipeline {
namespace {

std::vector<Action> gpipe(int micro_batches, int rank) {
  std::vector<Action> order;
  for (int m = 0; m < micro_batches; ++m) order.push_back({Part::forward, m, rank});
  for (int m = 0; m < micro_batches; ++m) order.push_back({Part::backward, m, rank});
  return order;
}

/// `forwards` before the first backward, then in turn.
std::vector<Action> one_f_one_b(const std::vector<Action>& forwards, const std::vector<Action>& backwards, std::size_t warm_up) {
  std::vector<Action> order(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up));
  for (std::size_t b = 0; b < backwards.size(); ++b) {
    if (warm_up + b < forwards.size()) order.push_back(forwards[warm_up + b]);
    order.push_back(backwards[b]);
  }
  return order;
}

std::vector<Action> one_f_one_b(int warm_up, int micro_batches, int rank) {
  std::vector<Action> forwards, backwards;
  for (int m = 0; m < micro_batches; ++m) {
    forwards.push_back({Part::forward, m, rank});
    backwards.push_back({Part::backward, m, rank});
  }
  return one_f_one_b(forwards, backwards, static_cast<std::size_t>(std::min(warm_up, micro_batches)));
}

std::vector<Action> interleaved(int ranks, int chunks, int micro_batches, int rank) {
  // Micro-batches go in groups of as many as there are ranks, each group through all chunks. The order is made for whole groups;
  // missing ones of the last group are left out, which blocks no rank: micro-batches do not depend on each other.
  const int whole = (micro_batches + ranks - 1) / ranks * ranks;
  std::vector<Action> forwards, backwards;
  for (int first = 0; first < whole; first += ranks) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int m = first; m < first + ranks; ++m) {
        forwards.push_back({Part::forward, m, rank + ranks * chunk});
        backwards.push_back({Part::backward, m, rank + ranks * (chunks - 1 - chunk)});
      }
    }
  }
  const int warm_up = std::min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, whole * chunks);
  std::vector<Action> order = one_f_one_b(forwards, backwards, static_cast<std::size_t>(warm_up));
  std::erase_if(order, [&](const Action& action) { return action.micro_batch >= micro_batches; });
  return order;
}

/// Every rank keeps up to `kept` micro-batches, a multiple of the ranks: earlier stages run so many forward parts ahead, later
/// ones put so many weight gradients off, so that gradients reach the earlier stages the sooner.
std::vector<Action> zero_bubble(int kept, int ranks, int micro_batches, int rank) {
  // Each stage is ahead of the next one by the same number of forward parts. The last one waits for none.
  const int ahead = rank + 1 == ranks ? 0 : kept / ranks * (ranks - rank) - 1;
  std::vector<Action> order;
  int weights = 0;
  for (const Action& action : one_f_one_b(ahead, micro_batches, rank)) {
    order.push_back(action);
    if (action.part == Part::backward && action.micro_batch >= kept - 1 - ahead)
      order.push_back({Part::weight_gradient, weights++, rank});
  }
  while (weights < micro_batches) order.push_back({Part::weight_gradient, weights++, rank});
  return order;
}

}  // namespace

std::vector<Action> order_of(Schedule schedule, int ranks, int chunks, int micro_batches, int rank) {
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe(micro_batches, rank);
    case Schedule::one_f_one_b:
      return one_f_one_b(ranks - rank - 1, micro_batches, rank);
    case Schedule::interleaved:
      return interleaved(ranks, chunks, micro_batches, rank);
    case Schedule::zero_bubble:
      return zero_bubble(ranks, ranks, micro_batches, rank);
    case Schedule::zero_bubble_h2:
      return zero_bubble(2 * ranks, ranks, micro_batches, rank);
  }
  return {};
}

namespace {

/// Times of all ranks' parts if a forward part takes 1, a backward part 2 or, where weight gradients go apart, 1 and 1.
class UnitTimes {
 public:
  UnitTimes(Schedule schedule, int ranks, int chunks, int micro_batches)
      : stages_(ranks * chunks), micro_batches_(micro_batches), end_(static_cast<std::size_t>(3 * stages_ * micro_batches), -1) {
    const int backward = splits(schedule) ? 1 : 2;
    for (int rank = 0; rank < ranks; ++rank) orders_.push_back(order_of(schedule, ranks, chunks, micro_batches, rank));
    begin_.resize(orders_.size());
    std::vector<int> now(orders_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < orders_.size(); ++r) {
        while (begin_[r].size() < orders_[r].size()) {
          const Action& action = orders_[r][begin_[r].size()];
          const int ready = ready_at(action);
          if (ready < 0) break;
          begin_[r].push_back(std::max(now[r], ready));
          now[r] = end_[at(action)] = begin_[r].back() + (action.part == Part::backward ? backward : 1);
          moved = true;
        }
      }
    }
  }

  const std::vector<Action>& order(int rank) const { return orders_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& begin(int rank) const { return begin_[static_cast<std::size_t>(rank)]; }

  /// Time at which the part's messages have arrived; 0 if it receives nothing, -1 if not known yet.
  int received_at(const Action& action) const {
    if (action.part == Part::forward && action.stage > 0) return end_[at({action.part, action.micro_batch, action.stage - 1})];
    if (action.part == Part::backward && action.stage + 1 < stages_)
      return end_[at({action.part, action.micro_batch, action.stage + 1})];
    return 0;
  }

 private:
  std::size_t at(const Action& action) const {
    return static_cast<std::size_t>((static_cast<int>(action.part) * stages_ + action.stage) * micro_batches_ +
                                    action.micro_batch);
  }
  int ready_at(const Action& action) const {
    if (action.part == Part::backward && end_[at({Part::forward, action.micro_batch, action.stage})] < 0) return -1;
    return received_at(action);
  }

  int stages_, micro_batches_;
  std::vector<int> end_;  // by part, stage and micro-batch; -1: not known yet
  std::vector<std::vector<Action>> orders_;
  std::vector<std::vector<int>> begin_;
};

}  // namespace

std::vector<std::size_t> asked_before(Schedule schedule, int ranks, int chunks, int micro_batches, int rank) {
  const UnitTimes times(schedule, ranks, chunks, micro_batches);
  const std::vector<int>& begin = times.begin(rank);
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    // The last part that begins before the message is sent.
    const auto later = std::lower_bound(begin.begin(), begin.end(), times.received_at(times.order(rank)[i]));
    const auto running = static_cast<std::size_t>(std::max<std::ptrdiff_t>(later - begin.begin() - 1, 0));
    result.push_back(std::min(running, i == 0 ? 0 : i - 1));
  }
  return result;
}

double bubble_fraction(Schedule schedule, int ranks, int chunks, int micro_batches, double backward, double weight_gradient) {
  const double work = micro_batches * (1 + backward);
  double idle = (ranks - 1) * (1 + backward);
  if (schedule == Schedule::interleaved) idle /= chunks;
  if (schedule == Schedule::zero_bubble) idle = (ranks - 1) * (1 + backward - 2 * weight_gradient);
  if (schedule == Schedule::zero_bubble_h2) idle = ranks - 1;
  return idle / (work + idle);
}

}  // namespace consist::pipeline
