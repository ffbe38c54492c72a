// consist advise, and the notes and refusals of consist train: what they promise is what consist predict says, and what they say
// fits runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

test::ChildResult consist_says(const std::string& words) {
  Words all{CONSIST_BINARY_DIR "/bin/consist"};
  std::istringstream stream(words);
  all.insert(all.end(), std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>());
  return test::run_child(all);
}

Json json_of(const std::string& words) {
  const test::ChildResult result = consist_says(words + " --json");
  EXPECT_EQ(result.status, 0) << result.output;
  return Json::parse(result.output.substr(std::min(result.output.find('{'), result.output.size())));
}

TEST(Advise, PromisesWhatPredictSays) {
  const std::string base =
      "--model qwen3-0.6b --strategy zero3-offload --ranks 4 --sequence 1024 --machine h200 --recompute full";
  const Json said = json_of("advise " + base + " --batch 1 --accumulation 4 --precision bf16");
  ASSERT_GE(said["advice"].size(), 3U) << said.dump(2);
  Json all = said["advice"];
  ASSERT_TRUE(said["together"].is_object()) << said.dump(2);
  all.push_back(said["together"]);
  for (const Json& one : all) {
    const std::string options = one["options"];
    // A user would do this: the options in place of those that there are.
    std::string words = base;
    if (options.find("--strategy") != std::string::npos) words.replace(words.find("--strategy zero3-offload "), 25, "");
    if (options.find("--recompute") != std::string::npos) words.replace(words.find(" --recompute full"), 17, "");
    words += options.find("--batch") == std::string::npos ? " --batch 1 --accumulation 4" : "";
    words += options.find("--precision") == std::string::npos ? " --precision bf16" : "";
    const Json predicted = json_of("predict " + words + " " + options);
    const double speed = predicted["tokens_per_second"].get<double>() / said["tokens_per_second"].get<double>();
    EXPECT_NEAR(one["speed"].get<double>(), speed, 1e-6 * speed) << options;
    EXPECT_EQ(one["device_bytes"], predicted["memory"][0]["device_bytes"]) << options;
    EXPECT_TRUE(predicted["fits"].get<bool>()) << options;
  }
}

TEST(Advise, IsForPeople) {
  const auto result =
      consist_says("advise --model qwen3-0.6b --strategy zero2 --ranks 4 --batch 4 --sequence 4096 --machine h200");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("predicted for h200, not measured"));
  EXPECT_THAT(result.output,
              ::testing::ContainsRegex(
                  "  --precision bf16: 1[0-9]\\.[0-9]+ times as fast, [0-9.]+ GiB less; changes the numerics: bf16 "));
  EXPECT_THAT(result.output, Not(HasSubstr("--strategy ddp"))) << "it is no faster";
  const auto unknown = consist_says("advise --model qwen3-0.6b --machine a100");
  EXPECT_THAT(unknown.output, HasSubstr("Error not known: no step on one device was measured"));
}

TEST(Advise, WhatDoesNotFitIsToldWithWhatWould) {
  const auto result =
      consist_says("advise --model llama-3-8b --precision bf16 --sequence 8192 --ranks 8 --batch 4 --machine h200");
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("DOES NOT FIT: a rank needs 246 GiB, h200 has 139 GiB."));
  EXPECT_THAT(result.output, HasSubstr("' fits: "));
  const auto wrong = consist_says("advise --model llama-tiny --machine abacus");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("abacus"));
}

const std::string tiny = "train --model llama-tiny --dataset synthetic --sequence 128 --device cpu --steps 3 ";

TEST(TrainAdvice, IsSaidBeforeTheFirstStepAndKept) {
  const TemporaryFolder folder;
  const auto result = consist_says(tiny + "--batch 4 --machine cpu --archive " + (folder / "run.h5"));
  ASSERT_EQ(result.status, 0) << result.output;
  const std::string note = "--precision bf16: ";
  EXPECT_THAT(result.output, HasSubstr("note: " + note));
  EXPECT_LT(result.output.find("note: " + note), result.output.find("step 1/3")) << result.output;
  const ArchiveReader archive(folder / "run.h5");
  const auto events = archive.events();
  EXPECT_TRUE(std::any_of(events.begin(), events.end(),
                          [&](const ArchiveEvent& e) { return e.kind == "advice" && e.text.starts_with(note); }));
  EXPECT_TRUE(Json::parse(archive.text("/start")).contains("advice"));
}

TEST(TrainAdvice, ARefusedRunHearsWhatFitsAndThatRuns) {
  const auto refused = consist_says(tiny + "--batch 8 --memory-limit 60Mi");
  EXPECT_EQ(refused.status, 2) << refused.output;
  std::smatch remedy;
  ASSERT_TRUE(
      std::regex_search(refused.output, remedy,
                        std::regex("These fit, by their plans and simulated steps:\n'(--[^']*)' fits: [0-9.]+ MiB, a step ")))
      << refused.output;
  const std::string options = remedy[1];
  const std::string batch = options.find("--batch") == std::string::npos ? "--batch 8 " : "";
  const auto run = consist_says(tiny + batch + options + " --memory-limit 60Mi");
  EXPECT_EQ(run.status, 0) << run.output;
  const auto hopeless = consist_says(tiny + "--batch 8 --memory-limit 1Mi");
  EXPECT_EQ(hopeless.status, 2);
  EXPECT_THAT(hopeless.output, HasSubstr("What makes it smaller: "));
  EXPECT_THAT(hopeless.output, Not(HasSubstr("These fit")));
}

}  // namespace
}  // namespace consist
