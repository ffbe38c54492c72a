// Durations of whole programs: the clock that follows the load, the slowest rank; and the scratch of kernels that nobody made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "consist/builder.h"
#include "consist/cost.h"
#include "consist/layers.h"
#include "consist/op.h"
#include "core/lower/prepared_program.h"
#include "tests/cost/plain_machine.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using test::plain_machine;
using test::shared;

/// Every linear and every adamw of the step takes so long at the load at which it was measured.
Machine machine_measured(const Program& program, double linear, double adamw) {
  Machine machine = plain_machine();
  std::map<std::string, std::map<std::pair<double, double>, DType>> costs;
  for (const Instruction& i : program.instructions) {
    const std::string op(i.op->name());
    if (op != "linear" && op != "adamw") continue;
    const Cost cost = i.op->cost(program, i);
    costs[op][{cost.flops, cost.bytes}] = program[i.inputs[0]].dtype;
  }
  for (const auto& [op, points] : costs) {
    machine.device.times.push_back({.op = op, .dtype = points.begin()->second, .points = {}});
    for (const auto& [cost, dtype] : points)
      machine.device.times.back().points.push_back({cost.first, cost.second, op == "linear" ? linear : adamw});
  }
  return machine;
}

struct Timed {
  std::vector<double> linears, adamws;
  double others = 0;
};

Timed durations(const Program& program, Machine machine) {
  // Only these two take time, so that the load is theirs.
  const CostModel costs(shared(std::move(machine)), program.mesh);
  const std::vector<double> seconds = costs.durations(program);
  Timed timed;
  for (std::size_t n = 0; n < seconds.size(); ++n) {
    const std::string_view op = program.instructions[n].op->name();
    if (op == "linear") {
      timed.linears.push_back(seconds[n]);
    } else if (op == "adamw") {
      timed.adamws.push_back(seconds[n]);
    } else {
      timed.others += seconds[n];
    }
  }
  return timed;
}

/// A machine on which nothing that is not measured takes time.
Machine idle_but_measured(const Program& program, double linear, double adamw) {
  Machine machine = machine_measured(program, linear, adamw);
  machine.device.peak_fp32 = machine.device.peak_bf16 = machine.device.peak_fp8 = {test::endless};
  for (auto& times : machine.device.times) {
    for (auto& point : times.points) EXPECT_GT(point.seconds, 0);
  }
  return machine;
}

TEST(Durations, TheClockFollowsTheLoad) {
  const Program program = test::Case(1).step();
  Machine machine = idle_but_measured(program, 1, 1000);
  const Timed plain = durations(program, machine);
  ASSERT_GE(plain.linears.size(), 3U);
  ASSERT_FALSE(plain.adamws.empty());
  for (const double seconds : plain.linears) EXPECT_NEAR(seconds, 1, 1e-9);

  machine.device.throttling = {.lag = {4}, .memory_bound = {0.25}};
  for (auto& times : machine.device.times) times.demand = times.op == "linear" ? 0.5 : 0;
  const Timed loaded = durations(program, machine);
  // The optimizer's thousand seconds before the step let the load sink to nothing. It then rises towards 0.5, second by second.
  double load = 0;
  for (const double seconds : loaded.linears) {
    const double age = (1 + load) / 4;
    EXPECT_NEAR(seconds, 1 + 0.5 + (load - 0.5) * (1 - std::exp(-age)) / age, 1e-6);
    load = 0.5 + (load - 0.5) * std::exp(-age);
  }
  EXPECT_LT(loaded.linears.front(), loaded.linears.back());
  // A time measured at a load is the time at that load.
  for (auto& times : machine.device.times) {
    for (auto& point : times.points) {
      point.load = 0.5;
      point.seconds *= times.op == "linear" ? 1.5 : 1.125;  // a quarter of it where no FLOPs are
    }
  }
  const Timed at_load = durations(program, machine);
  for (std::size_t n = 0; n < at_load.linears.size(); ++n) EXPECT_NEAR(at_load.linears[n], loaded.linears[n], 1e-6);
  EXPECT_NEAR(at_load.adamws.back(), loaded.adamws.back(), 1e-6);
}

