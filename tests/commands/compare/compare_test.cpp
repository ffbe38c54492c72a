// consist compare: what is listed is run, what cannot be is in the table with its reason, and a second call goes on where the
// first one stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/archive/comparison.h"
#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"
#include "tests/terminal_process.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

test::ChildResult compare(const std::string& output, std::vector<std::string> more) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                 "compare",
                                 "--dataset",
                                 "synthetic",
                                 "--sequence",
                                 "32",
                                 "--steps",
                                 "6",
                                 "--device",
                                 "cpu",
                                 "--output",
                                 output};
  if (std::find(more.begin(), more.end(), "--repeats") == more.end()) words.insert(words.end(), {"--repeats", "1"});
  words.insert(words.end(), more.begin(), more.end());
  return test::run_child(words);
}

TEST(Compare, ListsWhatIsRecomputed) {
  const TemporaryFolder folder;
  const test::ChildResult result =
      compare(folder.path().string(), {"--model", "llama-tiny", "--batch", "1", "--recompute", "none,swiglu+rms_norm,full"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("RECOMPUTE"));
  const std::vector<double> kept = ArchiveReader(folder / "llama-tiny_recompute-none.h5").column("loss");
  ASSERT_EQ(kept.size(), 6u);
  for (const char* label : {"swiglu+rms_norm", "full"}) {
    const ArchiveReader archive(folder / (std::string("llama-tiny_recompute-") + label + ".h5"));
    EXPECT_EQ(archive.column("loss"), kept) << label;
    std::string listed = label;
    std::replace(listed.begin(), listed.end(), '+', ',');
    EXPECT_THAT(archive.text("/config"), HasSubstr("\"recompute\": \"" + listed + "\""));
  }
}

std::size_t count_of(const std::string& text, const std::string& output) {
  std::size_t count = 0;
  for (std::size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++count;
  return count;
}

TEST(Compare, RunsTheCrossProductRepeatedlyAndGoesOn) {
  const TemporaryFolder folder;
  // In bf16 a run's start settles options by measuring: they are recorded, and asked for by nobody.
  const std::vector<std::string> options{"--model", "llama-tiny",  "--ranks", "1,2",       "--global-batch",
                                         "4",       "--precision", "bf16",    "--repeats", "2"};
  const test::ChildResult first = compare(folder.path().string(), options);
  EXPECT_EQ(first.status, 0) << first.output;
  for (const char* label : {"llama-tiny_ranks1", "llama-tiny_ranks1.repeat2", "llama-tiny_ranks2", "llama-tiny_ranks2.repeat2"}) {
    const ArchiveReader archive((folder.path() / (std::string(label) + ".h5")).string());
    EXPECT_EQ(archive.status(), "finished") << label;
    EXPECT_EQ(archive.column("loss").size(), 6u) << label;
    EXPECT_EQ(archive.column("tokens").back(), 4 * 32) << label << ": the global batch is the same on any number of ranks";
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "comparison.h5"));
  EXPECT_THAT(first.output, ContainsRegex("llama-tiny +1 +[0-9.]+ k? +±[>0-9.]+%"));
  EXPECT_THAT(first.output, ContainsRegex("ranks 2 over 1: [0-9.]+x the speed \\([0-9.]+ to [0-9.]+\\)"));
  EXPECT_THAT(first.output, Not(HasSubstr("done before")));

  // One archive is gone: only that run is made again.
  std::filesystem::remove(folder.path() / "llama-tiny_ranks2.repeat2.h5");
  const auto written = std::filesystem::last_write_time(folder.path() / "llama-tiny_ranks1.repeat2.h5");
  const test::ChildResult second = compare(folder.path().string(), options);
  EXPECT_EQ(second.status, 0) << second.output;
  EXPECT_GE(count_of("done before", second.output), 3u) << second.output;
  EXPECT_EQ(std::filesystem::last_write_time(folder.path() / "llama-tiny_ranks1.repeat2.h5"), written);
  EXPECT_EQ(ArchiveReader(folder / "llama-tiny_ranks2.repeat2.h5").status(), "finished");
}

/// Results that somebody has waited for are not replaced because of a number on the command line.
TEST(Compare, ResultsOfOtherOptionsAreKept) {
  const TemporaryFolder folder;
  const std::string archive = folder / "llama-tiny.h5";
  ASSERT_EQ(compare(folder.path().string(), {"--model", "llama-tiny", "--batch", "1"}).status, 0);
  const test::ChildResult other = compare(folder.path().string(), {"--model", "llama-tiny", "--batch", "1", "--seed", "7"});
  EXPECT_EQ(other.status, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("holds a finished run with seed 0 (here 7)"));
  EXPECT_THAT(other.output, HasSubstr("--overwrite"));
  EXPECT_THAT(ArchiveReader(archive).text("/config"), HasSubstr("\"seed\": 0"));
  const test::ChildResult anew =
      compare(folder.path().string(), {"--model", "llama-tiny", "--batch", "1", "--seed", "7", "--overwrite"});
  EXPECT_EQ(anew.status, 0) << anew.output;
  EXPECT_THAT(ArchiveReader(archive).text("/config"), HasSubstr("\"seed\": 7"));
}

/// comparison.h5 gives way to the same comparison or a larger one alone.
TEST(Compare, RowsOfAnEarlierComparisonAreKept) {
  const TemporaryFolder folder;
  const std::string here = folder.path().string(), summary = folder / "comparison.h5";
  const auto precisions = [&](const std::string& list, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--model", "llama-tiny", "--batch", "1", "--repeats", "1", "--precision", list});
    return compare(here, more);
  };
  ASSERT_EQ(precisions("fp32,bf16").status, 0);
  const test::ChildResult fewer =
      compare(here, {"--model", "llama-tiny", "--batch", "1", "--repeats", "1", "--precision", "fp32", "--seed", "1,2"});
  EXPECT_EQ(fewer.status, 2) << fewer.output;
  EXPECT_THAT(fewer.output,
              AllOf(HasSubstr(summary + " compares \"llama-tiny_fp32\" and 1 more, which"), HasSubstr("--overwrite")));
  EXPECT_EQ(count_of(" tokens/s, loss", fewer.output), 0U) << "before anything is run";
  EXPECT_EQ(linked_archives(summary).size(), 2U);
  EXPECT_EQ(precisions("fp32,bf16", {"--seed", "0"}).status, 0) << "the same comparison";
  EXPECT_EQ(precisions("fp32", {"--overwrite"}).status, 0);
  EXPECT_EQ(linked_archives(summary).size(), 1U);
  const test::ChildResult itself = precisions("fp32", {"--add", summary});
  EXPECT_EQ(itself.status, 2);
  EXPECT_THAT(itself.output, HasSubstr("is the file that this comparison writes"));
  write_whole(summary, "of somebody");
  const test::ChildResult other = precisions("fp32");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output, HasSubstr("is there already and is no comparison"));
  EXPECT_EQ(read_whole(summary), "of somebody");
}

