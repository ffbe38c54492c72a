// Sequences that a run reads, when it reads them, and what becomes of a dataset that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>

#include "consist/error.h"
#include "core/training/batches.h"
#include "core/training/step_reader.h"
#include "tests/runtime/in_process_run.h"

namespace consist {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

/// The sequences that were read of a dataset, by all ranks, in the order of the reads.
class Reads {
 public:
  void add_train(std::int64_t index) {
    const std::lock_guard lock(mutex_);
    train_.push_back(index);
    changed_.notify_all();
  }
  void add_evaluation(std::int64_t index) {
    const std::lock_guard lock(mutex_);
    evaluation_.push_back(index);
  }
  std::vector<std::int64_t> sorted_train() const { return sorted(train_); }
  std::vector<std::int64_t> sorted_evaluation() const { return sorted(evaluation_); }
  std::size_t train_count() const {
    const std::lock_guard lock(mutex_);
    return train_.size();
  }
  /// True if so many training sequences are read within ten seconds.
  bool wait_for_train(std::size_t count) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return train_.size() >= count; });
  }

 private:
  std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) const {
    const std::lock_guard lock(mutex_);
    std::sort(values.begin(), values.end());
    return values;
  }
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::int64_t> train_, evaluation_;
};

/// Passes on what another dataset reads, and notes it. `before` is called before each training sequence is read.
class WatchedDataset final : public Dataset {
 public:
  WatchedDataset(const Dataset& dataset, Reads& reads, std::function<void(std::int64_t)> before = {})
      : dataset_(dataset), reads_(reads), before_(std::move(before)) {}
  void open(const DatasetRequest& /*request*/) override {}
  std::int64_t train_sequences() const override { return dataset_.train_sequences(); }
  std::int64_t eval_sequences() const override { return dataset_.eval_sequences(); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    if (before_) before_(index);
    reads_.add_train(index);
    dataset_.read_train(index, tokens);
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override {
    reads_.add_evaluation(index);
    dataset_.read_eval(index, tokens);
  }
  std::string describe() const override { return dataset_.describe(); }

 private:
  const Dataset& dataset_;
  Reads& reads_;
  std::function<void(std::int64_t)> before_;
};

class Reports final : public TrainerEvents {
 public:
  void step_finished(const StepReport& report) override {
    steps.push_back(report);
    if (after_step) after_step(report.step);
  }
  void evaluated(const EvaluationReport& report) override { evaluations.push_back(report); }
  void checkpoint(std::int64_t /*step*/) override {}
  bool stop_requested() override { return false; }

  std::vector<StepReport> steps;
  std::vector<EvaluationReport> evaluations;
  std::function<void(std::int64_t)> after_step;
};

RunConfig tiny(int ranks, std::int64_t batch, int accumulation, std::int64_t steps) {
  RunConfig config;
  config.model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied";
  config.device = "cpu";
  config.dataset = "synthetic";
  config.ranks = ranks;
  config.batch = batch;
  config.accumulation = accumulation;
  config.sequence = 16;
  config.steps = steps;
  config.plugin_options["synthetic"]["eval-sequences"] = "12";
  config.plugin_options["cpu"]["threads"] = "1";
  return config;
}

std::vector<std::int64_t> up_to(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(end - first));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

EvaluationReport evaluate_once(const RunConfig& config, Reads& reads) {
  EvaluationReport evaluation;
  test::run_in_process(config, [&](const test::RankInProcess& rank) {
    const auto state = rank.make_state();
    state->allocate(false);
    state->initialize(1);
    const WatchedDataset data(*rank.dataset, reads);
    TrainerSettings settings = rank.settings();
    settings.learning_rate = 0;  // the weights stay as they are in every layout
    Reports reports;
    train(*state, data, *rank.layout, rank.rank, settings, reports);
    ASSERT_EQ(reports.evaluations.size(), 1U);
    if (rank.rank == 0) evaluation = reports.evaluations[0];
  });
  return evaluation;
}

// 10 sequences are neither a multiple of most rounds nor all that the dataset has.
TEST(Evaluation, ReadsTheSameSequencesOnceEachInEveryLayout) {
  double expected = 0;
  for (const auto& [ranks, batch] : std::vector<std::pair<int, std::int64_t>>{{1, 1}, {1, 4}, {1, 16}, {2, 3}, {3, 2}}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, batch " + std::to_string(batch));
    RunConfig config = tiny(ranks, batch, 1, 1);
    config.evaluate_every = 1;
    config.evaluate_sequences = 10;
    Reads reads;
    const EvaluationReport evaluation = evaluate_once(config, reads);
    EXPECT_THAT(reads.sorted_evaluation(), ElementsAreArray(up_to(0, 10)));
    EXPECT_EQ(evaluation.sequences, 10);
    if (expected == 0) expected = evaluation.loss;
    EXPECT_NEAR(evaluation.loss / expected, 1, 1e-6);
  }
  EXPECT_GT(expected, 1);
}

TEST(Evaluation, TakesAllThereAreIfMoreAreAskedFor) {
  for (const std::int64_t asked : {0, 100}) {
    RunConfig config = tiny(1, 5, 1, 1);
    config.evaluate_every = 1;
    config.evaluate_sequences = asked;
    Reads reads;
    EXPECT_EQ(evaluate_once(config, reads).sequences, 12);
    EXPECT_THAT(reads.sorted_evaluation(), ElementsAreArray(up_to(0, 12)));
  }
}

TEST(TrainingData, IsReadOnceEachFromTheStepThatIsResumed) {
  for (const auto& [ranks, batch, accumulation] : std::vector<std::tuple<int, int, int>>{{1, 4, 1}, {1, 1, 4}, {2, 1, 2}}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, batch " + std::to_string(batch));
    std::vector<Reads> reads(static_cast<std::size_t>(ranks));
    test::run_in_process(tiny(ranks, batch, accumulation, 5), [&](const test::RankInProcess& rank) {
      const auto state = rank.make_state();
      state->allocate(false);
      state->initialize(1);
      const WatchedDataset data(*rank.dataset, reads[static_cast<std::size_t>(rank.rank)]);
      TrainerSettings settings = rank.settings();
      settings.first_step = 2;
      Reports reports;
      train(*state, data, *rank.layout, rank.rank, settings, reports);
      EXPECT_EQ(reports.steps.size(), 3U);
      EXPECT_EQ(reports.steps[0].sequences, 4);
    });
    // In each micro-batch the ranks read one behind the other.
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::int64_t> own;
      for (const std::int64_t index : up_to(2 * 4, 5 * 4)) {
        if (index / batch % ranks == rank) own.push_back(index);
      }
      EXPECT_THAT(reads[static_cast<std::size_t>(rank)].sorted_train(), ElementsAreArray(own)) << "rank " << rank;
    }
  }
}

