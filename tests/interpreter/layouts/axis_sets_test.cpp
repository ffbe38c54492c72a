// Strategies over several mesh axes: what they move goes over all of them at once, and nothing differs from one axis of as many
// ranks. Exchanges between ranks (all_to_all), by a strategy of this test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "consist/op.h"
#include "core/plan/plan.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::IsEmpty;

/// Names of the sets of axes over which the step of rank 0 has collectives, with their ops.
std::set<std::string> collectives_of(const RankPrograms& programs) {
  std::set<std::string> found;
  const Program& step = programs.steps[0].program;
  for (const Instruction& i : step.instructions) {
    if (i.op->is_collective()) found.insert(std::string(i.op->name()) + " " + step.mesh.text(i.queue.axes()));
  }
  return found;
}

TEST(AxisSets, DataParallelOverTwoAxes) {
  for (const char* strategy : {"ddp=2x2", "zero2=2x2", "zero3-offload=2x2", "zero2=1x4", "ddp=*x2"})
    expect_one_rank(llama, {"--strategy=" + std::string(strategy), "--ranks=4", "--accumulation=2"});
  expect_one_rank(qwen, {"--strategy=zero2=3x2", "--ranks=6", "--global-batch=12", "--zero2.stage=1"});
  expect_one_rank(qwen, {"--strategy=zero3-offload=2x2", "--ranks=4", "--zero3-offload.reduce-bucket-size=4000",
                         "--zero3-offload.prefetch-bucket-size=4000", "--zero3-offload.param-persistence-threshold=100",
                         "--zero3-offload.max-reuse-distance=0", "--recompute=full"});
  for (const char* optimizer : {"sgd", "lion", "muon"})
    expect_one_rank(llama, {"--strategy=zero2=2x2", "--ranks=4", "--optimizer=" + std::string(optimizer)});
  expect_one_rank(llama, {"--strategy=zero3-offload=2x2", "--ranks=4", "--precision=fp8", "--fp8.gathers=true"});
}

TEST(AxisSets, BesideOtherStrategies) {
  expect_one_rank(llama, {"--strategy=tp-sp=2+zero2=2x2", "--ranks=8", "--accumulation=1"});
  expect_one_rank(llama, {"--strategy=pipeline=2+zero3-offload=2x2", "--ranks=8", "--accumulation=2", "--global-batch=8"});
  expect_one_rank(llama, {"--strategy=pipeline=2+ddp=2x2", "--ranks=8", "--accumulation=2", "--global-batch=8"});
}

TEST(AxisSets, FiveAxesAndMore) {
  expect_one_rank(llama, {"--strategy=pipeline=2+zero2=2x2x2+tp-sp=2", "--ranks=32", "--accumulation=2", "--global-batch=16"});
  expect_one_rank(llama, {"--strategy=ddp=2x2x2x2x2", "--ranks=32", "--accumulation=1", "--global-batch=32"});
}

TEST(AxisSets, OneMessageGoesOverAllAxesOfAStrategy) {
  const auto programs = compile(config_of(llama, {"--strategy=zero2=2x2", "--ranks=4"}), 0);
  const std::set<std::string> collectives = collectives_of(*programs);
  EXPECT_TRUE(collectives.contains("reduce_scatter data.0+data.1"));
  EXPECT_TRUE(collectives.contains("all_gather data.0+data.1"));
  EXPECT_FALSE(collectives.contains("reduce_scatter data.0"));
  EXPECT_FALSE(collectives.contains("all_gather data.1"));
}

/// Tokens are divided along the sequence, but within attention heads are (Jacobs et al., 2023).
class Ulysses final : public ParallelStrategy {
 public:
  AxisRequest axis() const override { return {.name = "context", .distance = 0, .most_axes = Mesh::max_axes}; }
  void partition(Program& forward, AxisSet axes) const override {
    const auto place = [&](TensorId id, int dim) { forward[id].placements.set(axes, Placement::shard(dim)); };
    for (const Instruction& i : forward.instructions) {
      if (i.op->name() == "embedding") place(i.outputs[0], 1);
      if (i.op->name() == "rope") place(i.inputs[0], 2);
      if (i.op->name() != "attention") continue;
      place(i.inputs[2], 2);
      place(i.outputs[0], 1);
    }
  }
};

TEST(AxisSets, HeadsAndTokensChangePlaces) {
  const Ulysses ulysses;
  for (const std::vector<int>& split : {std::vector<int>{2}, {4}, {2, 2}}) {
    int ranks = 1;
    for (const int size : split) ranks *= size;
    RunConfig config = config_of(llama, {"--strategy=tp-sp=" + std::to_string(ranks), "--ranks=" + std::to_string(ranks)});
    const Plan plan = plan_run(std::move(config), plugin_host());
    config = plan.config();
    Parts parts = plan.parts();
    parts.uses = {{.name = "ulysses", .strategy = &ulysses, .size = ranks, .split = split}};
    const std::unique_ptr<RankPrograms> programs = compile(std::move(config), std::move(parts), 256);
    const std::string axes = programs->layout.mesh.text(programs->layout.mesh.all_axes());
    std::map<std::string, int> counts;
    for (const Instruction& i : programs->steps[0].program.instructions) {
      if (i.op->is_collective() && i.attributes.has("dim"))
        ++counts[std::string(i.op->name()) + " " + programs->layout.mesh.text(i.queue.axes())];
    }
    // For each of two layers four forward (q, k, v, their result) and four backward.
    EXPECT_EQ(counts["all_to_all " + axes], 16) << axes;
    EXPECT_THAT(wrong_in_run(*programs, 5), IsEmpty()) << axes;
  }
}

}  // namespace
}  // namespace consist::interpreter
