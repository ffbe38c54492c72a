// Machines that are learned from runs.
#include "launch/residual/learn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/cost/machine_file.h"
#include "tests/child_process.h"
#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

using ::testing::HasSubstr;

StepParts step_of(std::vector<InstructionGroup> groups) {
  return {.source = "measured", .simulated_groups = true, .groups = std::move(groups)};
}

InstructionGroup group(const char* part, const char* text, const char* dtype, double measured, double simulated, double flops) {
  return {.part = part,
          .text = text,
          .dtype = dtype,
          .seconds = measured,
          .own_seconds = measured,
          .simulated_seconds = simulated,
          .simulated_own_seconds = simulated,
          .flops = flops};
}

TEST(Learn, SumsAnOpOverAllRunsAndLeavesCommunicationOut) {
  const StepParts a = step_of({group("products", "linear model.layers.*.up", "bf16", 0.03, 0.02, 1e12),
                               group("products", "linear model.layers.*.down", "bf16", 0.01, 0.01, 1e12),
                               group("communication:data", "all_reduce gradients", "bf16", 0.03, 0.01, 0)}),
                  b = step_of({group("products", "linear model.layers.*.up", "bf16", 0.02, 0.01, 1e12)});
  const StepParts* const steps[] = {&a, &b};
  const LearnedOps ops = ops_of(steps);
  ASSERT_EQ(ops.size(), 1U);
  EXPECT_NEAR((ops.at({"linear", "bf16"}).ratio()), 1.5, 1e-12);
}

TEST(Learn, ScalesTheTimesThatTheMachineHas) {
  const Machine& h100 = *find_machine("h100");
  const LearnedOps ops{{{"linear", "bf16"}, {.measured = 0.3, .simulated = 0.2, .flops = 1e12}}};
  const Machine learned = learned_machine(h100, ops);
  for (std::size_t n = 0; n < h100.device.times.size(); ++n) {
    const auto &before = h100.device.times[n], &after = learned.device.times[n];
    const bool changed = before.op == "linear" && before.dtype == DType::bf16;
    EXPECT_NEAR(after.points[0].seconds / before.points[0].seconds, changed ? 1.5 : 1, 1e-12) << before.op;
    if (changed) {
      EXPECT_EQ(after.source, FigureSource::measured_here);
    }
  }
  EXPECT_EQ(learned.device.memory_rate.value, h100.device.memory_rate.value);
}

TEST(Learn, GivesSharesAndTheMemorysRateWhereTheMachineHasNoTimes) {
  const Machine& cpu = *find_machine("cpu");
  ASSERT_TRUE(cpu.device.times.empty());
  const double peak = cpu.device.peak(DType::f32);
  const LearnedOps ops{{{"linear", "f32"}, {.measured = 1, .simulated = 2, .flops = 0.25 * peak * 2}},
                       {{"rms_norm", "f32"}, {.measured = 3, .simulated = 2, .flops = 1}}};
  const Machine learned = learned_machine(cpu, ops);
  const auto& reached = learned.device.reached.front();
  EXPECT_EQ(reached.op, "linear");
  EXPECT_EQ(reached.dtype, "fp32");
  EXPECT_NEAR(reached.share.value, 0.5, 1e-12);
  EXPECT_NEAR(learned.device.memory_rate.value, cpu.device.memory_rate.value / 1.5, 1e-6 * cpu.device.memory_rate.value);
}

TEST(LearnCommand, MakesAFileOfTwoRuns) {
  TemporaryFolder folder;
  for (const char* name : {"a.h5", "b.h5"}) {
    const auto trained = test::train_tiny({"--strategy", "ddp", "--device", "cpu", "--steps", "8", "--archive", folder / name});
    ASSERT_EQ(trained.status, 0) << trained.output;
  }
  const std::string consist = CONSIST_BINARY_DIR "/bin/consist", file = folder / "here.json";
  const auto learned =
      test::run_child({consist, "calibrate", "--learn", (folder / "a.h5") + "," + (folder / "b.h5"), "--output", file});
  ASSERT_EQ(learned.status, 0) << learned.output;
  EXPECT_THAT(learned.output, HasSubstr("learned from 2 runs; the rest is that of 'cpu'"));
  EXPECT_THAT(learned.output, HasSubstr("errors of steps now: none is known")) << "three runs of a kind tell one";
  const auto predicted = test::run_child({consist, "predict", "--model", "llama-tiny", "--sequence", "32", "--machine", file});
  EXPECT_THAT(predicted.output, HasSubstr("predicted for here"));
  const auto one = test::run_child({consist, "calibrate", "--learn", folder / "a.h5", "--output", folder / "one.json"});
  EXPECT_EQ(one.status, 2);
  EXPECT_THAT(one.output, HasSubstr("takes two archives or more"));
  const auto measures =
      test::run_child({consist, "calibrate", "--learn", "a.h5,b.h5", "--ranks", "2", "--output", folder / "one.json"});
  EXPECT_EQ(measures.status, 2);
  EXPECT_THAT(measures.output, HasSubstr("--ranks has no place beside it"));
}

}  // namespace
}  // namespace consist::launch