/// With one rank every strategy makes the same program: one run stands for all of them. Seeds and a part's option are lists, too.
TEST(Compare, EqualProgramsAreOneRowAndAnyOptionIsAList) {
  const TemporaryFolder folder;
  const test::ChildResult result = compare(folder.path().string(), {"--model", "llama-tiny", "--batch", "1", "--strategy",
                                                                    "ddp,zero2", "--zero2.stage", "1,2", "--seed", "1,2"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(count_of(" tokens/s, loss", result.output), 2u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("llama-tiny_ddp_seed1 is the same program as llama-tiny_zero2_zero2.stage1_seed1, "
                                       "llama-tiny_zero2_zero2.stage2_seed1: one row for all of them"));
  EXPECT_THAT(result.output, Not(HasSubstr("zero2 over ddp")));
  EXPECT_NE(ArchiveReader(folder / "llama-tiny_ddp_seed1.h5").column("loss"),
            ArchiveReader(folder / "llama-tiny_ddp_seed2.h5").column("loss"));
}

TEST(Compare, RowsOfOtherMachinesAreAdded) {
  const TemporaryFolder folder;
  ASSERT_EQ(compare((folder.path() / "a").string(), {"--model", "llama-tiny", "--batch", "1"}).status, 0);
  const test::ChildResult joined = compare((folder.path() / "b").string(), {"--model", "llama-tiny", "--batch", "1", "--seed",
                                                                            "5", "--add", folder / "a/comparison.h5"});
  EXPECT_EQ(joined.status, 0) << joined.output;
  EXPECT_THAT(joined.output, HasSubstr("seed: 0 (a:llama-tiny); 5 (llama-tiny)\n"));
  EXPECT_THAT(joined.output, ContainsRegex("\n +llama-tiny +a:llama-tiny +[0-9]"));
  const test::ChildResult alone = test::run_child(
      {CONSIST_BINARY_DIR "/bin/consist", "compare", "--add", folder / "a/llama-tiny.h5", folder / "b/llama-tiny.h5"});
  EXPECT_EQ(alone.status, 0) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr("seed: 0 (a:llama-tiny); 5 (b:llama-tiny)\n"));
}

class CompareSignal : public ::testing::TestWithParam<int> {};

/// The row's job ends after its step, the row is interrupted and not failed, and the table so far is printed.
TEST_P(CompareSignal, EndsTheRowAndTheComparison) {
  const TemporaryFolder folder;
  test::TerminalProcess process({CONSIST_BINARY_DIR "/bin/consist", "compare", "--model", "llama-tiny", "--device", "cpu",
                                 "--dataset", "synthetic", "--sequence", "32", "--batch", "1,2", "--steps", "100000", "--output",
                                 folder.path().string()});
  process.wait_for("step ", std::chrono::seconds(60));
  process.signal(GetParam());
  EXPECT_EQ(process.wait(std::chrono::seconds(30)), 128 + GetParam()) << process.output();
  EXPECT_THAT(process.output(), ContainsRegex("llama-tiny +1 +interrupted: by SIG[A-Z]+[^\n]* after step [0-9]+"));
  EXPECT_THAT(process.output(), ContainsRegex("llama-tiny +2 +pending: not run yet"));
  EXPECT_THAT(process.output(), Not(HasSubstr("failed")));
  EXPECT_EQ(ArchiveReader(folder / "llama-tiny_batch1.h5").status(), "stopped");
}

INSTANTIATE_TEST_SUITE_P(Signals, CompareSignal, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& info) { return info.param == SIGINT ? "Interrupt" : "Terminate"; });

