// The layouts that `consist tune` searches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/plan/machine_choice.h"
#include "launch/search/tune/space.h"
#include "tests/advise/planned.h"

namespace consist::launch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> layouts_over(int ranks) {
  RunConfig config;
  config.model = "llama-3-8b";
  config.precision = "bf16";
  config.sequence = 2048;
  config.ranks = ranks;
  config.global_batch = 64;
  const Space space(config, {}, parse_machine("h200"), test::plugin_host());
  std::vector<std::string> texts;
  for (const LayoutChoice& layout : space.layouts()) {
    texts.push_back(layout.strategy);
    EXPECT_NO_THROW(parse_strategies(layout.strategy)) << layout.strategy;
  }
  return texts;
}

TEST(TuneSpace, DividesWithinNodesAndReplicatesAcrossThem) {
  const std::vector<std::string> two_nodes = layouts_over(16);
  for (const char* layout : {"zero2", "zero2=2x8", "zero2=8+ddp=2", "zero3-offload=8+ddp=2", "tp-sp=2+zero2=4+ddp=2", "ddp=2x8"})
    EXPECT_THAT(two_nodes, Contains(layout));
  EXPECT_THAT(two_nodes, Each(Not(HasSubstr("ddp=8+")))) << "replicas within nodes would divide over slower links";
  EXPECT_THAT(layouts_over(8), Each(Not(AllOf(HasSubstr("zero"), HasSubstr("ddp"))))) << "one node";
}

TEST(TuneSpace, EachLayoutIsThereWithEachTransportThatItsStrategiesAllow) {
  RunConfig config;
  config.model = "llama-3-8b";
  config.precision = "bf16";
  config.sequence = 1024;
  config.ranks = 16;
  config.global_batch = 16;
  const auto space = [&](const std::vector<std::string>& transports) {
    return Space(config, {}, parse_machine("h200"), test::plugin_host(), transports);
  };
  const std::size_t layouts = space({}).layouts().size();
  EXPECT_EQ(space({"efa", "socket"}).layouts().size(), 2 * layouts);
  const Space both = space({"efa", "efa,tp-sp=nvlink"});
  std::size_t with_tensor = 0;
  for (std::size_t n = 0; n < both.layouts().size(); ++n) {
    const LayoutChoice& layout = both.layouts()[n];
    if (layout.transport == "efa,tp-sp=nvlink") {
      ++with_tensor;
      EXPECT_THAT(layout.strategy, HasSubstr("tp-sp="));
    }
    const Choices choices = both.choices_of(both.first(n));
    ASSERT_GE(choices.size(), 2U);
    EXPECT_EQ(choices[1].option, "transport");
    EXPECT_EQ(choices[1].value, layout.transport);
  }
  EXPECT_GT(with_tensor, 0U);
  EXPECT_EQ(both.layouts().size(), layouts + with_tensor);
  EXPECT_EQ(space({}).choices_of(space({}).first(0))[1].option, "batch") << "one that is not searched is no choice";
  EXPECT_THROW(space({"efa,pigeons=efa"}), UsageError);
}

TEST(TuneSpace, HasThePlaceOfActivationsUnlessItIsSettled) {
  RunConfig config;
  config.model = "llama-3-8b";
  config.precision = "bf16";
  config.sequence = 2048;
  config.global_batch = 4;
  const auto values = [&](const Settled& settled) {
    return Space(config, settled, parse_machine("h200"), test::plugin_host()).values_of(0, offload_option);
  };
  EXPECT_THAT(values({}), ::testing::ElementsAre("none", "all"));
  EXPECT_THAT(values({.offload = true}), ::testing::IsEmpty());
}

TEST(TuneSpace, RecomputesInAnyNumberOfLayersWhereItIsAskedFor) {
  RunConfig config;
  config.model = "llama-3-8b";
  config.precision = "bf16";
  config.sequence = 1024;
  config.global_batch = 4;
  const Space space(config, {}, parse_machine("h200"), test::plugin_host());
  Point point = space.first(0);
  EXPECT_TRUE(space.recomputing_less(point).empty()) << "nothing is recomputed";
  ASSERT_TRUE(space.set(point, "recompute", "full"));
  const std::vector<Point> fewer = space.recomputing_less(point);
  ASSERT_EQ(fewer.size(), 31U);
  EXPECT_EQ(space.value_of(fewer.front(), layers_option), "0-0");
  EXPECT_EQ(space.value_of(fewer.back(), layers_option), "0-30");
  EXPECT_EQ(space.recomputing_less(fewer[7]).size(), 7U);
  const std::vector<Point> around = space.around(point, 1);
  EXPECT_EQ(std::ranges::count_if(around, [&](const Point& other) { return !space.value_of(other, layers_option).empty(); }), 6)
      << "quarters alone, of either recomputation";
}

}  // namespace
}  // namespace consist::launch
