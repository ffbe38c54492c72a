// --trace: when every instruction of the last step ran, on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/archive/reader.h"
#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using Json = nlohmann::json;

test::ChildResult train(std::vector<std::string> more) {
  more.insert(more.end(), {"--steps", "3"});
  return test::train_tiny(more);
}

TEST(Trace, HasTheQueuesOfEveryRankOnOneClock) {
  const TemporaryFolder folder;
  const test::ChildResult run =
      train({"--strategy", "zero2", "--trace", folder / "step.json", "--profile", "--archive", folder / "run.h5"});
  ASSERT_EQ(run.status, 0) << run.output;
  std::ifstream file(folder / "step.json");
  const Json trace = Json::parse(file);
  std::map<std::pair<int, int>, std::vector<Json>> queues;
  std::map<std::pair<int, int>, std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    const std::pair queue{event["pid"].get<int>(), event["tid"].get<int>()};
    if (event["name"] == "thread_name") names[queue] = event["args"]["name"];
    if (event["ph"] == "X") queues[queue].push_back(event);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(::testing::Pair(::testing::Pair(0, 0), "compute"),
                                                     ::testing::Pair(::testing::Pair(1, 0), "compute"),
                                                     ::testing::Pair(::testing::Pair(0, ::testing::Gt(0)), "comm:data"),
                                                     ::testing::Pair(::testing::Pair(1, ::testing::Gt(0)), "comm:data")));
  std::map<std::string, std::vector<Json>> collectives;  // one of each rank
  for (const auto& [queue, events] : queues) {
    double end = 0;
    for (const Json& event : events) {  // one after the other
      EXPECT_GE(event["ts"].get<double>(), end - 1) << event.dump();
      end = event["ts"].get<double>() + event["dur"].get<double>();
      if (names[queue] == "comm:data") collectives[event["args"]["instruction"].dump()].push_back(event);
    }
  }
  const Json profile = Json::parse(ArchiveReader(folder / "run.h5").text("/profile"));
  EXPECT_LE(queues[std::pair(0, 0)].size(), profile["instructions"].size());
  ASSERT_GE(collectives.size(), 3U);
  for (const auto& [instruction, of_ranks] : collectives) {
    ASSERT_EQ(of_ranks.size(), 2U) << "instruction " << instruction;
    // No rank is through before the other has come.
    for (int i : {0, 1})
      EXPECT_LE(of_ranks[i]["ts"].get<double>(), of_ranks[1 - i]["ts"].get<double>() + of_ranks[1 - i]["dur"].get<double>() + 1)
          << of_ranks[0].dump() << "\n"
          << of_ranks[1].dump();
  }
}

TEST(Trace, IsRefusedWithoutAFolderForIt) {
  const TemporaryFolder folder;
  const test::ChildResult run = train({"--trace", folder / "none/step.json"});
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.output, ::testing::HasSubstr("there is no folder " + (folder / "none")));
  EXPECT_THAT(run.output, ::testing::Not(::testing::HasSubstr("step 1")));
}

TEST(Trace, IsRefusedBeforeTheRunWhereItCannotBeWritten) {
  const TemporaryFolder folder;
  // No user may make files in /proc.
  for (const std::string& place : {std::string("/proc/step.json"), folder.path().string()}) {
    const test::ChildResult run = train({"--trace", place, "--archive", folder / "run.h5"});
    EXPECT_NE(run.status, 0);
    EXPECT_THAT(run.output, ::testing::HasSubstr(place));
    EXPECT_THAT(run.output, ::testing::Not(::testing::HasSubstr("step 1/")));
    EXPECT_FALSE(std::filesystem::exists(folder / "run.h5"));
  }
}

}  // namespace
}  // namespace consist
