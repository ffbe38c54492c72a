// Waits between queues: in pipelines, tensor parallelism and compositions every conflict on memory is ordered, that on workspaces
// included, and a wait that is missing is found.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "consist/op.h"
#include "tests/pipeline/programs.h"
#include "tests/program/plan_checks.h"

namespace consist {
namespace {

using test::compile;
using test::Configuration;

struct Planned {
  Program program;
  MemoryPlan plan;
  std::vector<std::int64_t> workspaces;
};

/// Plans it anew, with kernels that need scratch, as those of a GPU do.
Planned with_workspaces(Program program) {
  Planned result{std::move(program), {}, {}};
  for (const Instruction& i : result.program.instructions) {
    const bool works = i.queue == Queue::compute() && i.op->touches_memory();
    result.workspaces.push_back(works ? 1024 : 0);
  }
  result.plan = plan_memory(result.program, result.workspaces);
  insert_waits(result.program, result.plan, result.workspaces);
  return result;
}

class WaitsBetweenQueues : public ::testing::Test {
 protected:
  /// Programs of one place on the axes within a stage, of every stage.
  std::vector<Planned> plans(const Configuration& configuration) {
    std::vector<Planned> result;
    const std::vector<Program> programs = compile(host_, configuration);
    for (std::size_t rank = 0; rank < programs.size(); rank += programs.size() / static_cast<std::size_t>(configuration.stages))
      result.push_back(with_workspaces(programs[rank]));
    return result;
  }

  PluginHost host_{std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

TEST_F(WaitsBetweenQueues, OrderEveryConflictOnMemory) {
  const test::TinyShape shape{.layers = 2, .heads = 4, .kv_heads = 2}, deep{.layers = 4};
  const Configuration all[] = {{.micro_batches = 3, .shape = deep},
                               {.schedule = "gpipe", .micro_batches = 2, .shape = deep, .cut = "operators"},
                               {.schedule = "interleaved", .micro_batches = 2, .shape = deep},
                               {.schedule = "zero-bubble", .micro_batches = 3, .shape = shape},
                               {.schedule = "zero-bubble-h2", .micro_batches = 4, .shape = shape},
                               {.micro_batches = 2, .shape = deep, .cut = "blocks", .recompute = "full"},
                               {.stages = 1, .micro_batches = 2, .shape = shape, .tensor = 2},
                               {.stages = 1, .data = 2, .micro_batches = 2, .shape = shape, .over_data = "zero2", .tensor = 2},
                               {.micro_batches = 2, .shape = shape, .tensor = 2},
                               {.data = 2, .micro_batches = 2, .shape = shape, .tensor = 2},
                               {.data = 2, .micro_batches = 2, .shape = shape, .over_data = "zero3-offload"},
                               {.data = 2, .micro_batches = 2, .shape = shape, .over_data = "zero2", .tensor = 2}};
  for (const Configuration& configuration : all) {
    for (const Planned& planned : plans(configuration)) {
      SCOPED_TRACE(configuration.text() + ", rank " + std::to_string(planned.program.rank));
      EXPECT_GT(test::expect_conflicts_are_ordered(planned.program, planned.plan, planned.workspaces), 10);
    }
  }
}

TEST_F(WaitsBetweenQueues, EachOneThatIsMissingIsFound) {
  const Configuration configuration{.micro_batches = 2, .shape = {.layers = 2, .heads = 4, .kv_heads = 2}, .tensor = 2};
  for (Planned& planned : plans(configuration)) {
    int removed = 0;
    for (Instruction& instruction : planned.program.instructions) {
      if (instruction.waits.empty() || instruction.op->name() == "adamw" || removed++ % 8 != 0) continue;
      const std::vector<InstructionId> waits = std::exchange(instruction.waits, {});
      EXPECT_FALSE(test::find_conflicts(planned.program, planned.plan, planned.workspaces).unordered.empty())
          << instruction.op->name() << " of rank " << planned.program.rank;
      instruction.waits = waits;
    }
    EXPECT_GT(removed, 16);
  }
}

// A collective's memory is given to scratch as soon as its last reader has been issued.
TEST_F(WaitsBetweenQueues, ThoseOfWorkspacesAloneAreFoundToo) {
  int found = 0;
  for (Planned& planned : plans({.micro_batches = 3, .shape = {.layers = 2, .heads = 4, .kv_heads = 2}, .tensor = 2})) {
    insert_waits(planned.program, planned.plan, std::vector<std::int64_t>(planned.workspaces.size(), 0));
    EXPECT_TRUE(test::find_conflicts(planned.program, planned.plan).unordered.empty());
    found += static_cast<int>(test::find_conflicts(planned.program, planned.plan, planned.workspaces).unordered.size());
  }
  EXPECT_GT(found, 0) << "no workspace takes the memory of a collective: the case says nothing";
}

}  // namespace
}  // namespace consist
