// Estimates of a step's time: costs over the rates of a machine that is described.
#include "core/runtime/step_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "consist/op.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using testing::HasSubstr;

constexpr double endless = 1e30;

/// Only products cost time, a second for each FLOP.
MachineModel machine() {
  return {
      .name = "test",
      .device = {.peak = 1, .peak_fp8 = 1, .peak_fp32 = 1, .products = 1, .attention = 1, .attention_grad = 1, .memory = endless},
      .ranks_per_node = 2,
      .node = endless,
      .network = endless,
      .host = endless};
}

StepEstimate estimate(const Program& program, const MachineModel& machine) {
  const Program* stage = &program;
  return estimate_step({&stage, 1}, machine);
}

TEST(StepEstimate, ProductsTakeTheirFlops) {
  for (const bool pack : {false, true}) {  // a packed product may begin with a sum that is not there
    SCOPED_TRACE(pack ? "packed" : "not packed");
    test::Case tiny(2);
    tiny.request.pack_linears = pack;
    const Program program = tiny.step();
    double flops = 0;
    for (const Instruction& i : program.instructions) flops += i.op->cost(program, i).flops;
    const StepEstimate at_once = estimate(program, machine());
    EXPECT_NEAR(at_once.compute, flops, 1e-6 * flops);
    EXPECT_NEAR(at_once.hidden, flops, 1e-6 * flops);
    MachineModel half = machine();
    half.device.products = half.device.attention = half.device.attention_grad = 0.5;
    EXPECT_NEAR(estimate(program, half).compute, 2 * flops, 1e-6 * flops);
  }
}

TEST(StepEstimate, MemoryAndOptimizerCountWhereTheyBound) {
  const Program program = test::Case(1).step();
  MachineModel slow_memory = machine();
  slow_memory.device.peak = slow_memory.device.peak_fp32 = endless;
  slow_memory.device.memory = 1;
  double bytes = 0, optimizer = 0;
  for (const Instruction& i : program.instructions) {
    if (i.inputs.empty() || !i.op->touches_memory()) continue;
    (i.tag.phase == Phase::optimizer ? optimizer : bytes) += i.op->cost(program, i).bytes;
  }
  const StepEstimate e = estimate(program, slow_memory);
  EXPECT_GT(optimizer, 0);
  EXPECT_NEAR(e.compute, bytes, 1e-6 * bytes);
  EXPECT_NEAR(e.optimizer, optimizer, 1e-6 * optimizer);
}

TEST(StepEstimate, MessagesUseTheLinksOfTheirAxis) {
  MachineModel links = machine();
  links.device.peak = links.device.peak_fp32 = endless;
  links.node = 4;
  links.network = 1;
  const StepEstimate two = estimate(test::Case(2).step(), links), four = estimate(test::Case(4).step(), links);
  ASSERT_EQ(two.axes.size(), 1u);
  EXPECT_TRUE(two.axes[0].inside_node);
  EXPECT_FALSE(four.axes[0].inside_node) << "four ranks are two nodes";
  EXPECT_DOUBLE_EQ(two.axes[0].seconds, two.axes[0].bytes / 4);
  EXPECT_DOUBLE_EQ(four.axes[0].seconds, four.axes[0].bytes);
  // A ring of n sends 2(n-1)/n of what is reduced: 1 of two, 1.5 of four.
  EXPECT_NEAR(four.axes[0].bytes / two.axes[0].bytes, 1.5, 0.01);
  EXPECT_DOUBLE_EQ(two.hidden, two.axes[0].seconds) << "the longest of what runs side by side";
  EXPECT_GE(two.exposed, two.axes[0].seconds + two.compute);
}

TEST(StepEstimate, TextStatesWhatItRestsOn) {
  const std::string text = estimate_text(estimate(test::Case(4).step(), parse_machine("h100,network=12.5e9,ranks-per-node=2")),
                                         parse_machine("h100,network=12.5e9,ranks-per-node=2"), 4, 32, 1e6);
  for (const char* part : {"not measured", "h100, 2 ranks a node", "70%, attention at 45% and its gradient at 40% of 989 TFLOP/s",
                           "12.5 GB/s to others", "to other nodes", "one after the other"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(StepEstimate, SaysWhetherThePlanFitsTheMachinesMemory) {
  const std::int64_t gib = std::int64_t{1} << 30;
  EXPECT_THAT(fit_text(39 * gib, 0, parse_machine("h100")), HasSubstr("takes 39.0 GiB of the 78.2 GiB of a rank of h100 (50%)"));
  const std::string too_large = fit_text(113 * gib, 3, parse_machine("h100"));
  EXPECT_THAT(too_large, HasSubstr("DOES NOT FIT: rank 3 needs 113 GiB, a rank of h100 has 78.2 GiB"));
  EXPECT_THAT(too_large, HasSubstr("What would make it fit"));
  EXPECT_THAT(fit_text(113 * gib, 0, parse_machine("h200")), HasSubstr("of a rank of h200 (81%)"));
  EXPECT_THAT(fit_text(175 * gib, 0, parse_machine("h200")), HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(fit_text(37 * gib, 0, parse_machine("a100")), HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(fit_text(100 * gib, 0, parse_machine("h100,capacity=120e9")), HasSubstr("of the 112 GiB"));
  EXPECT_EQ(fit_text(gib, 0, MachineModel{}), "");
  EXPECT_THAT(parse_machine("a100").text(), HasSubstr("a rank has 36.3 GiB of memory"));
}

TEST(MachineModel, IsAKnownOneWithValuesReplaced) {
  EXPECT_EQ(parse_machine("h100").ranks_per_node, 8);
  EXPECT_DOUBLE_EQ(parse_machine("h100,products=0.45").device.product_rate(DType::bf16), 0.45 * 989.4e12);
  EXPECT_DOUBLE_EQ(parse_machine("a100").device.product_rate(DType::e4m3),
                   parse_machine("a100").device.product_rate(DType::bf16));
  for (const auto& [text, says] : {std::pair{"b100", "h200 h100 a100"},
                                   {"h100,warp=9", "values can be given to"},
                                   {"h100,network=fast", "above 0"},
                                   {"h100,network", "above 0"},
                                   {"h100,ranks-per-node=1.5", "not known"}}) {
    try {
      parse_machine(text);
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace consist
