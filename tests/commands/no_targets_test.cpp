// A step none of whose tokens is a target: the run says so, in its archive each time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

test::ChildResult train(const std::string& archive, const std::string& fields) {
  return test::run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--model", CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied",
                          "--from-scratch", "--device", "cpu", "--cpu.threads", "1", "--dataset", "synthetic", "--synthetic.fields", fields,
                          "--sequence", "2", "--batch", "1", "--steps", "8", "--archive", archive});
}

TEST(NoTargets, AStepWithoutAnyIsSaid) {
  const TemporaryFolder folder;
  const test::ChildResult result = train(folder / "masked.h5", "loss_mask");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("no token is a target"));
  const ArchiveReader archive(folder / "masked.h5");
  std::size_t said = 0, without = 0;
  for (const ArchiveEvent& event : archive.events()) said += event.kind == "no_targets" ? 1U : 0U;
  for (const double loss : archive.column("loss")) without += loss == 0 ? 1U : 0U;
  EXPECT_EQ(said, without);
  EXPECT_GT(said, 0U);
  EXPECT_LT(said, 8U);
  EXPECT_THAT(train(folder / "documents.h5", "document_start").output, Not(HasSubstr("no token is a target")));
}

}  // namespace
}  // namespace consist
