// The plan of a run for fewer ranks than it was asked for: each step reads the same sequences.
#include "core/plan/other_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "core/plan/plan.h"

namespace consist {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

PluginHost& host_of_test() {
  static PluginHost made({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return made;
}

RunConfig tiny_of(const std::string& strategies, int ranks, std::int64_t batch, int accumulation) {
  RunConfig config;
  config.model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
  config.strategies = parse_strategies(strategies);
  config.ranks = ranks;
  config.batch = batch;
  config.accumulation = accumulation;
  config.sequence = 16;
  return config;
}

std::string refusal_with(const RunConfig& config, int ranks) {
  try {
    with_ranks(config, ranks, host_of_test());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(OtherRanks, TheGlobalBatchStaysAndMicroBatchesDoNotGrow) {
  struct Case {
    std::string strategies;
    int before, ranks;
    std::int64_t batch;
    int accumulation;
    std::int64_t expected_batch;
    int expected_accumulation;
  };
  for (const Case& one : {Case{"ddp", 4, 3, 3, 1, 2, 2}, Case{"ddp", 4, 2, 3, 1, 3, 2}, Case{"zero2", 3, 2, 2, 1, 1, 3},
                          Case{"zero2", 4, 1, 2, 3, 2, 12}, Case{"tp-sp=2+zero2", 8, 6, 3, 2, 2, 4},
                          Case{"pipeline=2+ddp", 8, 6, 3, 4, 2, 8}, Case{"zero2=2+ddp", 8, 4, 1, 1, 1, 2}}) {
    SCOPED_TRACE(one.strategies + " " + std::to_string(one.before) + " to " + std::to_string(one.ranks));
    const RunConfig asked = tiny_of(one.strategies, one.before, one.batch, one.accumulation),
                    fewer = with_ranks(asked, one.ranks, host_of_test());
    EXPECT_EQ(fewer.ranks, one.ranks);
    EXPECT_EQ(fewer.batch, one.expected_batch);
    EXPECT_EQ(fewer.accumulation, one.expected_accumulation);
    EXPECT_EQ(plan_run(fewer, host_of_test()).config().global_batch, plan_run(asked, host_of_test()).config().global_batch);
  }
}

TEST(OtherRanks, WithAllRanksNothingChanges) {
  const RunConfig asked = tiny_of("ddp", 4, 2, 1);
  EXPECT_EQ(with_ranks(asked, 4, host_of_test()).to_json(), asked.to_json());
  EXPECT_THAT(with_ranks(asked, 2, host_of_test()).notes, Contains(HasSubstr("the global batch stays 8")));
}

TEST(OtherRanks, WhatCannotGoOnIsRefused) {
  EXPECT_THAT(refusal_with(tiny_of("ddp", 4, 2, 1), 3),
              HasSubstr("a global batch of 8 sequences cannot be divided over the 3 replicas on 3 of 4 ranks"));
  EXPECT_THAT(refusal_with(tiny_of("tp-sp=2+ddp", 4, 2, 1), 3), HasSubstr("has no layout for 3 of 4 ranks"));
  EXPECT_THAT(refusal_with(tiny_of("zero2=4", 4, 2, 1), 3), HasSubstr("--strategy zero2=4 has no layout for 3 of 4 ranks"));
}

}  // namespace
}  // namespace consist
