// consist show: plots, what is said of a run at different moments, and the command on archives of all kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "consist/error.h"
#include "core/config/price.h"
#include "launch/compare/outcome.h"
#include "launch/compare/runs.h"
#include "launch/view/show/screen.h"
#include "launch/view/show/view_json.h"
#include "tests/child_process.h"
#include "tests/commands/run_archives.h"
#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

using test::text_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(Plot, DrawsALineBetweenTheEndsOfItsAxes) {
  const std::vector<double> x{1, 2, 3, 4, 5}, y{0, 1, 2, 3, 4};
  EXPECT_THAT(plot("loss", x, y, 24, 7, Dots::ascii), ElementsAre("loss",                      //
                                                                  "   4|                ***",  //
                                                                  "    |            ****",     //
                                                                  "   2|       *****",         //
                                                                  "    |   ****",              //
                                                                  "   0|***",                  //
                                                                  "     step 1            5"));
}

TEST(Plot, HasEightDotsACharacterInUtf8) {
  const std::vector<double> x{1, 2}, y{1, 0};
  const std::vector<std::string> lines = plot("loss", x, y, 24, 4, Dots::braille);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(width_of(lines[1]), 5 + 10);                                   // the upper half of the falling line
  EXPECT_THAT(lines[1], AllOf(HasSubstr("\u2502"), HasSubstr("\u2809")));  // which begins in the upper row of dots
}

TEST(Plot, LeavesAGapWhereValuesAreNotFiniteAndSaysHowMany) {
  const std::vector<double> x{1, 2, 3, 4, 5}, y{1, 1, nan, 2, 2};
  const std::string text = text_of(plot("loss", x, y, 24, 6, Dots::ascii));
  EXPECT_THAT(text, AllOf(HasSubstr("loss; not finite: 1"), HasSubstr("   2|              *****\n"), HasSubstr("   1|******\n")));
}

TEST(Plot, OfNothingAndOfOneValueIsStillAPlot) {
  EXPECT_THAT(plot("loss", {}, {}, 40, 5, Dots::ascii), ElementsAre("loss: no steps yet", "", "", "", ""));
  const std::vector<double> x{7}, y{3.5}, bad{nan};
  EXPECT_THAT(text_of(plot("loss", x, y, 40, 5, Dots::ascii)), AllOf(HasSubstr("3.5|*"), HasSubstr("step 7")));
  EXPECT_THAT(plot("loss", x, bad, 40, 5, Dots::ascii).front(), "loss: no value is finite");
}

TEST(Plot, KeepsItsSizeWhateverItShows) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int columns = 24 + static_cast<int>(random() % 200), rows = 4 + static_cast<int>(random() % 50);
    std::vector<double> x, y;
    const double scale = std::pow(10.0, static_cast<double>(random() % 30) - 15);
    for (std::size_t i = 0; i < random() % 3000; ++i) {
      x.push_back(static_cast<double>(i + 1));
      y.push_back(random() % 20 == 0 ? nan : scale * (static_cast<double>(random()) / 2e9 - 1));
    }
    const std::vector<std::string> lines = plot("loss", x, y, columns, rows, round % 2 == 0 ? Dots::ascii : Dots::braille);
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(rows));
    for (const std::string& line : lines) {
      EXPECT_LE(width_of(line), columns) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }
}

class Show : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "run.h5"; }
  static ScreenSettings settings(int columns, int rows) { return {.size = {columns, rows}, .dots = Dots::ascii, .now = 0}; }
  TemporaryFolder folder_;
};

