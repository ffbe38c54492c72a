// Durations of instructions and collectives.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "tests/cost/plain_machine.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using test::links_of;
using test::plain_machine;
using test::shared;

const Op& op(const char* name) {
  return registry().get(name);
}

TEST(Curve, GoesThroughItsPoints) {
  const LinkRates::Curve curve{.op = "*", .members = 3, .latency = 2, .rates = {{10, 2}, {40, 4}}};
  EXPECT_DOUBLE_EQ(seconds_of(curve, 0, 3), 2);
  EXPECT_DOUBLE_EQ(seconds_of(curve, 5, 3), 3.5);
  EXPECT_DOUBLE_EQ(seconds_of(curve, 10, 3), 5);
  EXPECT_DOUBLE_EQ(seconds_of(curve, 25, 3), 7.5);
  EXPECT_DOUBLE_EQ(seconds_of(curve, 80, 3), 20) << "beyond the last point at its rate";
  EXPECT_DOUBLE_EQ(seconds_of(curve, 10, 5), 7) << "a ring of five has twice the steps of one of three";
  EXPECT_DOUBLE_EQ(seconds_of(curve, 10, 2), 4);
}

TEST(CostModel, ReproducesWhatWasMeasured) {
  // docs/results/collectives.md, four H200s: busbw of 64 MiB.
  const CostModel costs(shared(*find_machine("h200")), Mesh({{"data", 4}}));
  const double mib64 = 64.0 * 1024 * 1024;
  EXPECT_NEAR(1.5 * mib64 / costs.transfer_seconds(op("all_reduce"), 1.5 * mib64, 0), 314e9, 1e6);
  EXPECT_NEAR(0.75 * mib64 / costs.transfer_seconds(op("all_gather"), 0.75 * mib64, 0), 268e9, 1e6);
  EXPECT_NEAR(0.75 * mib64 / costs.transfer_seconds(op("reduce_scatter"), 0.75 * mib64, 0), 266e9, 1e6);
  EXPECT_NEAR(costs.message_seconds(32.0 * 1024 * 1024, 0), 0.12e-3, 0.01e-3);
}

TEST(CostModel, OfSeveralCurvesTheNearestNumberOfMembersCounts) {
  Machine machine = plain_machine();
  const auto curve = [](const char* name, int members, double rate) {
    return LinkRates::Curve{.op = name, .members = members, .latency = 0, .rates = {{1, rate}}};
  };
  machine.ranks_per_node = 16;
  machine.node.curves = {curve("*", 2, 1000), curve("all_gather", 2, 10), curve("all_gather", 8, 100), curve("*", 16, 2000)};
  const auto seconds = [&](const char* name, int members) {
    return CostModel(shared(machine), Mesh({{"data", members}})).transfer_seconds(op(name), 1000, 0);
  };
  EXPECT_DOUBLE_EQ(seconds("all_gather", 2), 100);
  EXPECT_DOUBLE_EQ(seconds("all_gather", 3), 100) << "three are 1.5 times two, and eight 2.7 times three";
  EXPECT_DOUBLE_EQ(seconds("all_gather", 5), 10);
  EXPECT_DOUBLE_EQ(seconds("all_gather", 16), 10) << "its own before that of all others";
  EXPECT_DOUBLE_EQ(seconds("reduce_scatter", 2), 1);
  EXPECT_DOUBLE_EQ(seconds("reduce_scatter", 16), 0.5);
}

