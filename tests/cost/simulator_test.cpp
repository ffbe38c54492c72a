// Planned programs, simulated.
#include "core/cost/simulator.h"

#include <gtest/gtest.h>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"
#include "tests/cost/plain_machine.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using test::planned;
using test::shared;

Program plain_step_on(const Machine& machine, int ranks) {
  test::Case tiny(ranks);
  tiny.request.machine = shared(machine);
  return planned(tiny.step());
}

Simulation simulate_estimated(const Program& program) {
  const Program* stage = &program;
  const Durations durations = estimated_durations(program);
  return simulate({&stage, 1}, {&durations, 1});
}

TEST(Simulator, OneRankIsBusyFromBeginToEnd) {
  const Program program = plain_step_on(test::plain_machine(), 1);
  double flops = 0;
  for (const Instruction& i : program.instructions) flops += i.op->cost(program, i).flops;
  const Simulation simulation = simulate_estimated(program);
  EXPECT_NEAR(simulation.seconds, flops, 1e-6 * flops);
  EXPECT_NEAR(simulation.ranks[0].busy, flops, 1e-6 * flops);
  EXPECT_NEAR(simulation.ranks[0].for_ranks, 0, 1e-6 * flops);
}

TEST(Simulator, WhatComputeWaitsForIsNamedByItsAxis) {
  Machine machine = test::plain_machine();
  machine.node = test::links_of(1e-3);
  const Program program = plain_step_on(machine, 2);
  double sent = 0;
  for (const Instruction& i : program.instructions) {
    if (i.op->is_collective()) sent += costs_of(program).seconds(program, i);
  }
  const Simulation simulation = simulate_estimated(program);
  const SimulatedRank& rank = simulation.ranks[0];
  ASSERT_EQ(rank.communication.size(), 1U);
  EXPECT_GT(rank.communication.at(0), 0.5 * sent) << "gradients are reduced once backward is over";
  EXPECT_NEAR(rank.busy + rank.communication.at(0) + rank.for_copies + rank.for_ranks, simulation.seconds,
              1e-9 * simulation.seconds);
}

TEST(Simulator, TakesMeasuredDurations) {
  const Program program = plain_step_on(test::plain_machine(), 1);
  const Program* stage = &program;
  Durations measured(program.instructions.size(), 0);
  for (std::size_t i = 0; i < measured.size(); ++i) measured[i] = program.instructions[i].op->touches_memory() ? 2 : 0;
  const Simulation simulation = simulate({&stage, 1}, {&measured, 1});
  double sum = 0;
  for (double seconds : measured) sum += seconds;
  EXPECT_EQ(simulation.seconds, sum);
}

// Steps of whole programs end with a sum over the stages; this one does not.
TEST(Simulator, AStageThatIsDoneWaitsUntilTheStepsEnd) {
  Program programs[2];
  const Program* stages[2];
  for (int stage = 0; stage < 2; ++stage) {
    Program& program = programs[stage];
    program.mesh = Mesh({{"pipeline", 2}});
    program.stage_axis = 0;
    program.rank = stage;
    Builder builder(program);
    builder.emit_one("cast", {builder.input("x", DType::f32, {4})}, {{"dtype", std::string("bf16")}}, "y");
    stages[stage] = &program;
  }
  const Durations durations[] = {{1}, {3}};
  const Simulation simulation = simulate({stages, 2}, {durations, 2});
  EXPECT_EQ(simulation.seconds, 3);
  EXPECT_EQ(simulation.ranks[0].busy, 1);
  EXPECT_EQ(simulation.ranks[0].for_ranks, 2);
  EXPECT_EQ(simulation.ranks[1].for_ranks, 0);
}

TEST(Simulator, RefusesProgramsWithoutTheirDurationsOrStages) {
  Program program = plain_step_on(test::plain_machine(), 1);
  const Program* stages[] = {&program, &program};
  const Durations durations[] = {estimated_durations(program), {1.0}};
  EXPECT_THROW(simulate({stages, 1}, {durations, 2}), ProgramError);
  EXPECT_THROW(simulate({stages, 2}, {durations, 2}), ProgramError) << "there is no axis of stages";
  EXPECT_THROW(simulate({stages, 1}, {durations + 1, 1}), ProgramError);
}

}  // namespace
}  // namespace consist
