// Learning-rate schedules: their values at each step, and runs that resume with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/schedule.h"
#include "core/archive/reader.h"
#include "core/plugin/host.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Given = std::map<std::string, std::string>;

PluginHost& host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

std::shared_ptr<Schedule> made(const std::string& name, const Given& options) {
  return host().make<Schedule>("schedule", name, options);
}

void expect_rates(const std::string& name, const Given& options, std::int64_t steps, double peak,
                  const std::vector<double>& rates) {
  const auto schedule = made(name, options);
  for (std::size_t done = 0; done < rates.size(); ++done) {
    EXPECT_NEAR(schedule->rate(static_cast<std::int64_t>(done), steps, peak), rates[done], 1e-12 * peak)
        << name << " " << json(options) << ", after " << done << " of " << steps << " steps";
  }
}

// tests/golden/make_schedule_references.py names the function of each.
TEST(Schedules, AreThoseOfTransformers) {
  const json runs = json::parse(std::ifstream(CONSIST_SOURCE_DIR "/tests/golden/schedules.json")).at("runs");
  std::set<std::string> seen;
  for (const json& run : runs) {
    seen.insert(run.at("schedule"));
    const std::vector<double> shares = run.at("shares");
    expect_rates(run.at("schedule"), run.at("options"), run.at("steps"), 1, shares);
    std::vector<double> rates = shares;
    for (double& rate : rates) rate *= 2e-3;
    if (run.at("options").at("warmup-from") == "0")
      expect_rates(run.at("schedule"), run.at("options"), run.at("steps"), 2e-3, rates);
  }
  EXPECT_THAT(seen, ::testing::ElementsAre("constant", "cosine", "linear", "wsd"));
  EXPECT_GT(runs.size(), 30U);
}

