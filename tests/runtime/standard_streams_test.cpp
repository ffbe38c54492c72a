// Standard input, output and error of a run that are closed, or that nobody reads any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A shell command that trains a tiny model for `steps` steps.
std::string train(const std::string& more, int steps = 20) {
  return CONSIST_BINARY_DIR
         "/bin/consist train --device cpu --cpu.threads 1 --dataset synthetic --sequence 32 --batch 2 --from-scratch "
         "--model " CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied --steps " +
         std::to_string(steps) + " " + more;
}

test::ChildResult shell(const std::string& command) {
  return test::run_child({"/bin/bash", "-c", command});
}

TEST(Archive, ClosedStandardDescriptorsDoNotReachIt) {
  const TemporaryFolder folder;
  for (const std::string ranks : {"1 >&- 2>&-", "2 <&- >&- 2>&-"}) {
    SCOPED_TRACE(ranks);
    const std::string archive = folder / "run.h5";
    // A checkpoint that is not there makes it say more, while files are open already.
    const test::ChildResult run = shell(train("--overwrite --archive " + archive + " --checkpoint " + (folder / "none") +
                                              " --checkpoint-every 10 --resume --ranks " + ranks));
    ASSERT_EQ(run.status, 0) << run.output;
    const ArchiveReader reader(archive);
    EXPECT_EQ(reader.status(), "finished");
    EXPECT_EQ(reader.column("loss").size(), 20U);
    EXPECT_THAT(read_whole(archive), Not(HasSubstr("step 1/20")));
    std::filesystem::remove_all(folder / "none");
  }
}

TEST(StandardStreams, ARunWhoseOutputNobodyReadsGoesOn) {
  const TemporaryFolder folder;
  for (const char* ranks : {"1", "2"}) {
    const std::string archive = folder / (std::string("run") + ranks + ".h5");
    const test::ChildResult run =
        shell(train("--archive " + archive + " --ranks " + ranks, 200) + " 2>&1 | head -1; exit ${PIPESTATUS[0]}");
    EXPECT_EQ(run.status, 0) << run.output;
    const ArchiveReader reader(archive);
    EXPECT_EQ(reader.status(), "finished");
    EXPECT_EQ(reader.column("loss").size(), 200U);
  }
}

TEST(StandardStreams, WarningsAreNotMixedWithResults) {
  const TemporaryFolder folder;
  const std::string command = train("--resume --checkpoint " + (folder / "none"), 2);
  const test::ChildResult results = shell(command + " 2>/dev/null");
  EXPECT_EQ(results.status, 0);
  EXPECT_THAT(results.output, Not(HasSubstr("there is no checkpoint")));
  const test::ChildResult messages = shell("rm -r " + (folder / "none") + "; " + command + " 2>&1 >/dev/null");
  EXPECT_THAT(messages.output, HasSubstr("there is no checkpoint in"));
}

}  // namespace
}  // namespace consist