TEST(Durations, RanksOfAJobWaitForTheSlowest) {
  const Program alone = test::Case(1).step(), together = test::Case(2).step();
  Machine machine = idle_but_measured(alone, 1, 1);
  machine.rank_skew = {0.03};
  EXPECT_NEAR(durations(alone, machine).linears[0], 1, 1e-9);
  Machine of_two = idle_but_measured(together, 1, 1);
  of_two.rank_skew = {0.03};
  EXPECT_NEAR(durations(together, of_two).linears[0], 1.03, 1e-9);
}

// Of an op that nobody measured, beside one that was.
TEST(Durations, LogProbabilitiesOfAHeadTakeTheTimesOfItsLoss) {
  Program program;
  Builder b(program);
  const TensorId x = b.input("x", DType::f32, {1, 4, 8}), targets = b.input("targets", DType::i32, {1, 4});
  layers::lm_head_log_probability(b, x, b.parameter("w", {32, 8}, 0, 1, true), targets, "likely");
  const Instruction& likely = program.instructions.back();
  const Cost cost = likely.op->cost(program, likely);
  Machine machine = plain_machine();
  machine.device.times = {{.op = "lm_head_loss_grad", .points = {{cost.flops, cost.bytes, 3}}}};
  EXPECT_NEAR(CostModel(shared(machine), program.mesh).seconds(program, likely), 3, 1e-9);
  machine.device.times.push_back({.op = "lm_head_log_probability", .points = {{cost.flops, cost.bytes, 2}}});
  EXPECT_NEAR(CostModel(shared(machine), program.mesh).seconds(program, likely), 2, 1e-9) << "its own";
}

/// The first instruction of this op.
const Instruction& first(const Program& program, std::string_view op) {
  return *std::find_if(program.instructions.begin(), program.instructions.end(),
                       [&](const Instruction& i) { return i.op->name() == op; });
}

TEST(Scratch, OfLogitsIsAChunk) {
  const Program program = test::Case(1).step();
  const Instruction& loss = first(program, "lm_head_loss_grad");
  const double logits = static_cast<double>(program.local(loss.inputs[0]).rows() * program.local(loss.inputs[1])[0] * 4);
  Machine machine = plain_machine();
  const auto scratch = [&](std::string_view op) {
    return CostModel(shared(machine), program.mesh).scratch_bytes(program, first(program, op));
  };
  EXPECT_EQ(scratch("lm_head_loss_grad"), 0) << "nothing is known";
  machine.device.chunk_bytes = {logits};
  EXPECT_EQ(scratch("lm_head_loss_grad"), logits);
  EXPECT_EQ(scratch("rms_norm_grad"), 0);
  machine.device.chunk_bytes = {0.99 * logits};
  EXPECT_EQ(scratch("lm_head_loss_grad"), logits / 2) << "two equal chunks";
  const Cost cost = loss.op->cost(program, loss);
  machine.device.times = {{.op = "lm_head_loss_grad", .points = {{cost.flops, cost.bytes, 1, 0, 1.5}}}};
  EXPECT_EQ(scratch("lm_head_loss_grad"), 0.75 * logits) << "what was measured beside the logits";
}

TEST(Scratch, IsInThePlanWithoutADevice) {
  test::Case tiny(1);
  Machine machine = plain_machine();
  const auto planned = [&] {
    tiny.request.machine = shared(machine);
    PreparedProgram prepared(tiny.step());
    return prepared.plan().bytes[0];
  };
  const std::int64_t without = planned();
  const Program program = tiny.step();
  const Instruction& norm = first(program, "rms_norm_grad");
  const Cost cost = norm.op->cost(program, norm);
  // The only point of its op: all that cost more or less have the same ratio.
  machine.device.times = {{.op = "rms_norm_grad", .points = {{cost.flops, cost.bytes, 1, 0, 1000}}}};
  EXPECT_GE(planned(), static_cast<std::int64_t>(1000 * cost.bytes));
  EXPECT_GT(planned(), without);
}

}  // namespace
}  // namespace consist
