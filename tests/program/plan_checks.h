// What a planned program must keep, checked by brute force: fit for small programs only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "consist/op.h"
#include "core/passes/memory_plan.h"
#include "core/passes/waits.h"
#include "core/program/printer.h"

namespace consist::test {

/// Storages of one memory space that live at the same time never share addresses.
inline void expect_no_two_live_tensors_overlap(const Program& p, const MemoryPlan& plan) {
  struct Life {
    MemorySpace space;
    std::int64_t begin, end;
    int first, last;
  };
  std::vector<Life> lives;
  for (std::size_t t = 0; t < p.tensors.size(); ++t) {
    const Tensor& tensor = p.tensors[t];
    if (tensor.storage != static_cast<TensorId>(t) || plan.address[t] < 0) continue;
    const bool persistent = tensor.state || tensor.role == Role::input || tensor.role == Role::metric;
    Life life{tensor.space, plan.address[t], plan.address[t] + p.bytes(static_cast<TensorId>(t)), persistent ? 0 : 1 << 30,
              persistent ? 1 << 30 : -1};
    for (std::size_t i = 0; i < p.instructions.size() && !persistent; ++i) {
      for (const auto* list : {&p.instructions[i].inputs, &p.instructions[i].outputs}) {
        for (TensorId id : *list) {
          if (id == no_tensor || p[id].storage != static_cast<TensorId>(t)) continue;
          life.first = std::min(life.first, static_cast<int>(i));
          life.last = std::max(life.last, static_cast<int>(i));
        }
      }
    }
    EXPECT_LE(life.end, plan.bytes[static_cast<std::size_t>(tensor.space)]);
    lives.push_back(life);
  }
  for (std::size_t a = 0; a < lives.size(); ++a) {
    for (std::size_t b = a + 1; b < lives.size(); ++b) {
      if (lives[a].space != lives[b].space) continue;
      const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool overlap = lives[a].begin < lives[b].end && lives[b].begin < lives[a].end;
      EXPECT_FALSE(together && overlap);
    }
  }
}

/// Every two instructions of different queues that touch the same bytes, one of them writing, are ordered by waits. Returns the
/// number of such pairs.
inline int expect_conflicts_are_ordered(const Program& p, const MemoryPlan& plan) {
  const std::size_t n = p.instructions.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));  // before[i][j]: j is over when i starts
  std::vector<int> newest(Queue::count, -1);
  for (std::size_t i = 0; i < n; ++i) {
    if (!p.instructions[i].op->touches_memory()) continue;
    std::vector<int> sources(p.instructions[i].waits.begin(), p.instructions[i].waits.end());
    int& mine = newest[static_cast<std::size_t>(p.instructions[i].queue.index())];
    if (mine >= 0) sources.push_back(mine);
    for (int s : sources) {
      before[i][static_cast<std::size_t>(s)] = true;
      for (std::size_t j = 0; j < i; ++j) before[i][j] = before[i][j] || before[static_cast<std::size_t>(s)][j];
    }
    mine = static_cast<int>(i);
  }
  const auto overlaps = [&](TensorId a, TensorId b) {
    if (a == no_tensor || b == no_tensor || p[a].space != p[b].space) return false;
    const std::int64_t x = plan.address[static_cast<std::size_t>(a)], y = plan.address[static_cast<std::size_t>(b)];
    return x < y + p.bytes(b) && y < x + p.bytes(a);
  };
  int conflicts = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Instruction &a = p.instructions[i], &b = p.instructions[j];
      if (a.queue == b.queue || !a.op->touches_memory() || !b.op->touches_memory()) continue;
      bool conflict = false;
      for (TensorId out : a.outputs) {
        for (TensorId t : b.inputs) conflict |= overlaps(out, t);
        for (TensorId t : b.outputs) conflict |= overlaps(out, t);
      }
      for (TensorId in : a.inputs) {
        for (TensorId t : b.outputs) conflict |= overlaps(in, t);
      }
      if (!conflict) continue;
      ++conflicts;
      EXPECT_TRUE(before[i][j]) << to_text(p, static_cast<InstructionId>(i)) << "\n must come after\n"
                                << to_text(p, static_cast<InstructionId>(j));
    }
  }
  return conflicts;
}

}  // namespace consist::test
