// After which steps a trainer evaluates and saves, where it ends, and which rates the optimizer gets.
#include <gmock/gmock.h>

#include "tests/runtime/in_process_run.h"

namespace consist {
namespace {

using ::testing::ElementsAre;

/// Notes the steps after which something happened; asks for an end before step `stop_before`.
class Events final : public TrainerEvents {
 public:
  explicit Events(std::int64_t stop_before = 0) : stop_before_(stop_before) {}
  void step_finished(const StepReport& report) override {
    last = report.step;
    rates.emplace_back(report.step, report.learning_rate);
  }
  void evaluated(const EvaluationReport& report) override { evaluations.push_back(report.step); }
  void checkpoint(std::int64_t step) override { checkpoints.push_back(step); }
  void snapshot(std::int64_t step) override { snapshots.push_back(step); }
  void snapshot_before_pause(std::int64_t step) override { pauses.push_back(step); }
  bool stop_requested() override { return last + 1 == stop_before_; }
  bool end_wanted() override { return last + 1 == end_before; }
  bool pause_requested() override { return last + 1 == pause_before; }

  std::int64_t last = 0;
  std::int64_t pause_before = -1, end_before = -1;
  std::vector<std::int64_t> evaluations, checkpoints, snapshots, pauses;
  std::vector<std::pair<std::int64_t, double>> rates;