TEST_F(Show, ARunThatGoesOnHasItsPaceAndTheTimeLeft) {
  const auto archive = test::write_run(path(), {});
  const RunView run = read_run(path());
  EXPECT_EQ(run.done(), 60);
  EXPECT_EQ(run.steps(), 100);
  EXPECT_DOUBLE_EQ(speed_of(run).tokens_per_second, 2000);
  // 40 steps of 0.5 s and 0.1 s for their data; evaluations after steps 80 and 100 of 2 s.
  EXPECT_NEAR(seconds_left(run).value(), 40 * 0.6 + 2 * 2.0, 1e-9);
  const std::string text = text_of(screen_of(run, settings(80, 24)));
  EXPECT_THAT(text,
              AllOf(HasSubstr("run.h5: running\n"), HasSubstr("model     llama-tiny, 1.50 M parameters"),
                    HasSubstr("ddp on 2 ranks, data=2 over NVLink, by its counters"), HasSubstr("bf16, adamw, cosine 0.001"),
                    HasSubstr("NVIDIA H200"), HasSubstr("step 60/100, 60%, 28.0 s left"), HasSubstr("2.00 k tokens/s")));
  EXPECT_THAT(text, AllOf(HasSubstr("planned 3.0 GiB (rank 1)"), HasSubstr("3.0167 after step 60, 3.0250 after step 40"),
                          HasSubstr("checkpoint: 1.0 MiB, step 50"), HasSubstr("stated when the run ends"),
                          HasSubstr("waits for data 15%"), Not(HasSubstr("costs"))));
}

TEST_F(Show, ARunThatHasEndedHasItsBoundAndMeasuredMemory) {
  const auto archive = test::write_run(path(), {.done = 100});
  test::finish_run(*archive);
  const RunView run = read_run(path());
  EXPECT_FALSE(seconds_left(run).has_value());
  const std::string text = text_of(screen_of(run, settings(80, 24)));
  EXPECT_THAT(
      text, AllOf(HasSubstr("run.h5: finished\n"), HasSubstr("71% of the rate of its largest linear, MFU 45.2%"),
                  HasSubstr("measured 3.0 GiB (rank 1)"), HasSubstr("took 1:15"), HasSubstr("2.0000 at step 100, first 4.0000")));
}

TEST_F(Show, ARunThatFailedSaysWhy) {
  const auto archive = test::write_run(path(), {});
  archive->finish("failed", "rank 1 on host b died\nin step 61");
  EXPECT_EQ(screen_of(read_run(path()), settings(120, 30)).front().substr(path().size()),
            ": failed: rank 1 on host b died in step 61");
}

TEST_F(Show, ARunThatIsSilentForLongIsSaidToBe) {
  const auto archive = test::write_run(path(), {});
  RunView run = read_run(path());
  run.written = 1000;
  EXPECT_EQ(state_text(run, 1005), "running");
  EXPECT_EQ(state_text(run, 1100), "running, but has written nothing for 1:40");
}

TEST_F(Show, FitsEveryTerminal) {
  const auto archive = test::write_run(path(), {.done = 100, .power = std::vector<double>(100, 500.0), .price = "2"});
  test::finish_run(*archive);
  const RunView run = read_run(path());
  for (const auto& [columns, rows] : {std::pair{80, 24}, {100, 30}, {132, 43}, {250, 70}}) {
    const std::vector<std::string> lines = screen_of(run, settings(columns, rows));
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(rows - 1)) << "the prompt needs a line";
    for (const std::string& line : lines) EXPECT_LT(width_of(line), columns) << line;
    EXPECT_EQ(text_of(lines).find("tokens/s\n") != std::string::npos, columns > 120) << "a second curve where there is room";
  }
}

TEST_F(Show, CostsAreOfThePriceAndOfThePowerThatWasMeasured) {
  std::vector<double> power(60, 500.0);
  power[0] = 100;   // of the warm-up
  power[40] = nan;  // the sensor did not tell
  const auto archive = test::write_run(path(), {.power = power, .price = "h200=3.6"});
  const RunView run = read_run(path());
  const Costs costs = costs_of(run);
  EXPECT_DOUBLE_EQ(costs.per_hour.value(), 2 * 3.6);
  EXPECT_NEAR(costs.per_billion_tokens.value(), 2 * 3.6 / 3600 * 1e9 / 2000, 1e-6);
  EXPECT_DOUBLE_EQ(costs.watts.value(), 500);
  EXPECT_NEAR(costs.joules_per_billion_tokens.value(), 500.0 * 2 * 1e9 / 2000, 1e-3);
  EXPECT_NEAR(costs_of(run, "1").per_hour.value(), 2, 1e-12) << "what is given goes before the archive's";
  EXPECT_THAT(text_of(screen_of(run, settings(120, 30))),
              HasSubstr("1000 per billion tokens, 7.2 an hour, 500 MJ per billion tokens (500 W a device)"));
}