TEST(Compare, WhatIsIllegalIsInTheTableAndTheRestRuns) {
  const TemporaryFolder folder;
  const test::ChildResult result =
      compare(folder.path().string(), {"--model", "llama-tiny,no-such-model", "--batch", "2", "--precision", "fp32,fp3"});
  EXPECT_EQ(result.status, 2) << "a name that does not exist is no row that succeeded\n" << result.output;
  EXPECT_THAT(result.output, ContainsRegex("llama-tiny +fp3 .*refused: .*'fp3'"));
  EXPECT_THAT(result.output, ContainsRegex("no-such-model +fp32.*refused: .*neither a folder nor a preset"));
  EXPECT_EQ(ArchiveReader((folder.path() / "llama-tiny_fp32.h5").string()).status(), "finished");
}

TEST(Compare, ARunThatFailsDoesNotStopTheRest) {
  const TemporaryFolder folder;
  const std::filesystem::path cut = folder.path() / "cut-off";
  std::filesystem::copy(CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied", cut);
  std::filesystem::resize_file(cut / "model.safetensors", std::filesystem::file_size(cut / "model.safetensors") / 2);
  const test::ChildResult result = compare((folder.path() / "out").string(), {"--model", cut.string() + ",llama-tiny"});
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("cut-off +failed: .*model.safetensors"));
  EXPECT_EQ(ArchiveReader((folder.path() / "out" / "llama-tiny.h5").string()).status(), "finished");
}