TEST(CostModel, AnAxisAcrossNodesUsesTheNetwork) {
  Machine machine = plain_machine();
  machine.node = links_of(100);
  machine.network = links_of(1);
  machine.node.beside_compute = {0.5};
  const auto seconds = [&](std::vector<MeshAxis> axes, AxisSet over, Beside beside = Beside::nothing) {
    return CostModel(shared(machine), Mesh(std::move(axes))).transfer_seconds(op("all_gather"), 100, over, beside);
  };
  EXPECT_DOUBLE_EQ(seconds({{"data", 2}}, 0), 1) << "both on one node";
  EXPECT_DOUBLE_EQ(seconds({{"data", 2}}, 0, Beside::compute), 2);
  // Four ranks on two nodes: what goes out of a node goes over the links of both of its ranks.
  EXPECT_DOUBLE_EQ(seconds({{"data", 4}}, 0), 50);
  EXPECT_DOUBLE_EQ(seconds({{"data", 4}}, 0, Beside::compute), 50) << "kernels do not hold the network up here";
  // Kernels that hold up collectives within the nodes hold up a ring over both, as far as the network does not.
  machine.network = links_of(75);
  EXPECT_DOUBLE_EQ(seconds({{"data", 4}}, 0), 1) << "no faster than within the node";
  EXPECT_DOUBLE_EQ(seconds({{"data", 4}}, 0, Beside::compute), 2);
  machine.network = links_of(30);
  EXPECT_DOUBLE_EQ(seconds({{"data", 4}}, 0), 50.0 / 30);
  EXPECT_DOUBLE_EQ(seconds({{"data", 4}}, 0, Beside::compute), 2);
  machine.network = links_of(1);
  // Two by two: the inner axis stays on a node, each member of the outer one has a node's link for itself.
  EXPECT_DOUBLE_EQ(seconds({{"data", 2}, {"tensor", 2}}, 1), 1);
  EXPECT_DOUBLE_EQ(seconds({{"data", 2}, {"tensor", 2}}, 0), 100);
  // Over both axes at once they are as one of four ranks.
  EXPECT_DOUBLE_EQ(seconds({{"data", 2}, {"tensor", 2}}, AxisSet(0) | 1), 50);
  EXPECT_DOUBLE_EQ(seconds({{"data", 2}, {"context", 2}, {"tensor", 2}}, AxisSet(0) | 1), 100) << "one member a node";
  // Three ranks and two a node: some groups of an axis cross, so that all ranks count it as crossing.
  EXPECT_DOUBLE_EQ(seconds({{"data", 2}, {"tensor", 3}}, 1), 100);
}

TEST(CostModel, OpsHaveRatesOfTheirOwnByTypeAndSize) {
  test::Case tiny(1);
  Machine machine = plain_machine();
  const auto flops_seconds = [&](std::string_view name) {
    tiny.request.machine = shared(machine);
    const Program program = tiny.step();
    double flops = 0, seconds = 0;
    for (const Instruction& i : program.instructions) {
      if (i.op->name() != name) continue;
      flops += i.op->cost(program, i).flops;
      seconds += costs_of(program).seconds(program, i);
    }
    EXPECT_GT(flops, 0) << name;
    return seconds / flops;
  };
  EXPECT_NEAR(flops_seconds("linear"), 1, 1e-9);
  machine.device.reached.push_back({.op = "attention", .dtype = "fp32", .share = {0.25}});
  machine.device.reached.push_back({.op = "*", .dtype = "bf16", .share = {0.1}});
  EXPECT_NEAR(flops_seconds("linear"), 1, 1e-9) << "operands are fp32";
  EXPECT_NEAR(flops_seconds("attention"), 4, 1e-9);
  machine.device.sustained_clock = {0.5};
  EXPECT_NEAR(flops_seconds("attention"), 8, 1e-9);
  machine.device.sustained_clock = {1};
  machine.device.reached.push_back({.op = "linear_weight_grad", .dtype = "*", .flops = 1, .share = {0.25}});
  machine.device.reached.push_back({.op = "linear_weight_grad", .dtype = "*", .flops = 1e20, .share = {0.75}});
  const double between = flops_seconds("linear_weight_grad");
  EXPECT_GT(between, 1 / 0.75);
  EXPECT_LT(between, 1 / 0.25);
}

TEST(CostModel, MeasuredInstructionsTakeWhatTheyTook) {
  test::Case tiny(1);
  Machine machine = plain_machine();
  machine.device.memory_rate = {1};
  // Each rms_norm and each linear of the step, by its cost.
  const auto costs_in = [&](std::string_view name) {
    std::set<std::pair<double, double>> costs;
    const Program program = tiny.step();
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == name) costs.emplace(i.op->cost(program, i).flops, i.op->cost(program, i).bytes);
    }
    return costs;
  };
  const auto seconds_of = [&](std::string_view name) {
    tiny.request.machine = shared(machine);
    const Program program = tiny.step();
    std::map<std::pair<double, double>, double> seconds;
    for (const Instruction& i : program.instructions) {
      const Cost cost = i.op->cost(program, i);
      if (i.op->name() == name) seconds[{cost.flops, cost.bytes}] = costs_of(program).seconds(program, i);
    }
    return seconds;
  };
  const auto norms = costs_in("rms_norm"), linears = costs_in("linear");
  ASSERT_FALSE(norms.empty());
  ASSERT_GE(linears.size(), 3U);
  const auto [flops, bytes] = *norms.begin();
  machine.device.times = {{.op = "rms_norm", .points = {{flops, bytes, 7 * bytes}}}};
  EXPECT_NEAR((seconds_of("rms_norm")[{flops, bytes}]), 7 * bytes, 1e-9 * bytes) << "the one that was measured";
  for (const auto& [cost, seconds] : seconds_of("linear"))
    EXPECT_NEAR(seconds, std::max(cost.first, cost.second), 1e-9 * seconds);

  // Other linears lie between two measured ones, one at the bound and one at a third of its speed.
  machine.device.times = {{.op = "linear"}};
  double slow = 1;
  for (const auto& cost : {*linears.begin(), *linears.rbegin()}) {
    machine.device.times[0].points.push_back({cost.first, cost.second, slow * std::max(cost.first, cost.second)});
    slow = 3;
  }
  for (const auto& [cost, seconds] : seconds_of("linear")) {
    const double ratio = seconds / std::max(cost.first, cost.second);
    if (cost == *linears.begin()) {
      EXPECT_NEAR(ratio, 1, 1e-9);
    } else if (cost == *linears.rbegin()) {
      EXPECT_NEAR(ratio, 3, 1e-9);
    } else {
      EXPECT_GT(ratio, 1);
      EXPECT_LT(ratio, 3);
    }
  }
  machine.device.times[0].dtype = DType::bf16;
  for (const auto& [cost, seconds] : seconds_of("linear"))
    EXPECT_NEAR(seconds, std::max(cost.first, cost.second), 1e-9 * seconds) << "nothing was measured in fp32";
}

