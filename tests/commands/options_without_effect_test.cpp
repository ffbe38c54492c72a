// Options that were given and change nothing are said, with what they would need.
#include "launch/cli/options_without_effect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/cli/run_options.h"
#include "tests/child_process.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> notes_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--model", "llama-tiny", "--plugin", CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const ParsedRun parsed = parse_run(arguments);
  PluginHost host(plugin_paths(parsed));
  return make_config(parsed, host).notes;
}

TEST(OptionsWithoutEffect, OfPartsNameTheOptionThatTheyNeed) {
  const auto expect = [](const std::vector<std::string>& arguments, const std::string& option, const std::string& needed) {
    EXPECT_EQ(notes_of(arguments), std::vector<std::string>{option + " has no effect here; it needs " + needed});
  };
  expect({"--strategy", "pipeline", "--pipeline.chunks", "4"}, "--pipeline.chunks", "--pipeline.schedule interleaved");
  expect({"--precision", "fp8", "--fp8.amax-history-len", "4"}, "--fp8.amax-history-len", "--fp8.scaling delayed");
  expect({"--strategy", "tp-sp", "--tp-sp.gather-again", "--tp-sp.sequence-parallel=false"}, "--tp-sp.gather-again",
         "--tp-sp.sequence-parallel true");
  expect({"--strategy", "zero3-offload", "--zero3-offload.sub-group-size", "4"}, "--zero3-offload.sub-group-size",
         "--zero3-offload.offload-optimizer.device cpu");
  expect({"--text.eval-fraction", "0.1", "--text.eval-files", "a.txt"}, "--text.eval-fraction", "--text.eval-files ''");
  EXPECT_TRUE(notes_of({"--strategy", "pipeline", "--pipeline.chunks", "4", "--pipeline.schedule", "interleaved"}).empty());
  EXPECT_TRUE(notes_of({"--strategy", "tp-sp", "--tp-sp.gather-again"}).empty());
  EXPECT_TRUE(notes_of({"--strategy", "tp-sp", "--tp-sp.gather-again", "--tp-sp.sequence-parallel=yes"}).empty());
}

TEST(OptionsWithoutEffect, OfTheRunNameWhatTheyNeed) {
  EXPECT_EQ(notes_of({"--checkpoint-keep", "3", "--evaluate-sequences", "3"}).size(), 2U);
  EXPECT_TRUE(notes_of({}).empty());
}

TEST(OptionsWithoutEffect, QuantizedGathersWhereNothingIsGathered) {
  const auto explained = [](const std::string& strategy) {
    return test::run_child({CONSIST_BINARY_DIR "/bin/consist", "explain", "--summary", "--model",
                            CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied", "--ranks", "2", "--sequence", "32", "--batch", "2",
                            "--precision", "fp8", "--fp8.gathers", "--strategy", strategy})
        .output;
  };
  EXPECT_THAT(explained("ddp"), HasSubstr("--fp8.gathers has no effect here"));
  EXPECT_THAT(explained("tp-sp"), ::testing::Not(HasSubstr("has no effect")));
}

}  // namespace
}  // namespace consist
