// consist compare: what is listed is run, what cannot be is in the table with its reason, and a second call goes on where the
// first one stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

test::ChildResult compare(const std::string& output, std::vector<std::string> more) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                 "compare",
                                 "--dataset",
                                 "synthetic",
                                 "--sequence",
                                 "32",
                                 "--steps",
                                 "6",
                                 "--output",
                                 output};
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

TEST(Compare, RunsTheCrossProductAndGoesOn) {
  const TemporaryFolder folder;
  const std::vector<std::string> options{"--model",     "llama-tiny", "--ranks",        "1,2",
                                         "--precision", "fp32,bf16",  "--global-batch", "4"};
  const test::ChildResult first = compare(folder.path().string(), options);
  EXPECT_EQ(first.status, 0) << first.output;
  for (const char* label :
       {"llama-tiny_ranks1_fp32", "llama-tiny_ranks1_bf16", "llama-tiny_ranks2_fp32", "llama-tiny_ranks2_bf16"}) {
    const ArchiveReader archive((folder.path() / (std::string(label) + ".h5")).string());
    EXPECT_EQ(archive.status(), "finished") << label;
    EXPECT_EQ(archive.column("loss").size(), 6u) << label;
    EXPECT_EQ(archive.column("tokens").back(), 4 * 32) << label << ": the global batch is the same on any number of ranks";
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "comparison.h5"));
  EXPECT_THAT(first.output, HasSubstr("PARITY"));
  EXPECT_THAT(first.output, ContainsRegex("\n\\* +llama-tiny"));
  EXPECT_THAT(first.output, Not(HasSubstr("done before")));

  // One archive is gone: only that run is made again.
  std::filesystem::remove(folder.path() / "llama-tiny_ranks2_fp32.h5");
  const test::ChildResult second = compare(folder.path().string(), options);
  EXPECT_EQ(second.status, 0) << second.output;
  std::size_t skipped = 0;
  for (std::size_t at = second.output.find("done before"); at != std::string::npos;
       at = second.output.find("done before", at + 1))
    ++skipped;
  EXPECT_EQ(skipped, 3u) << second.output;

  std::vector<std::string> anew = options;
  anew.push_back("--overwrite");
  const test::ChildResult third = compare(folder.path().string(), anew);
  EXPECT_EQ(third.status, 0) << third.output;
  EXPECT_THAT(third.output, Not(HasSubstr("done before")));
}

TEST(Compare, WhatIsIllegalIsInTheTableAndTheRestRuns) {
  const TemporaryFolder folder;
  const test::ChildResult result =
      compare(folder.path().string(), {"--model", "llama-tiny,no-such-model", "--batch", "2", "--precision", "fp32,fp3"});
  EXPECT_EQ(result.status, 0) << result.output;
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

}  // namespace
}  // namespace consist
