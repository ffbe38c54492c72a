// Promises of planned memory and static shapes: the plan is what the device holds, and a step allocates nothing and waits for
// nothing.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "consist/edit.h"
#include "consist/error.h"
#include "core/archive/reader.h"
#include "tests/allocations.h"
#include "tests/runtime/in_process_run.h"

namespace consist {
namespace {

using test::RankInProcess;
using test::run_in_process;
using ::testing::HasSubstr;

struct Configuration {
  const char* name;
  const char* model;
  const char* precision;
  int ranks;
  int accumulation;
  const char* dataset = "synthetic";
  std::int64_t evaluate_every = 0;
  const char* bucket_size = "25Mi";
};

RunConfig config_of(const Configuration& m) {
  RunConfig config;
  config.model = m.model[0] == '/' ? std::string(CONSIST_SOURCE_DIR) + m.model : m.model;
  config.precision = m.precision;
  config.device = "cpu";
  config.dataset = m.dataset;
  config.ranks = m.ranks;
  config.accumulation = m.accumulation;
  config.batch = 2;
  config.sequence = 32;
  config.steps = 12;
  config.evaluate_every = m.evaluate_every;
  config.evaluate_sequences = 8;
  config.plugin_options["ddp"]["bucket-size"] = m.bucket_size;
  if (config.dataset == "synthetic") config.plugin_options["synthetic"]["eval-sequences"] = "8";
  return config;
}

/// Notes the allocations of the whole program at the start of each step; itself it allocates nothing.
class AllocationMarks final : public TrainerEvents {
 public:
  AllocationMarks(std::int64_t steps, std::vector<pid_t> others) : others_(std::move(others)) {
    marks.reserve(static_cast<std::size_t>(steps));
  }
  void step_finished(const StepReport& report) override {
    if (report.step <= 2) test::forget_largest_tolerated();
    largest_tolerated = test::tolerated_allocations().largest_bytes;
  }
  void evaluated(const EvaluationReport& /*report*/) override {}
  void checkpoint(std::int64_t /*step*/) override {}
  bool stop_requested() override {  // comes first in each step
    marks.push_back(test::allocations_except(others_));
    return false;
  }

  std::vector<std::int64_t> marks;
  std::int64_t largest_tolerated = 0;  ///< bytes, after the first steps