TEST(Compare, WhatDoesNotFitIsRefusedBeforeItRuns) {
  const TemporaryFolder folder;
  const test::ChildResult result =
      compare(folder.path().string(), {"--model", "llama-tiny", "--batch", "1,1000000", "--memory-limit", "1Gi"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("llama-tiny +1000000 +refused: .* 1.0 GiB may be used"));
}

TEST(Compare, BatchesThatDoNotDivideAreRefused) {
  const TemporaryFolder folder;
  const test::ChildResult result =
      compare(folder.path().string(), {"--model", "llama-tiny", "--ranks", "1,2", "--global-batch", "3"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("llama-tiny +2 .*refused: --global-batch 3 .*leaves a rest"));
}

/// docs/cases.md, case 3: values of a DeepSpeed file are swept, the table says what each is worth, and no run finds another's
/// checkpoints. The options of zero3-offload do not disturb the row without it.
TEST(Compare, SweepsADeepspeedFile) {
  const TemporaryFolder folder;
  const test::ChildResult result =
      compare(folder.path().string(),
              {"--model", "llama-tiny", "--ranks", "2", "--batch", "1", "--deepspeed-config",
               CONSIST_SOURCE_DIR "/docs/cases/zero3-offload-batch4.json", "--deepspeed-set",
               "zero_optimization.sub_group_size=1e5,1e9", "--checkpoint", folder / "checkpoints", "--checkpoint-each-epoch"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("SUB_GROUP_SIZE"));
  EXPECT_THAT(result.output, ContainsRegex("sub_group_size 1e9 over 1e5: [0-9.]+x the speed"));
  for (const char* size : {"1e5", "1e9"}) {
    const std::string label = std::string("llama-tiny_sub_group_size") + size;
    EXPECT_THAT(ArchiveReader(folder / (label + ".h5")).text("/config"),
                HasSubstr(std::string("\"sub-group-size\": \"") + (size == std::string("1e5") ? "100000\"" : "1000000000\"")));
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "checkpoints" / label / "step-00000006")) << result.output;
  }
}

TEST(Compare, OptionsOfAPartHoldForTheRunsThatHaveIt) {
  const TemporaryFolder folder;
  const test::ChildResult result = compare(folder.path().string(), {"--model", "llama-tiny", "--ranks", "2", "--batch", "1",
                                                                    "--strategy", "ddp,zero2", "--zero2.stage", "1"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(ArchiveReader(folder / "llama-tiny_ddp.h5").text("/config"), Not(HasSubstr("stage")));
  EXPECT_THAT(ArchiveReader(folder / "llama-tiny_zero2.h5").text("/config"), HasSubstr("\"stage\": \"1\""));
  const test::ChildResult stray = compare((folder.path() / "other").string(),
                                          {"--model", "llama-tiny", "--strategy", "ddp,zero2", "--pipeline.schedule", "gpipe"});
  EXPECT_THAT(stray.output, HasSubstr("'pipeline' is not part of this configuration"));
}

/// Ten sequences and four a step: passes end within the steps 3, 5 and 8.
TEST(TrainCommand, CheckpointsAfterEachEpoch) {
  const TemporaryFolder folder;
  write_whole(folder / "data.u16", std::string(2 * (10 * 16 + 1), '\1'));
  const test::ChildResult result = test::run_child(
      {CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--model=llama-tiny", "--dataset=tokens",
       "--tokens.files=" + (folder / "data.u16"), "--tokens.format=u16", "--tokens.eval-fraction=0", "--sequence=16", "--batch=4",
       "--steps=7", "--checkpoint-keep=9", "--checkpoint=" + (folder / "checkpoints"), "--checkpoint-each-epoch"});
  ASSERT_EQ(result.status, 0) << result.output;
  std::set<std::string> steps;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints")) {
    if (entry.is_directory()) steps.insert(entry.path().filename().string());
  }
  EXPECT_EQ(steps, (std::set<std::string>{"step-00000003", "step-00000005", "step-00000007"})) << result.output;
}

}  // namespace
}  // namespace consist
