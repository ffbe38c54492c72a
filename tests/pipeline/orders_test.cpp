// Orders of all schedules: complete, free of deadlocks, and as idle as the published formulas say.
#include "plugins/strategies/pipeline/orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace consist::pipeline {
namespace {

constexpr Schedule schedules[] = {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble,
                                  Schedule::zero_bubble_h2};

std::vector<std::vector<Action>> orders(Schedule schedule, int ranks, int chunks, int micro_batches) {
  std::vector<std::vector<Action>> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(order_of(schedule, ranks, chunks, micro_batches, rank));
  return result;
}

/// Time until all ranks are done, each in its order; nothing if they block each other. An independent model of the dependencies.
std::optional<double> finish(const std::vector<std::vector<Action>>& order, int stages, const std::map<Part, double>& cost) {
  std::map<std::tuple<Part, int, int>, double> done;
  std::vector<std::size_t> at(order.size(), 0);
  std::vector<double> now(order.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < order.size(); ++r) {
      for (; at[r] < order[r].size(); ++at[r], moved = true) {
        const Action a = order[r][at[r]];
        double start = now[r];
        bool ready = true;
        auto after = [&](Part part, int stage) {
          auto found = done.find({part, a.micro_batch, stage});
          ready = ready && found != done.end();
          if (found != done.end()) start = std::max(start, found->second);
        };
        if (a.part == Part::forward && a.stage > 0) after(Part::forward, a.stage - 1);
        if (a.part == Part::backward) after(Part::forward, a.stage);
        if (a.part == Part::backward && a.stage + 1 < stages) after(Part::backward, a.stage + 1);
        if (a.part == Part::weight_gradient) after(Part::backward, a.stage);
        if (!ready) break;
        done[{a.part, a.micro_batch, a.stage}] = now[r] = start + cost.at(a.part);
      }
    }
  }
  for (std::size_t r = 0; r < order.size(); ++r) {
    if (at[r] != order[r].size()) return std::nullopt;
  }
  return *std::max_element(now.begin(), now.end());
}

std::map<Part, double> costs_of(Schedule schedule) {
  return {{Part::forward, 1}, {Part::backward, splits(schedule) ? 1 : 2}, {Part::weight_gradient, 1}};
}

TEST(Orders, EveryPartOnceInOrderAndWithoutDeadlock) {
  for (Schedule schedule : schedules) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int chunks = 1; chunks <= (schedule == Schedule::interleaved ? 4 : 1); ++chunks) {
        for (int micro_batches = 1; micro_batches <= 19; ++micro_batches) {
          const auto all = orders(schedule, ranks, chunks, micro_batches);
          for (int rank = 0; rank < ranks; ++rank) {
            std::map<std::pair<Part, int>, int> next;  // by part and stage
            for (const Action& a : all[static_cast<std::size_t>(rank)]) {
              ASSERT_EQ(a.stage % ranks, rank);
              const int expected = next[std::pair(a.part, a.stage)]++;
              ASSERT_EQ(a.micro_batch, expected);
            }
            const std::size_t parts = splits(schedule) ? 3 : 2;
            ASSERT_EQ(next.size(), parts * static_cast<std::size_t>(chunks));
            for (const auto& [key, count] : next) ASSERT_EQ(count, micro_batches);
          }
          ASSERT_TRUE(finish(all, ranks * chunks, costs_of(schedule)))
              << "schedule " << static_cast<int>(schedule) << " ranks " << ranks << " chunks " << chunks << " micro-batches "
              << micro_batches;
        }
      }
    }
  }
}

TEST(Orders, BubbleFractionIsThatOfTheFormula) {
  for (Schedule schedule : schedules) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int chunks = 1; chunks <= (schedule == Schedule::interleaved ? 4 : 1); ++chunks) {
        for (int micro_batches = ranks; micro_batches <= 24; ++micro_batches) {
          if (schedule == Schedule::interleaved && micro_batches % ranks != 0) continue;
          if (schedule == Schedule::zero_bubble_h2 && micro_batches < 2 * ranks) continue;
          const double end = finish(orders(schedule, ranks, chunks, micro_batches), ranks * chunks, costs_of(schedule)).value();
          const double busy = 3.0 * chunks * micro_batches;
          ASSERT_NEAR(1 - busy / end, bubble_fraction(schedule, ranks, chunks, micro_batches), 1e-12)
              << "schedule " << static_cast<int>(schedule) << " ranks " << ranks << " chunks " << chunks << " micro-batches "
              << micro_batches;
        }
      }
    }
  }
}

/// Most micro-batches in flight on a rank, each from its forward part to the end of its backward (or weight gradient) part.
int most_in_flight(const std::vector<Action>& order) {
  const bool apart = std::any_of(order.begin(), order.end(), [](const Action& a) { return a.part == Part::weight_gradient; });
  int now = 0, most = 0;
  for (const Action& a : order) {
    if (a.part == Part::forward) most = std::max(most, ++now);
    if (a.part == (apart ? Part::weight_gradient : Part::backward)) --now;
  }
  return most;
}

TEST(Orders, MicroBatchesInFlight) {
  constexpr int ranks = 4, micro_batches = 16;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(most_in_flight(order_of(Schedule::gpipe, ranks, 1, micro_batches, rank)), micro_batches);
    EXPECT_EQ(most_in_flight(order_of(Schedule::one_f_one_b, ranks, 1, micro_batches, rank)), ranks - rank);
    EXPECT_EQ(most_in_flight(order_of(Schedule::zero_bubble, ranks, 1, micro_batches, rank)), ranks);
    EXPECT_EQ(most_in_flight(order_of(Schedule::zero_bubble_h2, ranks, 1, micro_batches, rank)), 2 * ranks);
  }
}

}  // namespace
}  // namespace consist::pipeline