TEST_F(Show, AComparisonTakesCostsFromTheSameFigures) {
  const auto archive = test::write_run(path(), {.done = 100, .power = std::vector<double>(100, 400.0), .price = "h200=3.6"});
  test::finish_run(*archive);
  const Costs costs = costs_of(read_run(path()));
  EXPECT_DOUBLE_EQ(read_outcome(path()).cost, costs.per_billion_tokens.value());
  EXPECT_DOUBLE_EQ(read_outcome(path()).joules, costs.joules_per_billion_tokens.value());
  EXPECT_DOUBLE_EQ(read_outcome(path(), "7.2").cost, 2 * costs.per_billion_tokens.value());
  EXPECT_TRUE(std::isnan(read_outcome(path(), "l40s=1").cost));
}

TEST_F(Show, AnotherPriceMakesNoOtherRun) {
  PluginHost host({});
  const auto archive = test::write_run(path(), {.done = 100, .price = "1"});
  test::finish_run(*archive);
  nlohmann::json config = read_run(path()).config;
  config["price"] = "h200=2";
  EXPECT_TRUE(is_done(path(), config.dump(), host));
  EXPECT_EQ(other_run(path(), config.dump(), host), "");
  config["steps"] = 101;
  EXPECT_FALSE(is_done(path(), config.dump(), host));
}

TEST_F(Show, WithoutSensorsEnergyIsSaidToBeUnknown) {
  const auto archive = test::write_run(path(), {.price = "3"});
  EXPECT_FALSE(costs_of(read_run(path())).watts.has_value());
  EXPECT_THAT(text_of(screen_of(read_run(path()), settings(120, 30))), HasSubstr("6 an hour, energy was not measured"));
}

TEST_F(Show, APriceOfAMachineIsNotThatOfTheNearestOne) {
  const auto archive = test::write_run(
      path(), {.price = "l40s=1", .device = "NVIDIA RTX 6000", .machine = "l40s", .origin = "the nearest to the device's"});
  EXPECT_FALSE(costs_of(read_run(path())).per_hour.has_value());
  EXPECT_THAT(text_of(screen_of(read_run(path()), settings(120, 30))), HasSubstr("no price is given for this device"));
}

TEST(PriceOption, IsOneForAllOrOneForEachMachine) {
  EXPECT_EQ(Price("2.5").of("h200", ""), 2.5);
  EXPECT_EQ(Price("h200=2.5,A100=1.2").of("a100", ""), 1.2);
  EXPECT_EQ(Price("h200=2.5,a100=1.2").of("", "NVIDIA A100-SXM4-80GB"), 1.2);
  EXPECT_EQ(Price("h200=2.5").of("l40s", "NVIDIA L40S"), std::nullopt);
  EXPECT_EQ(Price("").of("h200", "NVIDIA H200"), std::nullopt);
  for (const char* bad : {"x", "-1", "2,3", "h200=", "=3", "h200=1,h200=2", "h200=nan", "h200=1,", "1e400", "2.5 EUR"}) {
    try {
      Price{bad};
      ADD_FAILURE() << bad << " was taken";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(std::string("--price is '") + bad + "'"), HasSubstr("h200=2.5,a100=1.2")));
    }
  }
}

