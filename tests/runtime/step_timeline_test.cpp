// Start times of a step's instructions: which steps are timed, and what the archive says of them.
#include "core/record/step_timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/cost/simulator.h"
#include "core/lower/memory_plan.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using nlohmann::ordered_json;

TEST(TimedStepsOfARun, AreTheSteadyStateWhereThatCostsNothing) {
  EXPECT_FALSE(timed_steps(1, true).any());
  EXPECT_EQ(timed_steps(2, true).first, 2);
  EXPECT_EQ(timed_steps(20, true).first, 5) << "behind a warm-up of four";
  EXPECT_EQ(timed_steps(20, true).last, 20);
  EXPECT_FALSE(timed_steps(20, true).switched);
}

TEST(TimedStepsOfARun, ElsewhereLieInTheWarmUpAndLeaveTwoStepsToRecordTheStepAnew) {
  EXPECT_FALSE(timed_steps(19, false).any()) << "a warm-up of three has no step between the first and the last two";
  EXPECT_EQ(timed_steps(20, false).first, 2);
  EXPECT_EQ(timed_steps(20, false).last, 2);
  EXPECT_EQ(timed_steps(1000, false).last, 8);
  EXPECT_TRUE(timed_steps(1000, false).switched);
}

TEST(StepTimelineOfARank, TimesAreMeans) {
  StepTimeline timeline;
  timeline.add({}, 7);
  EXPECT_EQ(timeline.steps(), 0) << "a step without times is none";
  timeline.add(std::vector<LaunchTime>{{0, 1}, {1, 3}}, 4);
  timeline.add(std::vector<LaunchTime>{{1, 4}, {4, 6}}, 8);
  EXPECT_EQ(timeline.steps(), 2);
  EXPECT_DOUBLE_EQ(timeline.step_seconds(), 6);
  EXPECT_DOUBLE_EQ(timeline.times()[0].begin, 0.5);
  EXPECT_DOUBLE_EQ(timeline.times()[1].end, 4.5);
}

/// A planned step of two ranks, and its instructions one behind the other: each takes a second, collectives ten.
struct Timed {
  explicit Timed(int ranks) : step(test::Case(ranks).step()) {
    step.plan();
    double at = 0;
    for (const Instruction& i : step.program().instructions) {
      const double begin = at;
      if (i.op->touches_memory()) at += i.op->is_collective() ? 10 : 1;
      times.push_back({begin, at});
    }
    end = at;
  }
  PreparedProgram step;
  std::vector<LaunchTime> times;
  double end = 0;
};

double sum_of(const ordered_json& parts) {
  double sum = 0;
  for (const auto& [name, part] : parts.items()) sum += part.is_object() ? sum_of(part) : part.get<double>();
  return sum;
}

TEST(StepTimelineOfARank, PartsSumToTheStepAndNameWhatComputeWaitedFor) {
  const Timed timed(2);
  const ordered_json json = timeline_of(timed.step, timed.times, timed.end + 0.5);
  EXPECT_NEAR(sum_of(json.at("parts")), timed.end + 0.5, 1e-6);
  int collectives = 0;
  for (const Instruction& i : timed.step.program().instructions) collectives += i.op->is_collective() ? 1 : 0;
  ASSERT_GT(collectives, 0);
  // Nothing runs beside another, so that all of them are exposed, but for what the step's end does not wait for.
  EXPECT_NEAR(json.at("parts").at("exposed_communication").at("data").get<double>(), 10.0 * collectives, 1e-6);
  EXPECT_NEAR(json.at("parts").at("gaps").get<double>(), 0.5, 1e-6);
  double exposed = 0, computed = 0;
  const ordered_json& columns = json.at("instructions");
  for (std::size_t n = 0; n < columns.at("op").size(); ++n) {
    exposed += columns.at("exposed")[n].get<double>();
    if (columns.at("queue")[n] == "compute") computed += columns.at("seconds")[n].get<double>();
  }
  EXPECT_NEAR(exposed, 10.0 * collectives, 1e-6);
  EXPECT_NEAR(computed + exposed, timed.end, 1e-6);
}

// Measured steps have what simulated ones have not: a pause before an instruction whose collective was over long ago.
TEST(StepTimelineOfARank, APauseBehindACollectiveThatWasOverIsAGap) {
  Timed timed(2);
  std::size_t waits = 0;
  const std::vector<Instruction>& instructions = timed.step.program().instructions;
  for (std::size_t n = 0; n < instructions.size() && waits == 0; ++n) {
    if (instructions[n].queue == Queue::compute() && instructions[n].op->touches_memory() && !instructions[n].waits.empty())
      waits = n;
  }
  ASSERT_GT(waits, 0U);
  const ordered_json before = timeline_of(timed.step, timed.times, timed.end);
  for (std::size_t n = waits; n < timed.times.size(); ++n) timed.times[n] = {timed.times[n].begin + 3, timed.times[n].end + 3};
  const ordered_json after = timeline_of(timed.step, timed.times, timed.end + 3);
  EXPECT_EQ(before.at("parts").at("exposed_communication"), after.at("parts").at("exposed_communication"));
  EXPECT_NEAR(after.at("parts").at("gaps").get<double>(), 3, 1e-6);
}

TEST(StepTimelineOfARank, MemoryIsFullestWhereThePlanSaysSo) {
  const Timed timed(1);
  const ordered_json memory = timeline_of(timed.step, timed.times, timed.end).at("memory");
  const MemoryPlan& plan = timed.step.memory();
  EXPECT_EQ(memory.at("arena_bytes"), plan.bytes[0]);
  std::int64_t most = 0;
  for (std::size_t n = 0; n < memory.at("begin").size(); ++n) {
    std::int64_t held = 0;
    for (const auto& [role, bytes] : memory.at("roles").items()) held += bytes[n].get<std::int64_t>();
    most = std::max(most, held);
  }
  EXPECT_EQ(most, plan.live_peak[0]);
}

}  // namespace
}  // namespace consist
