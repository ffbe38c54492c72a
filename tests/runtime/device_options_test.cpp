// Values that a device settles by measuring hold for the whole run, and for those that go on from it.
#include "core/connect/device_options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint_reader.h"
#include "core/plan/parts.h"
#include "tests/lone_job.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using nlohmann::json;

class DeviceOptions : public ::testing::Test {
 protected:
  std::string train(int steps, const std::vector<std::string>& more) {
    std::vector<std::string> options{"--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied",
                                     "--sequence=16",
                                     "--global-batch=2",
                                     "--cpu.threads=1",
                                     "--steps=" + std::to_string(steps),
                                     "--checkpoint=" + (folder_ / "checkpoint")};
    options.insert(options.end(), more.begin(), more.end());
    test::add_fallbacks(options, {"--precision=bf16", "--cpu.bf16=auto"});  // which says nothing, as no option does
    const ArchiveReader archive = test::train_from_scratch(folder_ / "run.h5", options);
    device_ = json::parse(archive.text("/environment")).at("device");
    return archive.text("/config");
  }
  /// The way of multiplying bf16 that the newest checkpoint keeps is replaced by the other one, which a measurement here would
  /// not choose.
  std::string turn_choice_of_checkpoint(int step) {
    const Checkpoint saved(checkpoint_path(folder_ / "checkpoint", step));
    CheckpointState state = saved.state();
    json config = json::parse(state.config);
    std::string& way = config.at("chosen_options").at("cpu").at("bf16").get_ref<std::string&>();
    way = way == "native" ? "emulated" : "native";
    state.config = config.dump();
    write_whole(saved.path() + "/state.json", to_text(state));
    return way;
  }

  TemporaryFolder folder_;
  std::string device_;
};

TEST_F(DeviceOptions, OfAResumedRunAreThoseItBeganWith) {
  if (json::parse(train(1, {"--ranks=2"})).at("chosen_options").empty()) {
    EXPECT_NE(device_.find("bf16 emulated"), std::string::npos);
    GTEST_SKIP() << "this processor has no bf16 instructions: nothing is left to choose";
  }
  const std::string way = turn_choice_of_checkpoint(1);
  EXPECT_EQ(json::parse(train(2, {"--resume", "--ranks=2"})).at("chosen_options").at("cpu").at("bf16"), way);
  EXPECT_NE(device_.find("bf16 " + way), std::string::npos) << device_;
  // Each run here says `auto`, which leaves it open.
  EXPECT_EQ(json::parse(train(3, {"--resume"})).at("chosen_options").at("cpu").at("bf16"), way);
  // An option of the command line goes before what the run had settled.
  const std::string other = way == "native" ? "emulated" : "native";
  const json told = json::parse(train(4, {"--resume", "--cpu.bf16=" + other}));
  EXPECT_TRUE(told.at("chosen_options").empty()) << told;
  EXPECT_NE(device_.find("bf16 " + other), std::string::npos) << device_;
  // So the run that goes on from there does, without being told again: of both ways one is not what would be measured.
  for (const int step : {5, 7}) {
    const std::string now = step == 5 ? other : way;
    if (step == 7) train(6, {"--resume", "--cpu.bf16=" + now});
    EXPECT_EQ(json::parse(train(step, {"--resume"})).at("chosen_options").at("cpu").at("bf16"), now);
    EXPECT_NE(device_.find("bf16 " + now), std::string::npos) << device_;
  }
}

/// Rank 1 of a job in which rank 0 has said what it settled.
class ToldJob final : public test::LoneJob {
 public:
  explicit ToldJob(std::string told) : told_(std::move(told)) {}
  int rank() const noexcept override { return 1; }
  int size() const noexcept override { return 2; }
  std::string broadcast(std::string_view, std::string_view, std::chrono::milliseconds, std::span<const int>) override {
    return told_;
  }

 private:
  std::string told_;
};

TEST(DeviceOptionsOfRanks, AreThoseThatRankZeroSettled) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  RunConfig config;
  config.model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-tied";
  config.device = "cpu";
  config.precision = "bf16";
  config.sequence = 16;
  config.batch = 1;
  config.ranks = 2;
  const Parts parts = make_parts(config, host);
  ToldJob job(R"({"cpu": {"bf16": "emulated"}})");
  const OpenDevice opened = open_device(parts, config, host, job);
  ASSERT_EQ(opened.options.count("cpu"), 1U);
  EXPECT_EQ(opened.options.at("cpu"), (std::map<std::string, std::string>{{"bf16", "emulated"}}));
  EXPECT_NE(opened.device->info().name.find("bf16 emulated"), std::string::npos) << opened.device->info().name;
}

TEST_F(DeviceOptions, AreNotMeasuredForARunThatDoesNotNeedThem) {
  EXPECT_TRUE(json::parse(train(1, {"--precision=fp32"})).at("chosen_options").empty());
  EXPECT_TRUE(json::parse(train(2, {"--cpu.bf16=emulated", "--resume"})).at("chosen_options").empty());
}

}  // namespace
}  // namespace consist
