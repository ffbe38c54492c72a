// Models that ranks cannot share by tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/child_process.h"

namespace consist {
namespace {

/// Refused before anything starts, with the reason.
TEST(TensorParallel, RefusesWhatRanksCannotShare) {
  const std::string golden = std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/";
  const auto refused = [&](const std::string& model, const std::string& ranks, const std::string& sequence, const char* why) {
    const test::ChildResult result = test::run_child(
        {CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--dataset=synthetic", "--from-scratch",
         "--model=" + golden + model, "--sequence=" + sequence, "--steps=1", "--ranks=" + ranks, "--strategy=tp-sp=" + ranks});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.output, ::testing::HasSubstr(why));
  };
  refused("qwen3-tied", "2", "16", "the number of attention heads is 7");
  refused("llama-rope-scaled", "3", "16", "which the ranks cannot share equally; choose a multiple of 3");
  refused("llama-tied", "4", "18", "--sequence is 18");
}

}  // namespace
}  // namespace consist
