// Steps around the best configuration of a search, its Pareto front, and the machine at other rates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/search/tune/around.h"
#include "launch/search/tune/other_rates.h"
#include "tests/advise/planned.h"

namespace consist::launch {
namespace {

using ::testing::HasSubstr;

class TuneSharpness : public ::testing::Test {
 protected:
  TuneSharpness() : space_(config(), {}, parse_machine("h200"), test::plugin_host()), found_(space_, Objective::tokens) {}

  static RunConfig config() {
    RunConfig config;
    config.model = "llama-3-8b";
    config.precision = "bf16";
    config.sequence = 1024;
    config.global_batch = 8;
    return config;
  }
  Point with(const std::string& option, const std::string& value) const {
    Point point = best();
    EXPECT_TRUE(space_.set(point, option, value)) << option << " " << value;
    return point;
  }
  Point best() const {
    Point point = space_.first(0);
    space_.set(point, "batch", "4");
    return point;
  }
  static Estimate estimate(double seconds, bool fits = true) {
    return {.seconds = seconds, .joules = 0, .bytes = 1000, .fits = fits, .whole = false};
  }
  const OptionSteps* option(const std::vector<OptionSteps>& around, const std::string& name) const {
    const auto found = std::ranges::find(around, name, &OptionSteps::option);
    return found == around.end() ? nullptr : &*found;
  }
  std::vector<OptionSteps> around() const {
    return options_around(space_, found_, Corrections(space_, found_), best(), Numerics::kept);
  }

  Space space_;
  Findings found_;
};

TEST_F(TuneSharpness, ABasinHasCheapStepsAndAPeakHasNone) {
  found_.add(best(), {.quick = estimate(1), .simulated = estimate(2)});
  found_.add(with("batch", "2"), {.quick = estimate(1), .simulated = estimate(2.06)});
  found_.add(with("batch", "8"), {.quick = estimate(1, false)});
  found_.add(with("batch", "1"), {.quick = estimate(1), .simulated = estimate(1.9)});  // two steps away
  found_.add(with("recompute", "swiglu,rms_norm"), {.quick = estimate(1.015)});
  found_.add(with("recompute", "full"), {.quick = estimate(1.3), .simulated = estimate(2.4)});
  found_.add(with(offload_option, "all"), {.quick = estimate(1.004)});
  const std::vector<OptionSteps> all = around();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].option, "batch") << "the steepest first";
  EXPECT_EQ(all[0].shape(), OptionSteps::Shape::peak);
  EXPECT_EQ(all[0].value, "4");
  ASSERT_EQ(all[0].steps.size(), 2U);
  EXPECT_EQ(all[0].steps[0].value, "2");
  EXPECT_NEAR(all[0].steps[0].loss, 0.03, 1e-12);
  EXPECT_TRUE(all[0].steps[0].is_simulated);
  EXPECT_FALSE(all[0].steps[1].fits);

  const OptionSteps& recompute = all[1];
  EXPECT_EQ(recompute.option, "recompute");
  EXPECT_EQ(recompute.shape(), OptionSteps::Shape::slope);
  EXPECT_FALSE(recompute.steps[0].is_simulated);
  EXPECT_NEAR(recompute.steps[0].loss, 0.015, 1e-12);
  EXPECT_NEAR(recompute.steps[1].loss, 0.2, 1e-12) << "of simulations, where there are both";
  EXPECT_EQ(all[2].shape(), OptionSteps::Shape::basin);

  const std::string text = text_of(all);
  EXPECT_THAT(text, HasSubstr("peak  batch 4: 2 +3.0%, 8 too large"));
  EXPECT_THAT(text, HasSubstr("slope recompute none: swiglu,rms_norm ~+1.5%, full +20.0%"));
  EXPECT_THAT(text, HasSubstr("basin offload-activations: 0.4% at most"));
}

TEST_F(TuneSharpness, EnergyKeepsOnTheFrontWhatTimeAndMemoryLeaveOut) {
  const auto add = [&](const Point& point, double seconds, double joules, std::int64_t bytes) {
    found_.add(point, {.whole = Estimate{.seconds = seconds, .joules = joules, .bytes = bytes, .fits = true}});
  };
  const Point slow = with("recompute", "full"), small = with("batch", "2"), idle = with("batch", "1");
  add(best(), 1, 100, 1000);
  add(small, 1.1, 110, 500);
  add(slow, 1.2, 80, 1000);   // the least energy
  add(idle, 1.3, 105, 1000);  // as good in nothing
  const Points by_memory = found_.front(false), by_energy = found_.front(true);
  EXPECT_EQ(by_memory, (Points{best(), small}));
  EXPECT_EQ(by_energy, (Points{best(), small, slow}));
}

TEST(TuneOtherRates, AMachineIsSlowerInWhatWasChangedAlone) {
  const Machine h200 = parse_machine("h200");
  const Machine links = with_rates(h200, 0.5, 1), clock = with_rates(h200, 1, 0.5);
  const auto seconds = [](const Machine& machine, double bytes) {
    return seconds_of(machine.node.curves.front(), bytes, machine.node.curves.front().members);
  };
  EXPECT_NEAR(seconds(links, 1e9) / seconds(h200, 1e9), 2, 0.01);
  EXPECT_DOUBLE_EQ(seconds(clock, 1e9), seconds(h200, 1e9));
  ASSERT_FALSE(h200.device.times.empty());
  bool computes = false, moves = false;
  for (std::size_t n = 0; n < h200.device.times.size(); ++n) {
    for (std::size_t p = 0; p < h200.device.times[n].points.size(); ++p) {
      const DeviceRates::OpTimes::Point& own = h200.device.times[n].points[p];
      EXPECT_EQ(links.device.times[n].points[p].seconds, own.seconds);
      const double ratio = clock.device.times[n].points[p].seconds / own.seconds;
      EXPECT_NEAR(ratio, own.flops > 0 ? 2 : 1 + h200.device.throttling.memory_bound.value, 1e-12);
      (own.flops > 0 ? computes : moves) = true;
    }
  }
  EXPECT_TRUE(computes && moves);
  EXPECT_EQ(links.device.sustained_clock.value, h200.device.sustained_clock.value);
}

TEST(TuneOtherRates, ARowThatOvertakesIsNamed) {
  const std::vector<std::string> rows{"--strategy ddp", "--strategy zero2"};
  EXPECT_EQ(text_of({{"links 5% slower", 0, 0}, {"clock 5% faster", 0, 0}}, rows),
            "The first row stays the best with links 5% slower, clock 5% faster.\n");
  const std::string text = text_of({{"links 5% slower", 1, 0.012}, {"clock 5% slower", 0, 0}}, rows);
  EXPECT_THAT(text, HasSubstr("stays the best with clock 5% slower.\n"));
  EXPECT_THAT(text, HasSubstr("With links 5% slower '--strategy zero2' is 1.2% better than the first row.\n"));
}

}  // namespace
}  // namespace consist::launch
