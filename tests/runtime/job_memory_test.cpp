// Memory is stated for the rank that needs the most of it.
#include "core/record/job_memory.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/record/run_description.h"
#include "tests/job/in_process.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using nlohmann::json;

LargestBytes largest_of(const std::vector<std::int64_t>& bytes) {
  LargestBytes seen;
  const auto errors = testing::run_ranks(testing::make_addresses(static_cast<int>(bytes.size())), [&](JoinedJob& job) {
    const std::int64_t own = bytes[static_cast<std::size_t>(job.rank())];
    tell_bytes(job, "planned", own);
    const LargestBytes found = largest_bytes(job, "planned", own);
    if (job.rank() == 0) seen = found;
    job.leave(std::chrono::seconds(20));
  });
  for (const std::exception_ptr& error : errors) EXPECT_EQ(testing::text_of(error), "");
  return seen;
}

TEST(JobMemory, IsTheLargestOverRanksAndSaysOfWhich) {
  EXPECT_EQ(largest_of({5}), (LargestBytes{.bytes = 5, .rank = 0, .equal = true}));
  EXPECT_EQ(largest_of({7, 7}), (LargestBytes{.bytes = 7, .rank = 0, .equal = true}));
  EXPECT_EQ(largest_of({7, 3, 9}), (LargestBytes{.bytes = 9, .rank = 2, .equal = false}));
  EXPECT_EQ(largest_of({9, 3, 7}), (LargestBytes{.bytes = 9, .rank = 0, .equal = false}));
  EXPECT_EQ(text_of(LargestBytes{.bytes = 1 << 20, .rank = 0, .equal = true}), "1.0 MiB per rank");
  EXPECT_EQ(text_of(LargestBytes{.bytes = 1 << 20, .rank = 3, .equal = false}), "up to 1.0 MiB per rank (rank 3)");
}

std::vector<int> without(const std::vector<std::int64_t>& bytes) {
  std::vector<int> seen;
  const auto errors = testing::run_ranks(testing::make_addresses(static_cast<int>(bytes.size())), [&](JoinedJob& job) {
    const std::int64_t own = bytes[static_cast<std::size_t>(job.rank())];
    tell_bytes(job, "to_host", own);
    const std::vector<int> found = ranks_without_bytes(job, "to_host", own);
    if (job.rank() == 0)
      seen = found;
    else
      EXPECT_TRUE(found.empty());
    job.leave(std::chrono::seconds(20));
  });
  for (const std::exception_ptr& error : errors) EXPECT_EQ(testing::text_of(error), "");
  return seen;
}

TEST(JobMemory, RanksThatMoveNothingToTheHostAreNamed) {
  EXPECT_EQ(without({4, 5}), (std::vector<int>{}));
  EXPECT_EQ(without({0, 5, 0}), (std::vector<int>{0, 2}));
  const OffloadRequest layers = parse_offload("0-1");
  const auto text = [&](const std::vector<int>& none, int ranks) { return nothing_moves_text(layers, none, ranks); };
  EXPECT_EQ(text({1}, 2).find("--offload-activations 0-1 moves nothing on rank 1: a stage of the pipeline"), 0U);
  EXPECT_EQ(text({1}, 2).find("leave the option out"), std::string::npos);
  EXPECT_NE(text({0, 1}, 2).find("moves nothing on any rank"), std::string::npos);
  EXPECT_NE(text({0, 1}, 2).find("leave the option out"), std::string::npos);
  EXPECT_NE(text({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 16).find("on ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 others:"), std::string::npos);
}

TEST(JobMemory, OfAPipelineIsItsLargestStagesInBannerAndArchive) {
  const TemporaryFolder folder;
  const std::vector<std::string> command{CONSIST_BINARY_DIR "/bin/consist",
                                         "train",
                                         "--from-scratch",
                                         "--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied",
                                         "--dataset=synthetic",
                                         "--device=cpu",
                                         "--sequence=64",
                                         "--batch=1",
                                         "--accumulation=4",
                                         "--strategy=pipeline=2",
                                         "--pipeline.schedule=gpipe",
                                         "--ranks=2",
                                         "--steps=1",
                                         "--archive=" + (folder / "run.h5")};
  const test::ChildResult run = test::run_child(command);
  ASSERT_EQ(run.status, 0) << run.output;
  const ArchiveReader archive(folder / "run.h5");
  const json result = json::parse(archive.text("/result")), program = json::parse(archive.text("/program"));
  // The last stage holds the LM head and the loss.
  EXPECT_EQ(result.at("planned_bytes_rank"), 1);
  EXPECT_EQ(result.at("measured_peak_bytes_rank"), 1);
  EXPECT_EQ(result.at("planned_bytes"), result.at("measured_peak_bytes"));
  EXPECT_EQ(program.at("rank"), 0);
  EXPECT_LT(program.at("planned_bytes"), result.at("planned_bytes"));
  EXPECT_EQ(program.at("largest").at("planned_bytes"), result.at("planned_bytes"));
  const std::string said =
      text_of(LargestBytes{.bytes = result.at("planned_bytes").get<std::int64_t>(), .rank = 1, .equal = false});
  EXPECT_NE(run.output.find("planned memory " + said), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("memory " + said + "\n"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace consist
