// The summary of a step's time, and what explain says of it: programs simulated with the rates of a machine that is described.
#include "core/cost/step_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "consist/op.h"
#include "core/plan/machine_choice.h"
#include "core/plan/step_estimate.h"
#include "tests/cost/plain_machine.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using test::links_of;
using test::plain_machine;
using test::planned;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

Program step_on(const Machine& machine, int ranks, bool pack = false) {
  test::Case tiny(ranks);
  tiny.request.pack_linears = pack;
  tiny.request.machine = test::shared(machine);
  return planned(tiny.step());
}

StepTime time_of(const Program& program) {
  const Program* stage = &program;
  const Durations durations = estimated_durations(program);
  return step_time({&stage, 1}, simulate({&stage, 1}, {&durations, 1}));
}

double forward_and_backward(const StepTime& time) {
  return time.of(Work::products) + time.of(Work::attention) + time.of(Work::memory_bound);
}

TEST(StepTime, ProductsTakeTheirFlops) {
  for (const bool pack : {false, true}) {  // a packed product may begin with a sum that is not there
    SCOPED_TRACE(pack ? "packed" : "not packed");
    const Program program = step_on(plain_machine(), 2, pack);
    double flops = 0;
    for (const Instruction& i : program.instructions) flops += i.op->cost(program, i).flops;
    EXPECT_NEAR(forward_and_backward(time_of(program)), flops, 1e-6 * flops);
    EXPECT_NEAR(time_of(program).seconds, flops, 1e-6 * flops);
    Machine half = plain_machine();
    half.device.reached[0].share = {0.5};
    EXPECT_NEAR(forward_and_backward(time_of(step_on(half, 2, pack))), 2 * flops, 1e-6 * flops);
  }
}

TEST(StepTime, MemoryAndOptimizerCountWhereTheyBound) {
  Machine slow_memory = plain_machine();
  slow_memory.device.peak_fp32 = slow_memory.device.peak_bf16 = {test::endless};
  slow_memory.device.memory_rate = {1};
  const Program program = step_on(slow_memory, 1);
  double bytes = 0, optimizer = 0;
  for (const Instruction& i : program.instructions) {
    if (i.inputs.empty() || !i.op->touches_memory()) continue;
    (i.tag.phase == Phase::optimizer ? optimizer : bytes) += i.op->cost(program, i).bytes;
  }
  const StepTime time = time_of(program);
  EXPECT_GT(optimizer, 0);
  EXPECT_NEAR(forward_and_backward(time), bytes, 1e-6 * bytes);
  EXPECT_NEAR(time.of(Work::optimizer), optimizer, 1e-6 * optimizer);
}

TEST(StepTime, MessagesUseTheLinksOfTheirAxis) {
  Machine links = plain_machine();
  links.device.peak_fp32 = links.device.peak_bf16 = {test::endless};
  links.node = links_of(4);
  links.network = links_of(1);
  const Program over_two = step_on(links, 2), over_four = step_on(links, 4);
  const auto transfers = [](const Program& program) {
    const Program* stage = &program;
    return transfers_of({&stage, 1}).axes;
  };
  const auto two = transfers(over_two), four = transfers(over_four);
  ASSERT_EQ(two.size(), 1u);
  EXPECT_NEAR(two[0].seconds, two[0].bytes / 4, 1e-6);
  EXPECT_NEAR(four[0].seconds, four[0].bytes / 2, 1e-6) << "over the links of both ranks of a node: four ranks are two nodes";
  // A ring of n sends 2(n-1)/n of what is reduced: 1 of two, 1.5 of four.
  EXPECT_NEAR(four[0].bytes / two[0].bytes, 1.5, 0.01);
  const StepTime time = time_of(over_two);
  EXPECT_NEAR(time.seconds, two[0].seconds, 1e-6) << "nothing else takes time";
  EXPECT_NEAR(time.communication.at("data"), time.seconds, 1e-6);
  EXPECT_NEAR(time.exposed(), time.seconds, 1e-6);
}

TEST(StepTime, PartsSumToTheStep) {
  const Program program = step_on(parse_machine("h100"), 4);
  const StepTime time = time_of(program);
  EXPECT_GT(time.exposed(), 0);
  EXPECT_NEAR(time.gaps() + time.bubble, 0, 1e-9 * time.seconds) << "a simulated step has no gaps";
  const auto json = json_of(time);
  double sum = 0;
  for (const auto& [key, value] : json.items()) sum += value.is_number() ? value.get<double>() : value.at("data").get<double>();
  EXPECT_NEAR(sum, time.seconds, 1e-9);
  EXPECT_THAT(shares_text(time), ContainsRegex("products [0-9.]+%, .*exposed communication \\(data\\) [0-9.]+%$"));
}

TEST(StepTime, TextStatesWhatItRestsOn) {
  Machine machine = parse_machine("h100,network=12.5e9,ranks-per-node=2");
  const StepErrors errors{{"one device", {0.08}, 3}, {"efa between nodes", {0.08}, 3}};
  const Program program = step_on(machine, 4);
  const Program* const stage = &program;
  StepTime time = time_of(program);
  time.error = error_bar(errors, std::span(&stage, 1));
  const std::string text = estimate_text({&stage, 1}, time, machine, 4, 32, 1e6);
  for (const char* part :
       {"not measured", "h100, 2 ranks a node", "70%, attention at 45% and its gradient at 40% of 989 TFLOP/s",
        "12.5 GB/s to others", "to other nodes", "compute waits", "\u00b18%", "error: \u00b18.0%: one device"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(StepTime, SaysWhetherThePlanFitsTheMachinesMemory) {
  const std::int64_t gib = std::int64_t{1} << 30;
  EXPECT_THAT(fit_text(39 * gib, 0, parse_machine("h100")), HasSubstr("takes 39.0 GiB of the 78.2 GiB of a rank of h100 (50%)"));
  const std::string too_large = fit_text(113 * gib, 3, parse_machine("h100"));
  EXPECT_THAT(too_large, HasSubstr("DOES NOT FIT: rank 3 needs 113 GiB, a rank of h100 has 78.2 GiB"));
  EXPECT_THAT(too_large, HasSubstr("What would make it fit"));
  EXPECT_THAT(fit_text(113 * gib, 0, parse_machine("h200")), HasSubstr("of a rank of h200 (81%)"));
  EXPECT_THAT(fit_text(175 * gib, 0, parse_machine("h200")), HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(fit_text(37 * gib, 0, parse_machine("a100")), HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(fit_text(100 * gib, 0, parse_machine("h100,capacity=120e9")), HasSubstr("of the 112 GiB"));
  EXPECT_EQ(fit_text(gib, 0, Machine{}), "");
  EXPECT_THAT(text_of(parse_machine("a100")), HasSubstr("a rank has 36.3 GiB of memory"));
}

}  // namespace
}  // namespace consist
