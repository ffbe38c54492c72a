// Search against configurations drawn at random: none of them is faster than what it finds by more than a percent.
#include <gtest/gtest.h>

#include <memory>

#include "launch/search/tune/search.h"
#include "tests/advise/planned.h"
#include "tests/advise/random_configurations.h"

namespace consist::launch {
namespace {

struct Case {
  const char *name, *machine;
  const char* strategy;  ///< one that is not among the best
};

class TuneRandom : public ::testing::TestWithParam<Case> {
 protected:
  static RunConfig config() {
    RunConfig config;
    config.model = "llama-100m";
    config.precision = "bf16";
    config.sequence = 2048;
    config.ranks = 8;
    config.global_batch = 32;
    return config;
  }
  /// Seconds of what a search finds.
  double found(const RunConfig& config, const Settled& settled = {}) const {
    const SearchResult result =
        search({.config = config, .machine = machine_, .settled = settled, .rows = 1}, test::plugin_host());
    EXPECT_FALSE(result.candidates.empty());
    return result.candidates.empty() ? 0 : result.candidates.front().prediction.time.seconds;
  }
  test::Drawn faster_than(double best, std::size_t legal, std::size_t enough = SIZE_MAX) const {
    return test::Draws(config(), machine_, test::plugin_host()).faster_than(best, legal, 1, 0.01, enough);
  }

  std::shared_ptr<const Machine> machine_ = std::make_shared<const Machine>(parse_machine(GetParam().machine));
};

TEST_P(TuneRandom, NoneOfTwoHundredLegalConfigurationsIsFasterByMoreThanOnePercent) {
  const double best = found(config());
  const test::Drawn drawn = faster_than(best, 200);
  EXPECT_EQ(drawn.legal, 200U);
  for (const auto& [seconds, choices] : drawn.faster)
    ADD_FAILURE() << text_of(choices) << " takes " << seconds * 1e3 << " ms, the search's best " << best * 1e3;
}

/// Draws that are slower than anything would vouch for nothing.
TEST_P(TuneRandom, DrawsAreFasterThanWhatASearchOfOneStrategyFinds) {
  RunConfig one = config();
  one.strategies = parse_strategies(GetParam().strategy);
  EXPECT_FALSE(faster_than(found(one, {.strategy = true}), 50, 1).faster.empty());
}

// Two nodes of four small GPUs; a network on which messages between stages alone are cheap; one node whose memory takes little.
INSTANTIATE_TEST_SUITE_P(Machines, TuneRandom,
                         ::testing::Values(Case{"nodes", "h100,ranks-per-node=4,capacity=2e9", "tp-sp=2+zero2"},
                                           Case{"slow_network", "h100,ranks-per-node=1,network=1e9,capacity=3e9",
                                                "zero3-offload"},
                                           Case{"small", "h100,capacity=12e8", "tp-sp=4+pipeline=2"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace consist::launch
