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

std::vector<Action> one_f_one_b(int ranks, int micro_batches, int rank) {
  std::vector<Action> forwards, backwards;
  for (int m = 0; m < micro_batches; ++m) {
    forwards.push_back({Part::forward, m, rank});
    backwards.push_back({Part::backward, m, rank});
  }
  return one_f_one_b(forwards, backwards, static_cast<std::size_t>(std::min(ranks - rank - 1, micro_batches)));
}

std::vector<Action> interleaved(int ranks, int chunks, int micro_batches, int rank) {
  // Micro-batches go in groups of as many as there are ranks, each group through all chunks. The order is made for whole groups; what the
  // last group lacks is left out, which blocks nobody since micro-batches do not depend on each other.
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

std::vector<Action> zero_bubble(int ranks, int micro_batches, int rank) {
  // Stage r puts its weight gradients off by r micro-batches: gradients reach the earlier stages the sooner, and no stage keeps more
  // micro-batches than the first one does anyway.
  std::vector<Action> order;
  int weights = 0;
  for (const Action& action : one_f_one_b(ranks, micro_batches, rank)) {
    order.push_back(action);
    if (action.part == Part::backward && action.micro_batch >= rank) order.push_back({Part::weight_gradient, weights++, rank});
  }
  while (weights < micro_batches) order.push_back({Part::weight_gradient, weights++, rank});
  return order;
}

}  // namespace

std::vector<Action> order_of(Schedule schedule, int ranks, int chunks, int micro_batches, int rank) {
  switch (schedule) {
    case Schedule::gpipe: return gpipe(micro_batches, rank);
    case Schedule::one_f_one_b: return one_f_one_b(ranks, micro_batches, rank);
    case Schedule::interleaved: return interleaved(ranks, chunks, micro_batches, rank);
    case Schedule::zero_bubble: return zero_bubble(ranks, micro_batches, rank);
  }
  return {};
}

double idle_share(Schedule schedule, int ranks, int chunks, int micro_batches, double backward, double weight_gradient) {
  const double work = micro_batches * (1 + backward);
  double idle = (ranks - 1) * (1 + backward);
  if (schedule == Schedule::interleaved) idle /= chunks;
  if (schedule == Schedule::zero_bubble) idle = (ranks - 1) * (1 + backward - 2 * weight_gradient);
  return idle / (work + idle);
}

}  // namespace consist::pipeline