 private:
  std::int64_t stop_before_;
};

/// A dataset of ten training sequences.
class TenSequences final : public Dataset {
 public:
  explicit TenSequences(const Dataset& dataset) : dataset_(dataset) {}
  void open(const DatasetRequest& /*request*/) override {}
  std::int64_t train_sequences() const override { return 10; }
  std::int64_t eval_sequences() const override { return dataset_.eval_sequences(); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { dataset_.read_train(index % 10, tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { dataset_.read_eval(index, tokens); }
  std::string describe() const override { return dataset_.describe(); }

 private:
  const Dataset& dataset_;
};

class Trainer : public ::testing::Test {
 protected:
  /// Steps of four sequences.
  TrainerResult run(std::int64_t steps, Events& events, const std::function<void(TrainerSettings&)>& set) {
    RunConfig config;
    config.model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied";
    config.device = "cpu";
    config.dataset = "synthetic";
    config.batch = 2;
    config.accumulation = 2;
    config.sequence = 8;
    config.steps = steps;
    config.evaluate_every = 2;
    config.evaluate_sequences = 2;
    config.plugin_options["cpu"]["threads"] = "1";
    TrainerResult result{};
    test::run_in_process(config, [&](const test::RankInProcess& rank) {
      const auto state = rank.make_state();
      state->allocate(false);
      state->initialize(1);
      TrainerSettings settings = rank.settings();
      set(settings);
      result = train(*state, TenSequences(*rank.dataset), *rank.layout, rank.rank, settings, events);
    });
    return result;
  }
};

/// AdamW that notes what a trainer asks it for.
class WatchedOptimizer final : public Optimizer {
 public:
  std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const override {
    return adamw_.states(parameter, shape);
  }
  std::size_t scalar_count() const override { return adamw_.scalar_count(); }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    asked.emplace_back(step, learning_rate);
    adamw_.write_scalars(step, learning_rate, out);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    adamw_.update(builder, scalars, clip, group);
  }
  std::string describe() const override { return adamw_.describe(); }

  mutable std::vector<std::pair<std::int64_t, double>> asked;

 private:
  AdamW adamw_;
};

/// A different rate at each step.
class CountingSchedule final : public Schedule {
 public:
  double rate(std::int64_t done, std::int64_t steps, double peak) const override {
    return peak * static_cast<double>(done + 1) / static_cast<double>(steps);
  }
  std::string describe() const override { return "for tests"; }
};

TEST_F(Trainer, GivesTheOptimizerTheRateOfItsStepAndReportsIt) {
  const WatchedOptimizer optimizer;
  const CountingSchedule schedule;
  Events events;
  run(5, events, [&](TrainerSettings& settings) {
    settings.optimizers = &optimizer;
    settings.schedule = &schedule;
    settings.learning_rate = 0.01;
    settings.first_step = 1;  // as if resumed after a step
  });
  std::vector<std::pair<std::int64_t, double>> expected;
  for (std::int64_t step = 2; step <= 5; ++step) expected.emplace_back(step, schedule.rate(step - 1, 5, 0.01));
  EXPECT_EQ(optimizer.asked, expected);
  EXPECT_EQ(events.rates, expected);
}

TEST_F(Trainer, EvaluatesAndSavesAtItsIntervalsAndAfterTheLastStep) {
  Events events;
  EXPECT_EQ(run(7, events, [](TrainerSettings& settings) { settings.checkpoint_every = 3; }), TrainerResult::finished);
  EXPECT_EQ(events.last, 7);
  EXPECT_THAT(events.evaluations, ElementsAre(2, 4, 6, 7));
  EXPECT_THAT(events.checkpoints, ElementsAre(3, 6, 7));
}

// 12, 20 and 32 sequences are the first that reach 10, 20 and 30.
TEST_F(Trainer, SavesBehindTheStepThatEndsAnEpoch) {
  Events events;
  run(9, events, [](TrainerSettings& settings) { settings.checkpoint_each_epoch = true; });
  EXPECT_THAT(events.checkpoints, ElementsAre(3, 5, 8, 9));
}

// The last step needs none, and a checkpoint has one with it.
TEST_F(Trainer, TakesSnapshotsBetweenCheckpoints) {
  Events events;
  run(8, events, [](TrainerSettings& settings) {
    settings.checkpoint_every = 6;
    settings.snapshot_every = 2;
  });
  EXPECT_THAT(events.checkpoints, ElementsAre(6, 8));
  EXPECT_THAT(events.snapshots, ElementsAre(2, 4));
}

TEST_F(Trainer, EndsBehindTheStepThatItIsAskedInAndSaves) {
  Events saving(3), not_saving(3);
  EXPECT_EQ(run(7, saving, [](TrainerSettings& settings) { settings.checkpoint_every = 5; }), TrainerResult::stopped);
  EXPECT_EQ(saving.last, 3);
  EXPECT_THAT(saving.checkpoints, ElementsAre(3));
  EXPECT_EQ(run(7, not_saving, [](TrainerSettings&) {}), TrainerResult::stopped);
  EXPECT_THAT(not_saving.checkpoints, ElementsAre());
}

TEST_F(Trainer, PausesBehindTheStepThatItIsAskedInWithASnapshot) {
  Events events, at_the_end, stopped(3);
  events.pause_before = stopped.pause_before = 3;
  EXPECT_EQ(run(7, events, [](TrainerSettings& settings) { settings.checkpoint_every = 5; }), TrainerResult::paused);
  EXPECT_EQ(events.last, 3);
  EXPECT_THAT(events.pauses, ElementsAre(3));
  EXPECT_THAT(events.checkpoints, ElementsAre()) << "it is no end";
  at_the_end.pause_before = 7;
  EXPECT_EQ(run(7, at_the_end, [](TrainerSettings&) {}), TrainerResult::finished);
  EXPECT_EQ(run(7, stopped, [](TrainerSettings&) {}), TrainerResult::stopped) << "who wants the end counts more";
}

TEST_F(Trainer, EndsBehindTheStepThatIsWantedToBeTheLastAsBehindTheLastOne) {
  Events events, earlier;
  events.end_before = 5;
  EXPECT_EQ(run(7, events, [](TrainerSettings& settings) { settings.checkpoint_every = 3; }), TrainerResult::finished);
  EXPECT_EQ(events.last, 5);
  EXPECT_THAT(events.evaluations, ElementsAre(2, 4, 5));
  EXPECT_THAT(events.checkpoints, ElementsAre(3, 5));
  earlier.end_before = 4;
  EXPECT_EQ(run(7, earlier, [](TrainerSettings&) {}), TrainerResult::finished);
  EXPECT_EQ(earlier.last, 4);
  EXPECT_THAT(earlier.checkpoints, ElementsAre()) << "without --checkpoint";
}

}  // namespace
}  // namespace consist
