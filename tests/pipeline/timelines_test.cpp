// Timelines of pipelines: as drawn, with the bubble of the formula, and as a run reports it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "consist/error.h"
#include "core/cost/timeline.h"
#include "core/plugin/host.h"
#include "core/record/bubble_fraction.h"
#include "plugins/strategies/pipeline/orders.h"
#include "tests/golden_text.h"
#include "tests/pipeline/programs.h"

namespace consist {
namespace {

using test::compile;
using test::Configuration;
using test::pointers;

/// Planned programs, waits for memory included, in which each forward part takes 1 and nothing else but backward takes time.
Timeline equal_timeline(const std::vector<const Program*>& stages) {
  std::vector<Durations> units;
  for (const Program* stage : stages) units.push_back(equal_durations(*stage));
  return timeline_of(stages, simulate(stages, units));
}

class PipelineTimelines : public ::testing::Test {
 protected:
  PluginHost host_{std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

TEST_F(PipelineTimelines, Golden) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    for (const int micro_batches : {3, 8}) {
      const auto programs =
          compile(host_, {.schedule = schedule, .stages = 4, .micro_batches = micro_batches, .shape = {.layers = 8}});
      std::string name = "timeline_" + std::string(schedule) + "_4x" + std::to_string(micro_batches);
      std::replace(name.begin(), name.end(), '-', '_');
      test::expect_golden(name, timeline_text(equal_timeline(pointers(programs))));
    }
  }
}

TEST_F(PipelineTimelines, BubbleFractionOfEqualStagesIsThatOfTheFormula) {
  using pipeline::Schedule;
  const std::map<std::string, Schedule> schedules{{"gpipe", Schedule::gpipe},
                                                  {"1f1b", Schedule::one_f_one_b},
                                                  {"interleaved", Schedule::interleaved},
                                                  {"zero-bubble", Schedule::zero_bubble},
                                                  {"zero-bubble-h2", Schedule::zero_bubble_h2}};
  for (const auto& [name, schedule] : schedules) {
    for (const int stages : {2, 4}) {
      const auto programs = compile(host_, {.schedule = name, .stages = stages, .micro_batches = 8, .shape = {.layers = 8}});
      const int chunks = schedule == Schedule::interleaved ? 2 : 1;
      EXPECT_NEAR(equal_timeline(pointers(programs)).bubble_fraction(), pipeline::bubble_fraction(schedule, stages, chunks, 8),
                  1e-9)
          << name << " over " << stages;
    }
  }
}

/// Number of units in which each part is drawn for a rank.
std::map<std::string, int> units_of(const std::string& drawing, int rank) {
  std::map<std::string, int> units;
  std::istringstream lines(drawing);
  for (std::string line; std::getline(lines, line);) {
    const std::string begin = "rank " + std::to_string(rank) + " |";
    std::istringstream cells(line.starts_with(begin) ? line.substr(begin.size()) : "");
    for (std::string cell; cells >> cell;) {
      if (cell != ".") ++units[cell];
    }
  }
  return units;
}

// Instructions in front of a part that need no message, such as the release of memory, are no work of that part.
TEST_F(PipelineTimelines, WaitingIsNotDrawnAsWork) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    const Configuration configuration{
        .schedule = schedule, .stages = 4, .micro_batches = 4, .shape = {.layers = 8, .heads = 4, .kv_heads = 2}, .tensor = 2};
    const auto programs = compile(host_, configuration);
    std::vector<const Program*> stages;
    for (int rank : programs[0].mesh.group(0, programs[0].stage_axis))
      stages.push_back(&programs[static_cast<std::size_t>(rank)]);
    const Timeline timeline = equal_timeline(stages);
    const std::string drawing = timeline_text(timeline);
    const bool split = schedule == std::string("zero-bubble") || schedule == std::string("zero-bubble-h2");
    for (int rank = 0; rank < 4; ++rank) {
      std::map<std::tuple<Phase, int, int>, double> work;
      for (const TimelinePart& part : timeline.ranks[static_cast<std::size_t>(rank)])
        work[{part.phase, part.micro_batch, part.stage}] += part.end - part.begin;
      for (const auto& [part, units] : work)
        EXPECT_NEAR(units, std::get<0>(part) == Phase::backward && !split ? 2 : 1, 1e-9) << schedule;
      if (split) continue;  // whose weight gradients run beside collectives in the middle of other parts
      for (const auto& [cell, units] : units_of(drawing, rank))
        EXPECT_EQ(units, cell[0] == 'B' ? 2 : 1) << cell << " of rank " << rank << "\n" << drawing;
    }
  }
}

// What ranks measured is as good as what their ops cost: a run's report has both.
TEST_F(PipelineTimelines, ReportsTheBubbleOfEqualStagesOfTheirCostsAndOfTheirTimes) {
  const auto programs = compile(host_, {.schedule = "interleaved", .stages = 3, .micro_batches = 4, .shape = {.layers = 6}});
  std::vector<Durations> measured;
  for (const Program& program : programs) measured.push_back(estimated_durations(program));
  const BubbleReport report = bubble_report({0.1, 0.2, 0.6}, pointers(programs), measured);
  EXPECT_NEAR(report.mean, 0.3, 1e-12);
  EXPECT_NEAR(report.equal_stages, equal_timeline(pointers(programs)).bubble_fraction(), 1e-12);
  EXPECT_NEAR(report.by_times, report.by_ops, 1e-9);
  EXPECT_GT(std::abs(report.by_ops - report.equal_stages), 0.01) << "the ends' work is another than that in the middle";
  for (Durations& of_rank : measured) std::ranges::fill(of_rank, 0);
  const Program& middle = programs[1];
  double all = 0;
  for (std::size_t n = 0; n < middle.instructions.size(); ++n) {
    measured[1][n] = equal_durations(middle)[n];
    all += measured[1][n];
  }
  ASSERT_GT(all, 0);
  EXPECT_NEAR(bubble_report({}, pointers(programs), measured).by_times, 2.0 / 3, 1e-9)
      << "of three ranks one works, all the time";
  measured[0].pop_back();
  EXPECT_THROW(bubble_report({}, pointers(programs), measured), ProgramError);
}

}  // namespace
}  // namespace consist
