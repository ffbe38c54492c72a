// Steps of experts that ranks share for whose rows there is no room: they run again with more, and losses stay those of one rank.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

/// Room for half of the rows: the first step makes more, and runs again.
TEST(ExpertsParity, AStepWithoutRoomRunsAgainWithMore) {
  const test::ChangedModelRuns runs({"qwen3_moe_fp32", "qwen3-moe", nlohmann::json::object(), "fp32"});
  const test::Curves one = runs.train({"--strategy=ddp", "--ranks=1"}),
                     tensor = runs.train({"--strategy=tp-sp=2+zero2", "--ranks=4", "--tp-sp.capacity=0.5"}),
                     sent = runs.train({"--strategy=ep=4", "--ranks=4", "--ep.capacity=0.5", "--ep.dispatch=all-to-all"});
  for (const test::Curves* more : {&tensor, &sent}) {
    ASSERT_EQ(one.loss.size(), more->loss.size());
    for (std::size_t step = 0; step < one.loss.size(); ++step) EXPECT_NEAR(more->loss[step], one.loss[step], 1e-4) << step;
    EXPECT_EQ(more->choices, one.choices);
    EXPECT_NEAR(more->evaluation, one.evaluation, 1e-4);
  }
}

/// A run that goes on begins with the room that it had, and the archive says what the programs with more of it take.
TEST(ExpertsParity, TheRoomThatWasMadeIsKept) {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(),
                {"--model=" + std::string(CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-moe"), "--strategy=ep=2", "--ranks=2",
                 "--sequence=32", "--global-batch=8", "--ep.capacity=0.5", "--checkpoint=" + (folder / name)});
    return test::train_from_scratch(folder / (name + std::to_string(more.size()) + ".h5"), more);
  };
  const auto events = [](const ArchiveReader& archive) {
    std::string kinds;
    for (const ArchiveEvent& event : archive.events()) kinds += event.kind + " ";
    return kinds;
  };
  const ArchiveReader whole = train("whole", {"--steps=4"});
  ASSERT_NE(events(whole).find("more_room"), std::string::npos);
  const auto text = [](const ArchiveReader& archive, const char* path) { return nlohmann::json::parse(archive.text(path)); };
  EXPECT_EQ(text(whole, "/program")["largest"]["planned_bytes"], text(whole, "/result")["planned_bytes"]);
  train("half", {"--steps=2"});
  const ArchiveReader resumed = train("half", {"--steps=4", "--resume"});
  EXPECT_EQ(events(resumed).find("more_room"), std::string::npos) << "it began with too little room again";
  const std::vector<double> expected = whole.column("loss"), found = resumed.column("loss");
  ASSERT_EQ(expected.size(), 4U);
  ASSERT_GE(found.size(), 2U);
  EXPECT_EQ(found.back(), expected[3]);
}

TEST(ExpertsParity, ARunThatCannotHaveMoreRoomEnds) {
  // The limit lets the plan pass with the room that it begins with alone.
  const TemporaryFolder folder;
  const std::vector<std::string> options{"--model=" + std::string(CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-moe"),
                                         "--from-scratch",
                                         "--device=cpu",
                                         "--dataset=synthetic",
                                         "--strategy=ep=2",
                                         "--ranks=2",
                                         "--sequence=32",
                                         "--global-batch=8",
                                         "--steps=3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), options.begin(), options.end());
    return more;
  };
  std::string output;
  try {
    test::train_from_scratch(folder / "run.h5", with({"--ep.capacity=0.5", "--memory-limit=1290Ki"}));
  } catch (const std::runtime_error& failure) {
    output = failure.what();
  }
  EXPECT_NE(output.find("experts had no room for"), std::string::npos) << output;
  EXPECT_NE(output.find("may be used"), std::string::npos) << output;
}

}  // namespace
}  // namespace consist
