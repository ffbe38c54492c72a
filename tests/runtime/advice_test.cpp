// What a run's owner is told: only what costs speed for nothing, with its figures.
#include "core/runtime/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace consist {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t gib = std::int64_t{1} << 30;
const DTypes bf16{.parameter = DType::bf16, .gradient = DType::f32, .master = DType::f32, .moment = DType::f32};

class Advice : public testing::Test {
 protected:
  std::vector<std::string> advice() const { return advise(config, dtypes, layout, device, summary); }

  RunConfig config = [] {
    RunConfig c;
    c.precision = "bf16";
    return c;
  }();
  DTypes dtypes = bf16;
  Layout layout;
  DeviceInfo device{
      .kind = "cuda", .name = "a GPU", .memory_bytes = 100 * gib, .peak_flops_fp32 = 67e12, .peak_flops_bf16 = 989e12};
  ProgramSummary summary{.parameters = 600'000'000, .planned_bytes = 60 * gib, .memory = {{"activation", 50 * gib}}};
};

TEST_F(Advice, ARunThatIsWellChosenHearsNothing) {
  EXPECT_THAT(advice(), IsEmpty());
}

TEST_F(Advice, Fp32WhereBf16IsFaster) {
  config.precision = "fp32";
  dtypes = {};
  EXPECT_THAT(advice(), ElementsAre(AllOf(HasSubstr("989 TFLOP/s"), HasSubstr("67.0 TFLOP/s"), HasSubstr("--precision bf16"))));
  device.peak_flops_bf16 = device.peak_flops_fp32;
  EXPECT_THAT(advice(), IsEmpty());
}

TEST_F(Advice, MemoryThatIsNearlyEmptyAndTheBatchThatFillsIt) {
  summary.planned_bytes = 20 * gib;
  summary.memory = {{"activation", 10 * gib}};
  // 90 GiB without the 10 GiB that stay leave 80, eight times the activations of batch 4.
  EXPECT_THAT(advice(), ElementsAre(AllOf(HasSubstr("20.0 GiB of 100 GiB (20%)"), HasSubstr("about --batch 32 instead of 4"))));
}

TEST_F(Advice, ZeroWhereDdpFits) {
  const StrategyUse zero{.name = "zero2", .strategy = nullptr, .size = 0};
  layout.active = {zero};
  config.strategies = {{"zero2", 0}};
  // In place of 5 GiB of states 18 bytes for each of 600 million parameters: 10.1 GiB.
  summary.memory = {{"parameter", gib}, {"gradient", gib}, {"optimizer_state", 3 * gib}, {"activation", 50 * gib}};
  EXPECT_THAT(advice(), ElementsAre(AllOf(HasSubstr("zero2 saves memory that is not short: ddp would take about 65.1 GiB of 100 GiB"),
                                          HasSubstr("--strategy ddp,zero2"))));
  summary.parameters = 8'000'000'000;  // 18 bytes each are more than the device has
  EXPECT_THAT(advice(), IsEmpty());
}

TEST_F(Advice, GathersWhereWholeParametersFit) {
  layout.mesh = Mesh({{"data", 4}});
  layout.batch_axes = {0};
  layout.active = {{.name = "zero3-offload", .strategy = nullptr, .size = 0}};
  config.strategies = {{"zero3-offload", 0}};
  summary.parameters = 8'000'000'000;                                                // 14.9 GiB in bf16
  summary.collectives = {{.axes = "data", .op = "all_gather", .gathers = true, .count = 100, .bytes = 8'000'000'000}};  // a quarter, twice
  EXPECT_THAT(advice(), ElementsAre(AllOf(HasSubstr("each parameter 2.0 times"), HasSubstr("at most 74.9 GiB of 100 GiB (75%)"),
                                          HasSubstr("max_live_parameters"))));
  summary.collectives[0].bytes = 4'000'000'000;  // once is what there must be
  EXPECT_THAT(advice(), IsEmpty());
  summary.collectives[0].bytes = 8'000'000'000;
  summary.planned_bytes = 80 * gib;  // 95 GiB would leave nothing to spare
  EXPECT_THAT(advice(), IsEmpty());
}

TEST_F(Advice, NothingIsSaidOfDevicesWhosePeakIsUnknown) {
  device.peak_flops_bf16 = device.peak_flops_fp32 = 0;
  dtypes = {};
  summary.planned_bytes = gib;
  EXPECT_THAT(advice(), IsEmpty());
}

}  // namespace
}  // namespace consist
