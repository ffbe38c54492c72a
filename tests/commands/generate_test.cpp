// `consist generate` as users run it: seeds, ends of texts, prompts, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/child_process.h"
#include "tests/consist_program.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using test::program;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string reference = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";  // 101 tokens, 128 positions, eos 2

class Generate : public ::testing::Test {
 protected:
  test::ChildResult run(std::vector<std::string> options) const {
    options.insert(options.begin(), {program, "generate", "--device=cpu", "--cpu.threads=1", "--json=" + made(), "--overwrite"});
    return test::run_child(options);
  }
  json generated(const std::vector<std::string>& options) const {
    const test::ChildResult result = run(options);
    EXPECT_EQ(result.status, 0) << result.output;
    std::ifstream file(made());
    return json::parse(file);
  }
  void expect_refused(const std::vector<std::string>& options, const std::string& message) const {
    const test::ChildResult result = run(options);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
  }
  std::string made() const { return folder_ / "made.json"; }

  TemporaryFolder folder_;
};

TEST_F(Generate, TheSameSeedWritesTheSameTokens) {
  const auto tokens = [&](const std::string& seed) {
    return generated({"--model=" + reference, "--prompt-ids=5,6", "--max-tokens=40", "--ignore-eos", "--seed=" + seed})
        .at("tokens");
  };
  const json first = tokens("1");
  EXPECT_EQ(first.size(), 40U);
  EXPECT_EQ(tokens("1"), first);
  EXPECT_NE(tokens("2"), first);
}

TEST_F(Generate, StopsAtTheTokenThatEndsATextUnlessItIsToGoOn) {
  const std::vector<std::string> options{"--model=" + reference, "--prompt-ids=5,6", "--max-tokens=120", "--temperature=20",
                                         "--seed=4"};
  const json ended = generated(options);
  EXPECT_EQ(ended.at("ended"), true);
  EXPECT_LT(ended.at("tokens").size(), 120U);
  EXPECT_EQ(ended.at("tokens").back(), 2);
  std::vector<std::string> on = options;
  on.push_back("--ignore-eos");
  const json whole = generated(on);
  EXPECT_EQ(whole.at("ended"), false);
  ASSERT_EQ(whole.at("tokens").size(), 120U);
  for (std::size_t i = 0; i < ended.at("tokens").size(); ++i) EXPECT_EQ(whole.at("tokens")[i], ended.at("tokens")[i]);
}

/// A folder with the tokenizer that ships, whose 4096 tokens llama-tiny has; trained on the text that ships.
TEST_F(Generate, WritesTextFromACheckpointFromAPromptOrAFile) {
  const test::ChildResult trained =
      test::run_child({program, "train", "--model", "llama-tiny", "--device", "cpu", "--steps", "2", "--batch", "1", "--sequence",
                       "32", "--checkpoint", folder_ / "checkpoints"});
  ASSERT_EQ(trained.status, 0) << trained.output;
  const std::vector<std::string> options{"--checkpoint=" + (folder_ / "checkpoints"), "--max-tokens=12", "--temperature=0",
                                         "--ignore-eos"};
  std::vector<std::string> by_prompt = options, by_file = options;
  by_prompt.push_back("--prompt=Once upon a time");
  std::ofstream(folder_ / "prompt.txt") << "Once upon a time\n";
  by_file.push_back("--prompt-file=" + (folder_ / "prompt.txt"));
  const json made = generated(by_prompt);
  EXPECT_EQ(made.at("weights"), "step 2 of " + (folder_ / "checkpoints"));
  EXPECT_GT(made.at("prompt_tokens").size(), 2U);
  EXPECT_EQ(made.at("tokens").size(), 12U);
  EXPECT_FALSE(made.at("text").get<std::string>().empty());
  const json of_file = generated(by_file);
  EXPECT_EQ(of_file.at("prompt_tokens"), made.at("prompt_tokens"));
  EXPECT_EQ(of_file.at("text"), made.at("text"));
  EXPECT_THAT(run(by_prompt).output, HasSubstr(made.at("text").get<std::string>()));
}

TEST_F(Generate, RefusesWhatMakesNoSense) {
  const std::string model = "--model=" + reference, ids = "--prompt-ids=5,6";
  expect_refused({model}, "no prompt is given: give one of --prompt TEXT, --prompt-file FILE and --prompt-ids IDS");
  expect_refused({model, ids, "--prompt=a"}, "several prompts are given");
  expect_refused({model, "--prompt=a"}, "has no tokenizer.json; name one with --tokenizer, or give the prompt as --prompt-ids");
  expect_refused({model, "--prompt=a", "--tokenizer=/nowhere"}, "--tokenizer /nowhere: there is no file /nowhere");
  expect_refused({model, "--prompt-ids=5,x"}, "--prompt-ids has 'x'");
  expect_refused({model, "--prompt-ids=5,,6"}, "--prompt-ids has ''");
  expect_refused({model, "--prompt-ids=5,101", "--max-tokens=3"},
                 "the prompt has the token 101, the model's vocabulary those from 0 to 100");
  expect_refused({model, ids, "--max-tokens=127"}, "together more than the model's 128 positions; use --max-tokens 126 or less");
  expect_refused({model, ids, "--max-tokens=0"}, "--max-tokens is '0'; it must be");
  expect_refused({model, ids, "--temperature=-1"}, "--temperature is '-1'; it must be");
  expect_refused({model, ids, "--top-p=1.5"}, "--top-p is '1.5'; it must be");
  expect_refused({model, ids, "--top-p=0", "--max-tokens=3"}, "top-p is 0.000; it must be above 0");
  expect_refused({model, ids, "--steps=5"}, "--steps has no meaning for consist generate");
  expect_refused({model, ids, "--ranks=2"}, "--ranks has no meaning for consist generate");
  expect_refused({"--model=llama-tiny", "--prompt=a"},
                 "--model llama-tiny is a preset, whose weights are random until they are trained");
  expect_refused({"--checkpoint=" + folder_.path().string(), "--prompt=a"}, "there is no checkpoint in that folder");
}

TEST_F(Generate, RunsInBfloat16) {
  const json made =
      generated({"--model=" + reference, "--prompt-ids=5,6", "--max-tokens=8", "--temperature=0", "--precision=bf16"});
  EXPECT_LE(made.at("tokens").size(), 8U);
}

}  // namespace
}  // namespace consist
