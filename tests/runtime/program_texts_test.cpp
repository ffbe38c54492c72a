// The programs that an archive holds: those that ran, instruction by instruction, and no more than there is room for.
#include "core/record/program_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/archive/reader.h"
#include "core/plan/plan.h"
#include "core/program/printer.h"
#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Lines of instructions, by the number with which they begin.
std::map<std::size_t, std::string> instructions_of(const std::string& text) {
  std::map<std::size_t, std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line[0] >= '0' && line[0] <= '9') lines.emplace(std::stoul(line), line);
  }
  return lines;
}

TEST(ProgramTexts, OfEachStageAreThoseThatTheTimelineNumbers) {
  const TemporaryFolder folder;
  const test::ChildResult run =
      test::train_tiny({"--strategy", "pipeline=2", "--accumulation", "2", "--steps", "6", "--archive", folder / "run.h5"});
  ASSERT_EQ(run.status, 0) << run.output;
  const ArchiveReader archive(folder / "run.h5");
  const json programs = json::parse(archive.packed_text("/programs")), timeline = json::parse(archive.packed_text("/timeline"));
  ASSERT_EQ(programs.at("classes").size(), 2U);
  for (std::size_t c = 0; c < 2; ++c) {
    SCOPED_TRACE(c);
    const json& of_class = programs.at("classes")[c];
    EXPECT_EQ(of_class.at("rank"), timeline.at("classes")[c].at("rank"));
    EXPECT_EQ(of_class.at("ranks"), 1);
    EXPECT_EQ(of_class.at("left_out"), 0);
    EXPECT_THAT(of_class.at("text").get<std::string>(), StartsWith("program pipeline=2\n"));
    const std::map<std::size_t, std::string> lines = instructions_of(of_class.at("text"));
    const json& timed = timeline.at("classes")[c].at("instructions");
    ASSERT_FALSE(timed.at("op").empty());
    for (std::size_t n = 0; n < timed.at("op").size(); ++n) {
      const auto line = lines.find(timed.at("instruction")[n].get<std::size_t>());
      ASSERT_NE(line, lines.end());
      EXPECT_THAT(line->second, HasSubstr(" " + timed.at("op")[n].get<std::string>() + "("));
    }
  }
  EXPECT_NE(programs.at("classes")[0].at("text"), programs.at("classes")[1].at("text"));
}

TEST(ProgramTexts, LoseTheirLastLinesWhereThereIsNoRoom) {
  PluginHost host({});
  RunConfig config;
  config.model = "llama-tiny";
  config.sequence = 32;
  const Plan plan = plan_run(config, host, {nullptr, nullptr, false});
  const Program program = plan.step(0);
  const std::string whole = to_text(program);
  EXPECT_EQ(program_text(program, whole.size()).text, whole);
  EXPECT_EQ(program_text(program, whole.size()).left_out, 0U);
  for (const std::size_t most : {whole.size() - 1, whole.size() / 2, std::size_t{1}, std::size_t{0}}) {
    SCOPED_TRACE(most);
    const ProgramText cut = program_text(program, most);
    EXPECT_LE(cut.text.size(), most);
    EXPECT_THAT(whole, StartsWith(cut.text));
    EXPECT_TRUE(cut.text.empty() || cut.text.back() == '\n') << "whole lines";
    EXPECT_EQ(cut.left_out, static_cast<std::size_t>(std::count(whole.begin(), whole.end(), '\n') -
                                                     std::count(cut.text.begin(), cut.text.end(), '\n')));
    EXPECT_GT(cut.left_out, 0U);
  }
}

}  // namespace
}  // namespace consist
