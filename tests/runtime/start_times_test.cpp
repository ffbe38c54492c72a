// Duration of a run's start: in the archive, and on the terminal if it was long.
#include "core/record/start_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "core/archive/reader.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StartTimes, EachPartBeginsWhereTheOneBeforeItEnded) {
  StartTimes start(3.25);
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  start.finished("weights");
  start.finished("bound");
  ASSERT_EQ(start.parts().size(), 3U);
  EXPECT_EQ(start.parts()[0], std::pair(std::string("process"), 3.25));
  EXPECT_GE(start.parts()[1].second, 0.12);
  EXPECT_LT(start.parts()[2].second, start.parts()[1].second);

  const auto json = nlohmann::ordered_json::parse(start.json(14.0));
  EXPECT_EQ(json.begin().key(), "seconds");
  EXPECT_EQ(json["seconds"], 14.0);
  EXPECT_EQ(json["process"], 3.25);
  EXPECT_NEAR(json["weights"].get<double>(), start.parts()[1].second, 1e-3);

  EXPECT_THAT(start.text(14.0), HasSubstr("began 14.0 s after"));
  EXPECT_THAT(start.text(14.0), HasSubstr("process 3.2 s, weights 0."));
  EXPECT_THAT(start.text(14.0), Not(HasSubstr("bound"))) << "too short to be told";
  EXPECT_EQ(start.text(9.9), "") << "no long start";
}

TEST(StartTimes, AreInTheArchive) {
  TemporaryFolder folder;
  const ArchiveReader archive =
      test::train_from_scratch(folder / "run.h5", {"--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied", "--sequence=32",
                                                   "--global-batch=2", "--ranks=2", "--steps=1"});
  const auto start = nlohmann::ordered_json::parse(archive.text("/start"));
  const auto result = nlohmann::json::parse(archive.text("/result"));
  EXPECT_NEAR(start["seconds"].get<double>(), result["start_seconds"].get<double>(), 1e-3);
  double sum = 0;
  std::string parts;
  for (const auto& [part, seconds] : start.items()) {
    if (part == "seconds") continue;
    EXPECT_GE(seconds.get<double>(), part == "process" ? -0.02 : 0.0) << part;  // the kernel counts in hundredths
    sum += seconds.get<double>();
    parts += part + " ";
  }
  EXPECT_EQ(parts, "process device program dataset connecting kernels bound memory weights archive advice ")
      << "docs/archive.md lists these";
  EXPECT_NEAR(sum, start["seconds"].get<double>(), 0.25) << "the parts are all of it";
}

}  // namespace
}  // namespace consist