TEST(CostModel, AttentionTakesTheTimesOfItsHeadSize) {
  test::Case tiny(1);
  Cost cost;
  const Program planned = tiny.step();
  for (const Instruction& i : planned.instructions) {
    if (i.op->name() == "attention") cost = i.op->cost(planned, i);
  }
  ASSERT_GT(cost.depth, 0);
  Machine machine = plain_machine();
  const auto with = [&](int depth, double seconds) {
    return DeviceRates::OpTimes{.op = "attention", .depth = depth, .points = {{cost.flops, cost.bytes, seconds}}};
  };
  const auto seconds = [&] {
    tiny.request.machine = shared(machine);
    const Program program = tiny.step();
    double of_attention = 0;
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == "attention") of_attention = costs_of(program).seconds(program, i);
    }
    return of_attention;
  };
  machine.device.times = {with(4 * cost.depth, 3), with(cost.depth, 5)};
  EXPECT_NEAR(seconds(), 5, 1e-9);
  machine.device.times = {with(4 * cost.depth, 3), with(2 * cost.depth, 7)};
  EXPECT_NEAR(seconds(), 7, 1e-9) << "the nearest";
  machine.device.times = {with(0, 2)};
  EXPECT_NEAR(seconds(), 2, 1e-9) << "of any head size";
}

TEST(CostModel, ACopyToMemoryThatIsThereMovesItsBytesOnce) {
  Program program;
  program.mesh = Mesh({{"data", 1}});
  Tensor device{.name = "moment", .shape = {1000}};
  Tensor host = device;
  host.space = MemorySpace::host;
  program.tensors = {device, host, host};
  program.tensors[2].storage = 1;
  Instruction copy;
  copy.op = &registry().get("copy");
  copy.inputs = {0, 1};
  copy.outputs = {2};
  copy.queue = Queue::device_to_host();
  Machine machine = plain_machine();
  machine.host_alone = {8};
  EXPECT_EQ(CostModel(shared(machine), program.mesh).seconds(program, copy), 500);

  // Fewer ranks than were measured share as much between them, each at most what it has alone.
  machine.host_shared = {2};
  machine.ranks_per_node = 16;
  const auto seconds_of = [&](int ranks) {
    program.mesh = Mesh({{"data", ranks}});
    return CostModel(shared(machine), program.mesh).seconds(program, copy);
  };
  EXPECT_EQ(seconds_of(2), 2000) << "how many were measured is not known";
  machine.host_shared_ranks = 6;
  EXPECT_EQ(seconds_of(2), 4000.0 / 6);
  EXPECT_EQ(seconds_of(3), 1000);
  EXPECT_EQ(seconds_of(6), 2000);
  EXPECT_EQ(seconds_of(12), 2000);
  machine.host_alone = {4};
  EXPECT_EQ(seconds_of(2), 1000);
}

TEST(CostModel, CollectivesAndKernelsSlowEachOtherDown) {
  Machine machine = plain_machine();
  machine.node.compute_beside = {0.8};
  machine.network.compute_beside = {0.9};
  EXPECT_EQ(CostModel(shared(machine), Mesh({{"data", 2}})).compute_share_beside(0), 0.8);
  EXPECT_EQ(CostModel(shared(machine), Mesh({{"data", 4}})).compute_share_beside(0), 0.9) << "two ranks a node";
}

TEST(CostModel, ProgramsThatNoMachineWasNamedForAreRefused) {
  EXPECT_THROW(costs_of(Program()), ProgramError);
  EXPECT_EQ(costs_of(test::Case(1).step()).machine().name, "h200") << "the reference";
}

}  // namespace
}  // namespace consist