TEST(PriceOption, ARunSaysWhatItHasCost) {
  const auto result = test::train_tiny({"--steps", "2", "--price", "1"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, ::testing::ContainsRegex("cost 0\\.[0-9]+: 2 devices for [0-9.]+ s at 1\\.00 an hour"));
  EXPECT_THAT(test::train_tiny({"--steps", "2", "--price", "h200=1"}).output, HasSubstr("no cost: --price h200=1 has none for"));
}

TEST_F(Show, TextsFromOutsideDoNotReachTheTerminalAsTheyAre) {
  const auto archive = test::write_run(path(), {});
  archive->event(1.7e9, "advice", "a\033[2Jb\nc");
  archive->text("/config", R"({"model": "\u001b[2J evil", "steps": 3})");
  const std::string text = text_of(screen_of(read_run(path()), settings(120, 30)));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\033")), HasSubstr("a\\u001b[2Jb c"), HasSubstr("\\u001b[2J evil")));
}

TEST_F(Show, ParametersOfFrozenModelsAreNamedApart) {
  const auto archive = test::write_run(path(), {.done = 10});
  RunView run = read_run(path());
  EXPECT_THAT(text_of(screen_of(run, settings(120, 30))),
              AllOf(HasSubstr("1.50 M parameters, dataset"), Not(HasSubstr("frozen"))));
  EXPECT_TRUE(json_of(run, "").at("model").at("frozen_model_parameters").is_null()) << "an archive of before does not say";
  run.program["frozen_model_parameters"] = 2'500'000;
  EXPECT_THAT(text_of(screen_of(run, settings(120, 30))), HasSubstr("1.50 M parameters, 2.50 M in frozen models, dataset"));
  EXPECT_EQ(json_of(run, "").at("model").at("frozen_model_parameters"), 2'500'000);
}

TEST_F(Show, LossesAreInTheirUnit) {
  const auto archive = test::write_run(path(), {.done = 100, .loss_unit = "nat/pair"});
  const RunView run = read_run(path());
  EXPECT_THAT(text_of(screen_of(run, settings(80, 30))), HasSubstr("loss (nat/pair)"));
  EXPECT_THAT(text_of(screen_of(run, settings(160, 30))), HasSubstr("loss (nat/pair)"));
  EXPECT_EQ(json_of(run, "").at("loss_unit"), "nat/pair");
}

test::ChildResult consist(std::vector<std::string> words) {
  words.insert(words.begin(), {"env", "COLUMNS=100", "LINES=30", CONSIST_BINARY_DIR "/bin/consist"});
  return test::run_child(words);
}

TEST_F(Show, TheCommandShowsTheScreenAndJson) {
  const auto archive = test::write_run(path(), {.done = 100});
  test::finish_run(*archive);
  const auto shown = consist({"show", path()});
  EXPECT_EQ(shown.status, 0) << shown.output;
  EXPECT_EQ(std::count(shown.output.begin(), shown.output.end(), '\n'), 29);
  EXPECT_THAT(shown.output, AllOf(HasSubstr("run.h5: finished"), HasSubstr("loss (nat/token)")));
  const auto json = nlohmann::json::parse(consist({"show", "--json", "--price=1", path()}).output);
  EXPECT_EQ(json["status"], "finished");
  EXPECT_EQ(json["step"], 100);
  EXPECT_EQ(json["tokens_per_second"]["median"], 2000);
  EXPECT_EQ(json["share_of_bound"], 0.71);
  EXPECT_EQ(json["cost_per_hour"], 2);
  EXPECT_TRUE(json["joules_per_billion_tokens"].is_null()) << "it was not measured";
  EXPECT_EQ(json["evaluations"].size(), 5);
  const auto two = nlohmann::json::parse(consist({"show", path(), path(), "--json"}).output);
  EXPECT_EQ(two.size(), 2);
}

TEST_F(Show, TheCommandRefusesWhatIsNoRun) {
  write_whole(folder_ / "text.h5", "not HDF5");
  for (const auto& [words, status, says] :
       {std::tuple{std::vector<std::string>{"show"}, 2, "no archive is named"},
        {{"show", "--jsno", "run.h5"}, 2, "has no option '--jsno'; see consist show --help. Did you mean 'json'?"},
        {{"show", "run.h5", "--price"}, 2, "--price needs a value"},
        {{"show", "run.h5", "--price", "cheap"}, 2, "--price is 'cheap'"},
        {{"show", folder_ / "none.h5"}, 1, "cannot read the archive"},
        {{"show", folder_ / "text.h5"}, 1, "is cut off or no archive"}}) {
    const auto result = consist(words);
    EXPECT_EQ(result.status, status) << result.output;
    EXPECT_THAT(result.output, HasSubstr(says));
  }
}

}  // namespace
}  // namespace consist::launch
