// --expert-load in training: a run's tokens go to experts in the stated shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/plan/plan.h"
#include "tests/runtime/in_process_run.h"

namespace consist {
namespace {

using test::RankInProcess;
using test::run_in_process;
using ::testing::HasSubstr;

RunConfig mixture(const std::string& load) {
  RunConfig config;
  config.model = "qwen3-moe-tiny";  // 4 routers, 8 experts, 2 choices
  config.device = "cpu";
  config.dataset = "synthetic";
  config.batch = 4;
  config.sequence = 256;
  config.steps = 3;
  config.expert_load = load;
  return config;
}

struct Choices final : TrainerEvents {
  void step_finished(const StepReport& report) override {
    sums.resize(report.expert_choices.size());
    std::ranges::transform(report.expert_choices, sums, sums.begin(), [](float more, double sum) { return sum + more; });
  }
  void evaluated(const EvaluationReport& /*report*/) override {}
  void checkpoint(std::int64_t /*step*/) override {}
  bool stop_requested() override { return false; }
  std::vector<double> sums;
};

TEST(StatedLoad, ComesOutInEachLayer) {
  for (const char* load : {"balanced", "zipf:1", "zipf:4"}) {
    SCOPED_TRACE(load);
    Choices choices;
    run_in_process(mixture(load), [&](const RankInProcess& rank) {
      const auto state = rank.make_state();
      state->allocate(false);
      state->initialize(1);
      train(*state, *rank.dataset, *rank.layout, rank.rank, rank.settings(), choices);
    });
    const std::vector<double> expected = ExpertLoad::parse(load)->shares(8, 2).front();
    ASSERT_EQ(choices.sums.size(), 4U * 8);
    for (std::size_t router = 0; router < 4; ++router) {
      const auto row = std::span(choices.sums).subspan(router * 8, 8);
      const double all = std::accumulate(row.begin(), row.end(), 0.0);
      EXPECT_EQ(all, 3 * 4 * 256 * 2);
      // Of 3,072 tokens a share of one half is met within 0.009 (a standard deviation), smaller ones within less.
      for (std::size_t e = 0; e < 8; ++e) EXPECT_NEAR(row[e] / all, expected[e], 0.025) << "router " << router << " expert " << e;
    }
  }
}

TEST(StatedLoad, IsForIdsAtRandom) {
  RunConfig config = mixture("zipf:1");
  EXPECT_NO_THROW(check_forced_routes(config));
  config.dataset = "text";
  try {
    check_forced_routes(config);
    ADD_FAILURE() << "the ids of a text are not equally frequent";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("give --dataset synthetic"));
  }
  config.expert_load = natural_experts;
  EXPECT_NO_THROW(check_forced_routes(config));
}

}  // namespace
}  // namespace consist
