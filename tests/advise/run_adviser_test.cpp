// The notes at a run's start, and what a run that does not fit hears.
#include "launch/search/advise/run_adviser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "launch/predict/prediction.h"
#include "tests/advise/planned.h"
#include "tests/idle_device.h"

namespace consist::launch {
namespace {

using test::planned;
using test::plugin_host;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t gib = std::int64_t{1} << 30;
constexpr RunMemory plenty{.capacity = 139 * gib, .planned = 10 * gib};

Plan with_much_to_gain(const std::string& machine) {
  return planned(machine, [&](RunConfig& c) {
    c.model = "llama-32m";  // which compiles in a fraction of the time that there is
    c.ranks = 4;
    c.strategies = {{"zero3-offload", 0}};
    c.batch = 1;
    c.accumulation = 2;
    c.recompute.full = true;
    c.steps = 1'000'000;
    c.machine = machine;
  });
}

TEST(RunAdviser, SaysTheBestTwo) {
  RunAdviser adviser(plugin_host());
  const std::vector<std::string> notes = adviser.faster(with_much_to_gain("h200"), plenty, 0.01);
  ASSERT_THAT(notes, SizeIs(2));
  for (const std::string& note : notes) {
    EXPECT_THAT(note, HasSubstr(" times as fast, "));
    EXPECT_THAT(note, HasSubstr("(simulated for h200)"));
  }
}

TEST(RunAdviser, SparesTheStart) {
  RunAdviser adviser(plugin_host());
  EXPECT_THAT(adviser.faster(with_much_to_gain("h200"), plenty, 10), IsEmpty()) << "it would take longer than anybody waits";
}

TEST(RunAdviser, KeepsToTheMemoryOfTheRun) {
  RunAdviser adviser(plugin_host());
  for (const std::string& note : adviser.faster(with_much_to_gain("h200"), {.capacity = 10 * gib, .planned = 10 * gib}, 0.01))
    EXPECT_THAT(note, HasSubstr(" less")) << "there is no room for more";
}

TEST(RunAdviser, SmallGainsOfMachinesOfUnknownErrorAreNotSaid) {
  // The largest gain here lies between 2% and 10%.
  const auto plan = [](const std::string& machine) {
    return planned(machine, [&](RunConfig& c) {
      c.steps = 1'000'000;
      c.batch = 4;
      c.recompute.ops = {"swiglu"};
      c.machine = machine;
    });
  };
  RunAdviser adviser(plugin_host());
  const RunMemory full{.capacity = 16 * gib, .planned = 14 * gib};
  const auto gain_of = [](const std::string& note) { return std::atof(note.substr(note.find(": ") + 2).c_str()); };
  for (const std::string& note : adviser.faster(plan("a100"), full, 0.01)) EXPECT_GE(gain_of(note), 1.1) << note;
  for (const std::string& note : adviser.faster(plan("h200"), full, 0.01)) EXPECT_GE(gain_of(note), 1.02) << note;
}

TEST(RunAdviser, FindsWhatFits) {
  RunAdviser adviser(plugin_host());
  const Plan plan = planned("h200", [](RunConfig& c) { c.batch = 16; });
  const std::int64_t needed = predict(plan).most_bytes();
  const std::string fitting = adviser.fitting(plan, {.capacity = needed / 2, .planned = needed});
  EXPECT_THAT(fitting, HasSubstr("' fits: "));
  EXPECT_LE(std::count(fitting.begin(), fitting.end(), '\n'), 4);
  EXPECT_EQ(adviser.fitting(plan, {.capacity = needed / 2, .planned = 2 * needed}), "") << "workspaces take it all";
}

/// A processor that multiplies, and does nothing else.
class Multiplier final : public test::IdleDevice {
 public:
  explicit Multiplier(double bf16_over_fp32) : gain_(bf16_over_fp32) {}
  DeviceInfo info() const override { return {.kind = "cpu", .name = "a processor", .memory_bytes = 100 * gib}; }
  double measure_matmul(DType dtype, std::int64_t, std::int64_t, std::int64_t) override {
    return dtype == DType::bf16 ? 1e11 * gain_ : 1e11;
  }

 private:
  double gain_;
};

/// The figures that ship for processors say what bf16 instructions are worth; not every processor has them.
TEST(RunAdviser, AsksTheProcessorWhatItsBf16IsWorth) {
  RunAdviser adviser(plugin_host());
  const auto notes = [&](double gain, std::int64_t steps) {
    const Plan plan = planned("cpu", [&](RunConfig& c) {
      c.model = "llama-32m";
      c.precision = "fp32";
      c.sequence = 256;
      c.steps = steps;
    });
    const Plan here = plan.for_target({std::make_shared<Multiplier>(gain), plan.target().machine, false});
    return adviser.faster(here, {.capacity = 100 * gib, .planned = gib}, 0.01);
  };
  EXPECT_THAT(notes(4, 1'000'000), Contains(HasSubstr("--precision bf16: ")));
  EXPECT_THAT(notes(1, 1'000'000), Not(Contains(HasSubstr("--precision bf16"))));
  EXPECT_THAT(notes(4, 1), IsEmpty()) << "measuring would take longer than the run";
}

}  // namespace
}  // namespace consist::launch
