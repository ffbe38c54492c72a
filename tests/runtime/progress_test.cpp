// A rank that hangs between two steps is the one that all ranks name, with what it was doing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/record/run_progress.h"
#include "tests/runtime/in_process_run.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int hanging_rank = 1;
constexpr std::int64_t hanging_step = 3;

[[noreturn]] void hang(JoinedJob& job) {
  while (!job.failed()) std::this_thread::sleep_for(5ms);
  job.check();
  std::abort();
}

/// Hangs in reading the first sequence of a step.
class HangingDataset final : public Dataset {
 public:
  HangingDataset(Dataset& dataset, JoinedJob& job, std::int64_t first_sequence)
      : dataset_(dataset), job_(job), first_sequence_(first_sequence) {}
  void open(const DatasetRequest& request) override { dataset_.open(request); }
  std::string describe() const override { return dataset_.describe(); }
  std::int64_t train_sequences() const override { return dataset_.train_sequences(); }
  std::int64_t eval_sequences() const override { return dataset_.eval_sequences(); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    if (index >= first_sequence_) hang(job_);
    dataset_.read_train(index, tokens);
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { dataset_.read_eval(index, tokens); }

 private:
  Dataset& dataset_;
  JoinedJob& job_;
  std::int64_t first_sequence_;
};

class HangingEvents final : public TrainerEvents {
 public:
  HangingEvents(RunProgress& progress, JoinedJob& job, std::int64_t hangs_in_checkpoint)
      : progress_(progress), job_(job), hangs_in_checkpoint_(hangs_in_checkpoint) {}
  void step_finished(const StepReport& /*report*/) override {}
  void evaluated(const EvaluationReport& /*report*/) override {}
  void begins(Activity activity, std::int64_t step, std::int64_t round) override { progress_.begin(activity, step, round); }
  void checkpoint(std::int64_t step) override {
    if (step == hangs_in_checkpoint_) hang(job_);
  }
  bool stop_requested() override { return false; }

 private:
  RunProgress& progress_;
  JoinedJob& job_;
  std::int64_t hangs_in_checkpoint_;
};

/// The job's error text for a run of two ranks, one of which hangs.
std::string failure_of_hang(bool in_checkpoint) {
  RunConfig config;
  config.model = std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/qwen3-tied";
  config.device = "cpu";
  config.dataset = "synthetic";
  config.ranks = 2;
  config.batch = 1;
  config.sequence = 16;
  config.steps = 10;
  try {
    test::run_in_process(
        config,
        [&](const test::RankInProcess& rank) {
          const bool hangs = rank.rank == hanging_rank;
          const auto state = rank.make_state();
          state->allocate(false);
          state->initialize(1);
          HangingDataset dataset(*rank.dataset, *rank.job,
                                 hangs && !in_checkpoint ? (hanging_step - 1) * config.ranks : 1'000'000);
          RunProgress progress(*rank.job, *state, 1);
          HangingEvents events(progress, *rank.job, hangs && in_checkpoint ? hanging_step : -1);
          TrainerSettings settings = rank.settings();
          settings.checkpoint_every = 1;
          train(*state, dataset, *rank.layout, rank.rank, settings, events);
        },
        nullptr, 1500ms);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(RankProgress, ARankThatHangsInReadingDataIsNamed) {
  EXPECT_THAT(failure_of_hang(false), AllOf(HasSubstr("rank 1 on host"), HasSubstr("is stuck, last at reading data of step 3")));
}

TEST(RankProgress, ARankThatHangsInWritingACheckpointIsNamed) {
  EXPECT_THAT(failure_of_hang(true),
              AllOf(HasSubstr("rank 1 on host"), HasSubstr("is stuck, last at writing the checkpoint of step 3")));
}

}  // namespace
}  // namespace consist