// The step's own thread never reads: the next step's tokens are there, and no more than those, before it is asked for.
TEST(TrainingData, IsReadOneStepAheadAndNotTwo) {
  test::run_in_process(tiny(1, 2, 1, 8), [&](const test::RankInProcess& rank) {
    const auto state = rank.make_state();
    state->allocate(false);
    Reads reads;
    const WatchedDataset data(*rank.dataset, reads);
    Batches batches(data, *rank.layout, 0, rank.settings(), *state);
    StepReader reader(batches, 0, 8);
    for (std::int64_t step = 0; step < 8; ++step) {
      reader.take(step);
      const std::size_t ahead = std::min<std::size_t>(2 * (step + 2), 16);
      EXPECT_TRUE(reads.wait_for_train(ahead)) << "step " << step + 1 << " is not read while step " << step << " is in use";
      std::this_thread::sleep_for(milliseconds(2));
      EXPECT_EQ(reads.train_count(), ahead);
    }
  });
}

TEST(TrainingData, OfAStepIsNotTouchedWhileTheNextIsRead) {
  test::run_in_process(tiny(1, 2, 2, 4), [&](const test::RankInProcess& rank) {
    const auto state = rank.make_state();
    state->allocate(false);
    Reads reads;
    const WatchedDataset data(*rank.dataset, reads);
    Batches batches(data, *rank.layout, 0, rank.settings(), *state);
    StepReader reader(batches, 0, 4);
    for (std::int64_t step = 0; step < 4; ++step) {
      const StepTokens& tokens = reader.take(step);
      ASSERT_TRUE(reads.wait_for_train(std::min<std::size_t>(4 * (step + 2), 16)));
      std::vector<std::int32_t> sequence(17);
      for (std::int64_t row = 0; row < 4; ++row) {
        rank.dataset->read_train(step * 4 + row, sequence);
        for (std::int64_t i = 0; i < 16; ++i) {
          ASSERT_EQ(tokens.ids[static_cast<std::size_t>(row * 16 + i)], sequence[static_cast<std::size_t>(i)]);
          ASSERT_EQ(tokens.targets[static_cast<std::size_t>(row * 16 + i)], sequence[static_cast<std::size_t>(i + 1)]);
        }
      }
    }
  });
}