 private:
  std::vector<pid_t> others_;  // threads that are left out
};

/// The most bytes that oneDNN may allocate at once in a step. Its products by AVX-512 make lists of a few nodes, which execute()
/// leaves no way around, and no buffers. Below AVX-512 they are those of its older GEMM, which takes four pages of work space for
/// each thread whatever it is given for that, and a buffer for operands where these are larger than any here
/// (plugins/devices/cpu/README.md).
std::int64_t most_bytes_of_onednn(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) throw SystemError("oneDNN (" + library + ") is not loaded");
  const auto isa = reinterpret_cast<int (*)()>(dlsym(handle, "dnnl_get_effective_cpu_isa"));
  dlclose(handle);
  if (isa == nullptr) throw SystemError(library + " has no dnnl_get_effective_cpu_isa()");
  constexpr int avx512_core = 0x20;  // the bit of dnnl_cpu_isa_avx512_core and of all above it, and of none below
  return (isa() & avx512_core) != 0 ? 1024 : 5 * 4096;
}

class StepOf : public ::testing::TestWithParam<Configuration> {};

TEST_P(StepOf, UsesExactlyThePlannedMemory) {
  run_in_process(config_of(GetParam()), [](const RankInProcess& rank) {
    const auto state = rank.make_state();
    EXPECT_EQ(rank.seen->allocations, 0) << "planning has allocated";
    state->allocate(false);
    // Before there was an arena, communicators were tried with known values, in memory that was given back.
    const int tried = rank.config->ranks > 1 ? 1 : 0;
    EXPECT_EQ(rank.device->counters().allocations, 1 + tried) << "one arena, and nothing besides";
    state->initialize(1);
    AllocationMarks events(rank.config->steps, {});
    ASSERT_EQ(train(*state, *rank.dataset, *rank.layout, rank.rank, rank.settings(), events), TrainerResult::finished);
    const DeviceCounters counters = rank.device->counters();
    EXPECT_GT(counters.peak_bytes, 0);
    EXPECT_EQ(counters.peak_bytes, state->planned_bytes());
    EXPECT_EQ(counters.allocations, 2 + tried) << "beside the arena, the host's memory that initial weights pass through";
    // The arena is no larger than its launches need: the last of them ends where it ends, but for the alignment of a tensor.
    EXPECT_FALSE(rank.seen->outside);
    EXPECT_LE(rank.seen->used_bytes, state->planned_bytes());
    EXPECT_GT(rank.seen->used_bytes, state->planned_bytes() - tensor_alignment);
  });
}

TEST_P(StepOf, AllocatesNothingAndDoesNotWaitForTheHost) {
  RunConfig config = config_of(GetParam());
  std::vector<pid_t> job_threads;  // they exchange messages of their own while steps run
  run_in_process(
      config,
      [&](const RankInProcess& rank) {
        const auto state = rank.make_state();
        state->allocate(false);
        state->initialize(1);
        AllocationMarks events(config.steps, job_threads);
        const std::string tolerated = test::tolerate_allocations_of("libdnnl");
        const DeviceCounters before = rank.device->counters();
        const std::int64_t runs_before = rank.seen->runs;
        train(*state, *rank.dataset, *rank.layout, rank.rank, rank.settings(), events);
        const DeviceCounters after = rank.device->counters();
        EXPECT_EQ(after.allocations, before.allocations);
        EXPECT_EQ(rank.seen->calls_inside, 0) << "the host uses the device while a step runs";
        EXPECT_GE(rank.seen->runs - runs_before, config.steps);
        EXPECT_EQ(rank.seen->runs, rank.seen->waits) << "a step is waited for once, at its end";

        // One of several ranks may still be in the step before when another begins the next: the first step is over for all when
        // the third begins for one.
        ASSERT_EQ(events.marks.size(), static_cast<std::size_t>(config.steps));
        const std::size_t first = config.ranks == 1 ? 1 : 2;
        const std::size_t last = events.marks.size() - 1;
        EXPECT_GT(events.marks[first], 0) << "allocations are not counted: the test shows nothing";
        if (config.evaluate_every > 0) return;  // between its steps lie evaluations
        if (tolerated.empty()) GTEST_SKIP() << "who allocates cannot be told here";
        EXPECT_EQ(events.marks[last], events.marks[first]);
        EXPECT_GT(test::tolerated_allocations().count, 0);
        EXPECT_LE(events.largest_tolerated, most_bytes_of_onednn(tolerated));
      },
      &job_threads);
  if (config.ranks > 1) {
    EXPECT_FALSE(job_threads.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Configurations, StepOf,
    ::testing::Values(Configuration{"llama_fp32", "llama-tiny", "fp32", 1, 1},
                      Configuration{"qwen3_bf16_accumulated", "qwen3-tiny", "bf16", 1, 3},
                      Configuration{"text", "llama-tiny", "bf16", 1, 1, "text"},
                      Configuration{"evaluated", "qwen3-tiny", "fp32", 1, 2, "synthetic", 4},
                      Configuration{"biases", "/tests/golden/hf/qwen2.5-bias", "fp32", 1, 2},
                      Configuration{"two_ranks_fp32", "llama-tiny", "fp32", 2, 1},
                      Configuration{"two_ranks_bf16_buckets", "qwen3-tiny", "bf16", 2, 2, "synthetic", 0, "300Ki"},
                      Configuration{"three_ranks", "/tests/golden/hf/llama-tied", "fp32", 3, 2, "synthetic", 0, "20Ki"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(MemoryLimit, IsExactAndCheckedBeforeAnythingIsAllocated) {
  RunConfig config = config_of({"", "llama-tiny", "fp32", 1, 1});
  run_in_process(config, [&](const RankInProcess& rank) {
    const std::int64_t planned = rank.make_state()->planned_bytes();
    config.memory_limit = planned;
    EXPECT_NO_THROW(rank.make_state());
    config.memory_limit = planned - 1;
    try {
      rank.make_state();
      ADD_FAILURE() << "one byte too little is not noticed";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("The largest tensors:"));
      EXPECT_THAT(error.what(), HasSubstr("lm_head.weight f32[4096,160] (parameter)"));
      EXPECT_THAT(error.what(), HasSubstr("--memory-limit"));
    }
    EXPECT_EQ(rank.seen->allocations, 0);
    EXPECT_EQ(rank.device->counters().allocations, 0);
    EXPECT_EQ(rank.device->counters().peak_bytes, 0);
  });
}

TEST(MemoryLimit, HoldsForTheEvaluationToo) {
  RunConfig config = config_of({"", "llama-tiny", "fp32", 1, 1, "synthetic", 1});
  run_in_process(config, [&](const RankInProcess& rank) {
    const std::int64_t planned = rank.make_state()->planned_bytes();
    config.memory_limit = planned - 1;
    EXPECT_THROW(rank.make_state(), UsageError);
    EXPECT_EQ(rank.seen->allocations, 0);
  });
}

}  // namespace
}  // namespace consist
