// Checks by brute force what a planned program must keep: fit for small programs only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "consist/op.h"
#include "core/lower/memory_plan.h"
#include "core/lower/waits.h"
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

/// Pairs of instructions of different queues that touch the same bytes, one of them writing.
struct Conflicts {
  int all = 0;
  std::vector<std::string> unordered;  ///< those that no waits order
};

/// `workspace_bytes` as the plan had them: one entry per instruction, or none at all.
inline Conflicts find_conflicts(const Program& p, const MemoryPlan& plan, std::span<const std::int64_t> workspace_bytes = {}) {
  const std::size_t n = p.instructions.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));  // before[i][j]: j is over when i starts
  const QueueTable queues(p);
  std::vector<int> newest(queues.size(), -1);
  for (std::size_t i = 0; i < n; ++i) {
    if (!p.instructions[i].op->touches_memory()) continue;
    std::vector<int> sources(p.instructions[i].waits.begin(), p.instructions[i].waits.end());
    int& mine = newest[queues.number_of(p.instructions[i].queue)];
    if (mine >= 0) sources.push_back(mine);
    for (int s : sources) {
      before[i][static_cast<std::size_t>(s)] = true;
      for (std::size_t j = 0; j < i; ++j) before[i][j] = before[i][j] || before[static_cast<std::size_t>(s)][j];
    }
    mine = static_cast<int>(i);
  }
  struct Access {
    MemorySpace space;
    std::int64_t begin, end;
    bool writes;
  };
  std::vector<std::vector<Access>> accesses(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Instruction& instruction = p.instructions[i];
    if (!instruction.op->touches_memory()) continue;
    const auto add = [&](TensorId id, bool writes) {
      if (id == no_tensor) return;
      const std::int64_t begin = plan.address[static_cast<std::size_t>(id)];
      accesses[i].push_back({p[id].space, begin, begin + p.bytes(id), writes});
    };
    for (TensorId id : instruction.inputs) add(id, false);
    for (TensorId id : instruction.outputs) add(id, true);
    if (!workspace_bytes.empty() && plan.workspace[i] >= 0)
      accesses[i].push_back({MemorySpace::device, plan.workspace[i], plan.workspace[i] + workspace_bytes[i], true});
  }
  Conflicts conflicts;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (p.instructions[i].queue == p.instructions[j].queue) continue;
      const bool conflict = std::any_of(accesses[i].begin(), accesses[i].end(), [&](const Access& a) {
        return std::any_of(accesses[j].begin(), accesses[j].end(), [&](const Access& b) {
          return (a.writes || b.writes) && a.space == b.space && a.begin < b.end && b.begin < a.end;
        });
      });
      if (!conflict) continue;
      ++conflicts.all;
      if (!before[i][j])
        conflicts.unordered.push_back(to_text(p, static_cast<InstructionId>(i)) + "\n must come after\n" +
                                      to_text(p, static_cast<InstructionId>(j)));
    }
  }
  return conflicts;
}

/// Every such pair is ordered by waits. Returns their number.
inline int expect_conflicts_are_ordered(const Program& p, const MemoryPlan& plan,
                                        std::span<const std::int64_t> workspace_bytes = {}) {
  const Conflicts conflicts = find_conflicts(p, plan, workspace_bytes);
  for (const std::string& pair : conflicts.unordered) ADD_FAILURE() << pair;
  return conflicts.all;
}

}  // namespace consist::test
