// Axes whose ranks share parameters (AxisRequest::shares_parameters), by a strategy of this test's own: what ddp and zero do with
// their gradients, and with parameters that are divided along them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "consist/analysis.h"
#include "consist/op.h"
#include "core/plan/plan.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

/// Each rank has sequences of its own. With `divides`, matrices of the MLPs are divided along the axis, as experts are: tokens of
/// all its ranks are brought together in front of them, and results brought home.
class Sharing final : public ParallelStrategy {
 public:
  explicit Sharing(bool divides) : divides_(divides) {}
  AxisRequest axis() const override {
    return {.name = "shared", .splits_batch = true, .distance = 0, .most_axes = Mesh::max_axes, .shares_parameters = true};
  }
  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
      EXPECT_TRUE(tensor.role != Role::parameter || tensor.placements.all_replicate()) << "others partition first";
    }
    if (!divides_) return;
    const DefUse def_use(forward);
    for (const Parameter& parameter : forward.parameters) {
      const bool down = parameter.name.find("down_proj") != std::string::npos;
      if (!down && parameter.name.find("gate_proj") == std::string::npos && parameter.name.find("up_proj") == std::string::npos)
        continue;
      forward[parameter.tensor].placements.set(axes, Placement::shard(down ? 1 : 0));
      if (!down) continue;
      const InstructionId linear = def_use.only_user(parameter.tensor);
      forward[forward.instructions.at(static_cast<std::size_t>(linear)).outputs[0]].placements.set(axes, Placement::shard(0));
    }
  }

 private:
  bool divides_;
};

/// The programs of `words` with axes of `split` ranks that share parameters added; the strategy in `words` names takes `own`
/// ranks.
std::unique_ptr<RankPrograms> with_shared(const ModelChoice& model, const Sharing& sharing, const std::vector<int>& split,
                                          int own, const Words& words) {
  int shared = 1;
  for (const int size : split) shared *= size;
  RunConfig config = config_of(model, words + Words{"--ranks=" + std::to_string(shared * own)});
  const Plan plan = plan_run(std::move(config), plugin_host());  // all ranks are of the strategy: as many split the batch
  config = plan.config();
  Parts parts = plan.parts();
  parts.uses.front().size = own;
  parts.uses.push_back({.name = "sharing", .strategy = &sharing, .size = shared, .split = split});
  return compile(std::move(config), std::move(parts), 256);
}

/// "reduce_scatter data+shared" for each collective over flat parts, and for each sum of gradients.
std::set<std::string> of_parameters(const RankPrograms& programs) {
  std::set<std::string> found;
  const Program& step = programs.steps[0].program;
  for (const Instruction& i : step.instructions) {
    const bool flat = i.attributes.has("dim") && i.attributes.integer("dim") < 0;
    const bool gradients = i.op->movement() == Movement::all_reduce && step[i.inputs[0]].role == Role::gradient;
    if (i.op->is_collective() && (flat || gradients))
      found.insert(std::string(i.op->name()) + " " + step.mesh.text(i.queue.axes()));
  }
  return found;
}

const std::vector<Words> strategies{{"--strategy=ddp", "--ddp.bucket-size=4Ki"},
                                    {"--strategy=zero2", "--zero2.reduce-bucket-size=2000"},
                                    {"--strategy=zero2", "--zero2.stage=1"},
                                    {"--strategy=zero3-offload", "--zero3-offload.param-persistence-threshold=100",
                                     "--zero3-offload.prefetch-bucket-size=2000", "--zero3-offload.max-reuse-distance=0"},
                                    {"--strategy=zero3-offload", "--zero3-offload.param-persistence-threshold=100",
                                     "--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu"}};

TEST(SharedAxes, WholeParametersAreSummedOverThemToo) {
  const Sharing sharing(false);
  for (const Words& words : strategies) {
    for (const int own : {1, 2}) {
      const auto programs = with_shared(llama, sharing, {2}, own, words + Words{"--accumulation=2"});
      EXPECT_THAT(wrong_in_run(*programs, 3), IsEmpty()) << words[0] << " over " << own;
    }
  }
  const auto two = with_shared(qwen, sharing, {2, 2}, 2, {"--strategy=zero3-offload"});
  EXPECT_THAT(wrong_in_run(*two, 4), IsEmpty());
  EXPECT_THAT(of_parameters(*two),
              UnorderedElementsAre("all_gather data+shared.0+shared.1", "reduce_scatter data+shared.0+shared.1"));
}

TEST(SharedAxes, ParametersThatAreDividedAlongThemAreSummedOverTheOthers) {
  const Sharing sharing(true);
  for (const Words& words : strategies) {
    for (const int own : {1, 2}) {
      const auto programs = with_shared(llama, sharing, {2}, own, words + Words{"--accumulation=2"});
      EXPECT_THAT(wrong_in_run(*programs, 5), IsEmpty()) << words[0] << " over " << own;
      const std::set<std::string> collectives = of_parameters(*programs);
      const std::string sums = words[0] == "--strategy=ddp" ? "all_reduce " : "reduce_scatter ";
      EXPECT_THAT(collectives, Contains(sums + (own == 1 ? "shared" : "data+shared")));
      EXPECT_EQ(collectives.contains(sums + "data"), own == 2) << words[0];
      EXPECT_THAT(collectives, Not(Contains(sums + (own == 2 ? "shared" : "data"))));
    }
  }
}

TEST(SharedAxes, BesideFp8RecomputationAndOtherOptimizers) {
  for (const bool divides : {false, true}) {
    const Sharing sharing(divides);
    for (const Words& words : {Words{"--strategy=zero3-offload", "--precision=fp8", "--fp8.gathers=true"},
                               {"--strategy=zero3-offload", "--recompute=full", "--zero3-offload.max-live-parameters=1000"},
                               {"--strategy=zero2", "--optimizer=muon"},
                               {"--strategy=zero2", "--zero2.communication-data-type=bf16", "--precision=bf16"},
                               {"--strategy=zero3-offload", "--freeze=*mlp*"}}) {
      const auto programs = with_shared(qwen, sharing, {2}, 2, words);
      EXPECT_THAT(wrong_in_run(*programs, 6), IsEmpty()) << words[0] << words[1];
    }
  }
}

/// Nobody takes them: the optimizer pass sums them, one by one.
TEST(SharedAxes, WithoutAStrategyThatTakesThem) {
  const Sharing sharing(false);
  RunConfig config = config_of(llama, {"--strategy=ddp", "--ranks=4"});
  const Plan plan = plan_run(std::move(config), plugin_host());
  config = plan.config();
  Parts parts = plan.parts();
  parts.uses = {{.name = "sharing", .strategy = &sharing, .size = 4}};
  const auto programs = compile(std::move(config), std::move(parts), 256);
  EXPECT_THAT(wrong_in_run(*programs, 7), IsEmpty());
}

}  // namespace
}  // namespace consist::interpreter
