// A run says before its first step that its weights will be dropped, and at its end what it has written where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string output_of(std::vector<std::string> more) {
  more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", "train", "--model", CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied",
                             "--from-scratch", "--device", "cpu", "--cpu.threads", "1", "--dataset", "synthetic", "--sequence", "8",
                             "--batch", "1", "--steps", "2"});
  const test::ChildResult result = test::run_child(more);
  EXPECT_EQ(result.status, 0) << result.output;
  return result.output;
}

TEST(KeptWeights, ThatTheyWillBeDroppedIsSaidBeforeTheFirstStep) {
  const std::string output = output_of({});
  const std::size_t warning = output.find("the trained weights will not be kept: --checkpoint FOLDER keeps them");
  ASSERT_NE(warning, std::string::npos) << output;
  EXPECT_LT(warning, output.find("step 1")) << output;
  EXPECT_THAT(output, HasSubstr("The trained weights were not kept: the run had no --checkpoint FOLDER and no --export FOLDER"));
  EXPECT_THAT(output, Not(HasSubstr("written: ")));
}

TEST(KeptWeights, WhatWasWrittenWhereIsSaidAtTheEnd) {
  const TemporaryFolder folder;
  const std::string output = output_of({"--checkpoint", folder / "ckpt", "--export", folder / "model", "--archive", folder / "run.h5"});
  EXPECT_THAT(output, HasSubstr("written: checkpoint of step 2 in " + (folder / "ckpt")));
  EXPECT_THAT(output, HasSubstr("written: the model in " + (folder / "model")));
  EXPECT_THAT(output, HasSubstr("written: archive " + (folder / "run.h5")));
  EXPECT_THAT(output, Not(HasSubstr("will not be kept")));
}

}  // namespace
}  // namespace consist