// Each rank reads whole sequences and writes its tokens, in the program's order.
TEST(TrainingData, OfSequencesThatRanksShareIsWrittenInParts) {
  const std::int64_t zigzag[2][8] = {{0, 1, 2, 3, 12, 13, 14, 15}, {4, 5, 6, 7, 8, 9, 10, 11}};
  for (const char* attention : {"gather", "ulysses"}) {
    RunConfig config = tiny(2, 2, 2, 1);
    config.strategies = parse_strategies("cp=2");
    config.plugin_options["cp"]["attention"] = attention;
    test::run_in_process(config, [&](const test::RankInProcess& rank) {
      const auto state = rank.make_state();
      state->allocate(false);
      Batches batches(*rank.dataset, *rank.layout, rank.rank, rank.settings(), *state);
      EXPECT_EQ(batches.tokens_per_step(), 4 * 16);
      StepTokens tokens = batches.room();
      batches.read_step(0, tokens, false);
      batches.write_step(tokens);
      std::vector<std::int32_t> sequence(17);
      for (std::int64_t row = 0; row < 4; ++row) {
        rank.dataset->read_train(row, sequence);
        const Program& program = state->step().program();
        const std::string micro = "." + std::to_string(row / 2);
        const auto* ids = state->step().buffer(program.find("ids" + micro)).as<std::int32_t>();
        const auto* targets = state->step().buffer(program.find("targets" + micro)).as<std::int32_t>();
        for (std::int64_t i = 0; i < 8; ++i) {
          const auto at = static_cast<std::size_t>(attention == std::string("gather") ? zigzag[rank.rank][i] : rank.rank * 8 + i);
          EXPECT_EQ(ids[row % 2 * 8 + i], sequence[at]) << attention << ", rank " << rank.rank << ", token " << i;
          EXPECT_EQ(targets[row % 2 * 8 + i], sequence[at + 1]);
        }
      }
    });
  }
}

/// The message of a run of six steps of one sequence if reading sequence 4 does `fail`; expects four steps done by then.
template <typename Expected>
std::string failure_of(const std::function<void()>& fail) {
  std::string text;
  test::run_in_process(tiny(1, 1, 1, 6), [&](const test::RankInProcess& rank) {
    const auto state = rank.make_state();
    state->allocate(false);
    state->initialize(1);
    Reads reads;
    const WatchedDataset data(*rank.dataset, reads, [&](std::int64_t index) {
      if (index == 4) fail();
    });
    TrainerSettings settings = rank.settings();
    settings.dataset = "synthetic";
    Reports reports;
    try {
      train(*state, data, *rank.layout, 0, settings, reports);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Expected& error) {
      text = error.what();
    }
    EXPECT_EQ(reports.steps.size(), 4U) << "steps whose data is sound are done";
  });
  return text;
}

TEST(TrainingData, ThatFailsEndsTheStepThatNeedsItWithTheDatasetsName) {
  EXPECT_EQ(failure_of<DataError>([] { throw DataError("shard 3 is cut off"); }),
            "dataset 'synthetic', reading sequence 4 for step 5: shard 3 is cut off");
  EXPECT_THAT(failure_of<SystemError>([] { throw SystemError("no such disk"); }), HasSubstr("for step 5: no such disk"));
  EXPECT_THAT(failure_of<Error>([] { throw std::runtime_error("its own kind"); }), HasSubstr("for step 5: its own kind"));
  EXPECT_THAT(failure_of<Error>([] { throw 42; }), HasSubstr("'synthetic', reading sequence 4 for step 5: it threw something"));
}

// Waiting for data is no part of a step's time; it is stated beside it.
TEST(TrainingData, ThatIsSlowIsWaitedForBesideTheStepsTime) {
  test::run_in_process(tiny(1, 1, 1, 3), [&](const test::RankInProcess& rank) {
    const auto state = rank.make_state();
    state->allocate(false);
    state->initialize(1);
    Reads reads;
    const WatchedDataset data(*rank.dataset, reads, [](std::int64_t) { std::this_thread::sleep_for(milliseconds(300)); });
    Reports reports;
    train(*state, data, *rank.layout, 0, rank.settings(), reports);
    double waited = 0, taken = 0;
    for (const StepReport& step : reports.steps) {
      waited += step.data_seconds;
      taken += step.seconds;
    }
    EXPECT_GT(waited + taken, 0.89);
    EXPECT_GT(waited, 0.29) << "the first step's data at least is waited for";
    EXPECT_LT(taken, 0.6) << "two steps' data were read inside of steps";
  });
}

TEST(TrainingData, ReaderEndsWithARunThatEndsEarly) {
  test::run_in_process(tiny(1, 1, 1, 1000), [&](const test::RankInProcess& rank) {
    const auto state = rank.make_state();
    state->allocate(false);
    Reads reads;
    const WatchedDataset data(*rank.dataset, reads);
    Batches batches(data, *rank.layout, 0, rank.settings(), *state);
    for (const std::int64_t taken : {0, 1, 5}) {
      StepReader reader(batches, 0, 1000);
      for (std::int64_t step = 0; step < taken; ++step) reader.take(step);
      EXPECT_THROW(reader.take(taken + 1), ProgramError);
    }
    EXPECT_LE(reads.train_count(), 1U + 2U + 6U);
  });
}

}  // namespace
}  // namespace consist
