#include "core/passes/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "core/passes/memory_plan.h"
#include "core/passes/waits.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"
#include "tests/golden_text.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using test::Case;
using test::DataParallel;
using test::expect_golden;
using test::planned;

TEST(Golden, OneRank) { expect_golden("one_rank", to_text(planned(Case(1).step()))); }
TEST(Golden, AccumulationUntied) {
  expect_golden("accumulation_untied", to_text(planned(Case(1, 2, true, {.layers = 1, .tied = false}).step())));
}
TEST(Golden, DataParallelBf16) {
  expect_golden("data_parallel_bf16", to_text(planned(Case(2, 2, true, {.layers = 1}, test::mixed_bf16).step())));
}
TEST(Golden, Evaluation) {
  Case c(2);
  expect_golden("evaluation", to_text(planned(compile_evaluation(c.request, c.layout))));
}

TEST(Compile, EveryGradientIsReducedOnceWithoutAStrategysHelp) {
  Case c(4, 3, false);
  const Program p = c.step();
  std::size_t reduced = 0;
  for (const Instruction& i : p.instructions) reduced += i.op->name() == "all_reduce" && p[i.inputs[0]].role == Role::gradient;
  EXPECT_EQ(reduced, p.parameters.size());
}

TEST(Compile, TiedEmbeddingHasOneGradientWithBothContributions) {
  const Program p = Case(1).step();
  for (const Instruction& i : p.instructions) {
    if (i.op->name() == "embedding_grad") {
      ASSERT_EQ(i.inputs.size(), 3U);
      EXPECT_NE(i.inputs[2], no_tensor) << "the LM head's gradient must be accumulated into";
      return;
    }
  }
  FAIL() << "there is no embedding_grad";
}

TEST(Layout, RefusesWhatDoesNotFit) {
  DataParallel s(true);
  EXPECT_THROW(lay_out({{"data", &s, 3}}, 4), UsageError);
  EXPECT_THROW(lay_out({{"data", &s, 0}, {"data", &s, 0}}, 4), UsageError);
  EXPECT_THROW(lay_out({{"data", &s, 2}, {"data", &s, 2}}, 4), UsageError);
  EXPECT_EQ(lay_out({{"data", &s, 0}}, 1).mesh.axes(), 0);
}

/// Live storages never share addresses, checked by brute force.
TEST(MemoryPlan, NoTwoLiveTensorsOverlap) {
  MemoryPlan plan;
  const Program p = planned(Case(2, 3).step(), &plan);
  struct Life {
    std::int64_t begin, end;
    int first, last;
  };
  std::vector<Life> lives;
  for (std::size_t t = 0; t < p.tensors.size(); ++t) {
    if (p.tensors[t].storage != static_cast<TensorId>(t) || plan.address[t] < 0) continue;
    const bool persistent = p.tensors[t].state || p.tensors[t].role == Role::input || p.tensors[t].role == Role::metric;
    Life life{plan.address[t], plan.address[t] + p.bytes(static_cast<TensorId>(t)), persistent ? 0 : 1 << 30,
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
    EXPECT_LE(life.end, plan.bytes[0]);
    lives.push_back(life);
  }
  for (std::size_t a = 0; a < lives.size(); ++a) {
    for (std::size_t b = a + 1; b < lives.size(); ++b) {
      const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool overlap = lives[a].begin < lives[b].end && lives[b].begin < lives[a].end;
      EXPECT_FALSE(together && overlap);
    }
  }
}

/// Every two instructions of different queues that touch the same bytes, one of them writing, are ordered by waits.
TEST(Waits, OrderEveryConflict) {
  MemoryPlan plan;
  const Program p = planned(Case(2, 2).step(), &plan);
  const std::size_t n = p.instructions.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));  // before[i][j]: j is over when i starts
  std::vector<int> newest(Queue::count, -1);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<int> sources(p.instructions[i].waits.begin(), p.instructions[i].waits.end());
    int& mine = newest[static_cast<std::size_t>(p.instructions[i].queue.index())];
    if (mine >= 0) sources.push_back(mine);
    for (int s : sources) {
      before[i][static_cast<std::size_t>(s)] = true;
      for (std::size_t j = 0; j < i; ++j) before[i][j] = before[i][j] || before[static_cast<std::size_t>(s)][j];
    }
    mine = static_cast<int>(i);
  }
  auto overlaps = [&](TensorId a, TensorId b) {
    if (a == no_tensor || b == no_tensor) return false;
    const std::int64_t x = plan.address[static_cast<std::size_t>(a)], y = plan.address[static_cast<std::size_t>(b)];
    return x < y + p.bytes(b) && y < x + p.bytes(a);
  };
  int conflicts = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Instruction &a = p.instructions[i], &b = p.instructions[j];
      if (a.queue == b.queue) continue;
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
  EXPECT_GT(conflicts, 0);
}

TEST(Compile, RanksOfOneLayoutDoNotBlockEachOther) {
  const Program p = planned(Case(3, 2, false).step());
  const Program* ranks[] = {&p, &p, &p};
  EXPECT_NO_THROW(verify_collectives(ranks));
}

}  // namespace
}  // namespace consist