// Without warmup-from a warm-up begins one step above 0: no step is without effect.
TEST(Schedules, WarmupBeginsAStepAboveZero) {
  expect_rates("constant", {{"warmup", "4"}}, 8, 1, {0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1, 1});
  expect_rates("linear", {{"warmup", "4"}, {"final-rate", "0.2"}}, 8, 1, {0.2, 0.4, 0.6, 0.8, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  expect_rates("cosine", {{"warmup", "4"}, {"final-rate", "0.2"}}, 8, 1,
               {0.2, 0.4, 0.6, 0.8, 1, 0.88284271247461902, 0.6, 0.31715728752538104, 0.2, 0.2});
  expect_rates("linear", {{"final-rate", "0.2"}}, 8, 1, {1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2});
  expect_rates("wsd", {{"warmup", "2"}, {"decay", "0.4"}}, 10, 1,
               {1 / 3.0, 2 / 3.0, 1, 1, 1, 1, 1, 1 - std::sqrt(0.25), 1 - std::sqrt(0.5), 1 - std::sqrt(0.75), 0, 0});
}

TEST(Schedules, WarmupBeginsWhereItIsTold) {
  expect_rates("constant", {{"warmup", "4"}, {"warmup-from", "0.2"}}, 8, 1, {0.2, 0.4, 0.6, 0.8, 1, 1});
  Given log{{"warmup", "4"}, {"warmup-from", "0.2"}, {"warmup-shape", "log"}};
  expect_rates("constant", log, 8, 1, {0.2, 0.6, 0.2 + 0.8 * 0.79248125036057813, 1, 1, 1});
  log.erase("warmup-from");
  expect_rates("constant", log, 8, 1, {0, 0.5, 0.79248125036057813, 1, 1, 1});
  log["warmup"] = "1";
  expect_rates("constant", log, 8, 1, {0, 1, 1});
}

TEST(Schedules, DecayNeverReachesIntoTheWarmup) {
  expect_rates("wsd", {{"warmup", "4"}, {"decay", "1"}, {"decay-shape", "linear"}}, 8, 1,
               {0.2, 0.4, 0.6, 0.8, 1, 0.75, 0.5, 0.25, 0});
  expect_rates("wsd", {{"decay", "0"}}, 4, 1, {1, 1, 1, 1});
}

// From runs of DeepSpeed 0.19.6's classes, step by step.
TEST(Schedules, CountAsDeepspeedDoes) {
  Given log{{"warmup", "4"}, {"warmup-shape", "log"}, {"warmup-from", "1e-4"}, {"counting", "deepspeed"}};
  const double third = 0.00081323312532452041;
  expect_rates("constant", log, 10, 1e-3, {1e-4, 1e-4, 5.5e-4, third, 1e-3, 1e-3, 1e-3});
  log["final-rate"] = "0.1";
  expect_rates("linear", log, 10, 1e-3, {1e-4, 1e-4, 5.5e-4, third, 1e-3, 1e-3, 8.5e-4, 7e-4, 5.5e-4, 4e-4, 2.5e-4, 1e-4});
  Given line{{"warmup", "4"}, {"warmup-from", "0"}, {"counting", "deepspeed"}, {"final-rate", "0.1"}};
  expect_rates(
      "cosine", line, 10, 1e-3,
      {0, 0, 2.5e-4, 5e-4, 7.5e-4, 0.00093971143170299744, 7.75e-4, 5.5e-4, 3.25e-4, 0.00016028856829700258, 1e-4, 1e-4});
  line["warmup-shape"] = "log";
  expect_rates("cosine", line, 10, 1e-3, {0, 0, 5e-4, 0.00079248125036057813, 1e-3, 0.00093971143170299744, 7.75e-4});
}

TEST(Schedules, ValuesOutOfRangeAreRefusedWithTheRange) {
  const auto refusal = [](const std::string& name, const Given& options) -> std::string {
    try {
      made(name, options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(refusal("cosine", {{"warmup", "-1"}}), HasSubstr("--cosine.warmup is '-1'; it must be at least 0"));
  EXPECT_THAT(refusal("linear", {{"final-rate", "1.5"}}), HasSubstr("--linear.final-rate is '1.5'; it must be from 0 to 1"));
  EXPECT_THAT(refusal("wsd", {{"decay", "-0.1"}}), HasSubstr("--wsd.decay is '-0.1'; it must be from 0 to 1"));
  EXPECT_THAT(refusal("wsd", {{"decay-shape", "cubic"}}), HasSubstr("one of linear, cosine, 1-sqrt"));
  EXPECT_THAT(refusal("constant", {{"warmup-from", ""}}), HasSubstr("a finite number"));
  EXPECT_THAT(refusal("linear", {{"counting", "mine"}}), HasSubstr("own, deepspeed"));
}

class ResumedSchedule : public ::testing::Test {
 protected:
  struct Run {
    int status = 0;
    std::string output;
    std::vector<double> rates;         ///< of the steps of this run
    std::vector<ArchiveEvent> events;
  };
  Run train(std::vector<std::string> more) {
    const std::string archive = folder_ / ("run" + std::to_string(++runs_) + ".h5");
    more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", "train", "--model", "llama-tiny", "--device", "cpu",
                               "--cpu.threads", "1", "--dataset", "synthetic", "--sequence", "8", "--batch", "1", "--checkpoint",
                               folder_ / "ck", "--archive", archive});
    const test::ChildResult result = test::run_child(more);
    Run run{result.status, result.output, {}, {}};
    if (result.status == 0) {
      const ArchiveReader reader(archive);
      run.rates = reader.column("learning_rate");
      run.events = reader.events();
    }
    return run;
  }
  const TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(ResumedSchedule, GoesOnWhereItStood) {
  const std::vector<std::string> cosine{"--schedule", "cosine", "--cosine.warmup", "2", "--learning-rate", "1e-3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), cosine.begin(), cosine.end());
    return train(more);
  };
  const Run whole = with({"--steps", "6", "--checkpoint-every", "3", "--checkpoint-keep", "9"});
  ASSERT_EQ(whole.status, 0) << whole.output;
  ASSERT_EQ(whole.rates.size(), 6U);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "ck")) {
    if (entry.path().filename().string().find('6') != std::string::npos) std::filesystem::remove_all(entry.path());
  }
  const Run rest = with({"--steps", "6", "--resume"});
  ASSERT_EQ(rest.status, 0) << rest.output;
  EXPECT_EQ(rest.rates, std::vector<double>(whole.rates.begin() + 3, whole.rates.end()));
  EXPECT_THAT(rest.output, Not(HasSubstr("learning rate of step")));
}

TEST_F(ResumedSchedule, AnotherScheduleSaysSo) {
  const Run first = train({"--steps", "3", "--schedule", "linear", "--linear.final-rate", "0.5", "--learning-rate", "1e-3"});
  ASSERT_EQ(first.status, 0) << first.output;
  const Run second = train({"--steps", "4", "--resume", "--schedule", "constant", "--learning-rate", "1e-3"});
  ASSERT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(second.output, AllOf(HasSubstr("--schedule linear --linear.final-rate 0.5 --learning-rate 0.001 --steps 3"),
                                   HasSubstr("step 4 has the learning rate 0.001"), HasSubstr("instead of 0.0005")));
  EXPECT_EQ(second.rates, std::vector<double>{1e-3});
  // More steps alone change nothing where the rate does not depend on them.
  const Run third = train({"--steps", "5", "--resume", "--schedule", "constant", "--learning-rate", "1e-3"});
  ASSERT_EQ(third.status, 0) << third.output;
  EXPECT_THAT(third.output, Not(HasSubstr("has the learning rate")));
}

/// The rate of the step that follows is the same, that of a later one is not: the decay moves with the end.
TEST_F(ResumedSchedule, AnEndThatMovesSaysSoAndIsRecorded) {
  const std::vector<std::string> wsd{"--schedule", "wsd", "--wsd.decay", "0.5", "--learning-rate", "1e-3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), wsd.begin(), wsd.end());
    return train(more);
  };
  const Run first = with({"--steps", "8", "--checkpoint-every", "2", "--checkpoint-keep", "9"});
  ASSERT_EQ(first.status, 0) << first.output;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "ck")) {
    if (entry.path().filename().string().find('2') == std::string::npos) std::filesystem::remove_all(entry.path());
  }
  const Run second = with({"--steps", "12", "--resume"});
  ASSERT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(second.output, AllOf(HasSubstr("--steps 8, this run with"), HasSubstr("--steps 12: step "),
                                   HasSubstr("and none before it has another one")));
  EXPECT_THAT(second.events, ::testing::Contains(AllOf(::testing::Field(&ArchiveEvent::kind, "schedule"),
                                                       ::testing::Field(&ArchiveEvent::text, HasSubstr("--steps 12: step ")))));
}

}  // namespace
}  // namespace consist
