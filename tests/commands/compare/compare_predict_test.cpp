// consist compare --predict, and predicted steps beside measured ones: the figures are those of consist predict, and what cannot
// be told apart is not ranked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "launch/compare/effects.h"
#include "launch/compare/table.h"
#include "tests/child_process.h"
#include "tests/commands/compare/compare_outcomes.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

using consist::test::ChildResult;
using consist::test::run_child;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

ChildResult consist_says(Words words) {
  words.insert(words.begin(), CONSIST_BINARY_DIR "/bin/consist");
  return run_child(words);
}

/// The cell of the first line that begins with these texts, counted from behind them.
std::string cell(const std::string& output, const std::string& texts, int column) {
  const std::regex line("\n[* =]+" + texts + " +([^\n]*)");
  std::smatch found;
  if (!std::regex_search(output, found, line)) return "no such line";
  const std::string rest = found[1];
  const std::regex gap("  +");
  std::sregex_token_iterator at(rest.begin(), rest.end(), gap, -1), end;
  for (int n = 0; n < column && at != end; ++n) ++at;
  return at == end ? "no such column" : at->str();
}

double step_of_predict(Words words) {
  words.insert(words.begin(), "predict");
  words.push_back("--json");
  const ChildResult result = consist_says(words);
  const auto json =
      nlohmann::json::parse(result.output.substr(std::min(result.output.find('{'), result.output.size())), nullptr, false);
  return json.is_discarded() ? 0 : json["step_seconds"]["value"].get<double>();
}

TEST(ComparePredict, TheTableSaysWhatPredictSaysAndNothingIsRun) {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  // So little memory that the larger batches do not fit, and no larger ones: what would fit is looked for, too.
  const Words plan{"--model", "qwen3-0.6b", "--ranks", "8", "--sequence", "4096"};
  Words words{"compare", "--predict"};
  words.insert(words.end(), plan.begin(), plan.end());
  words.insert(words.end(),
               {"--machine", "h100+capacity=30e9", "--strategy", "zero2,ddp", "--precision", "fp32,bf16", "--batch", "1,4"});
  const ChildResult result = consist_says(words);
  std::filesystem::current_path(before);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "runs, archives or logs";
  EXPECT_THAT(result.output, HasSubstr("Simulated for h100, not measured."));
  for (const char* strategy : {"zero2", "ddp"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      Words row = plan;
      row.insert(row.end(),
                 {"--machine", "h100,capacity=30e9", "--strategy", strategy, "--precision", precision, "--batch", "1"});
      const double seconds = step_of_predict(row);
      ASSERT_GT(seconds, 0);
      const std::string step = cell(result.output, "qwen3-0.6b +" + std::string(strategy) + " +" + precision + " +1", 1);
      EXPECT_NEAR(std::atof(step.c_str()), seconds * 1e3, 0.051) << result.output;
    }
  }
  EXPECT_THAT(result.output, ContainsRegex("ddp +bf16 +4 +does not fit: a rank needs 30.1 GiB, h100 has 27.9 GiB: 19.4 GiB "
                                           "activation, [0-9.]+ GiB optimizer_state"));
  EXPECT_THAT(result.output, ContainsRegex("precision bf16 over fp32: [0-9.]+x the speed, memory 0\\.[0-9]+x, [^\n]*; 2 pairs"));
  EXPECT_THAT(result.output, Not(HasSubstr("measured once")));
}

TEST(ComparePredict, TransportsDifferAndWhatCannotBeIsARowWithItsReason) {
  const Words words{"compare",     "--predict",
                    "--model",     "qwen3-0.6b",
                    "--precision", "bf16",
                    "--sequence",  "1024",
                    "--batch",     "1",
                    "--ranks",     "4",
                    "--strategy",  "zero3-offload",
                    "--machine",   "h200,h200+ranks-per-node=1",
                    "--transport", "nvlink,efa,socket"};
  const ChildResult result = consist_says(words);
  EXPECT_EQ(result.status, 0) << result.output;
  const auto step = [&](const std::string& row) { return std::atof(cell(result.output, "qwen3-0.6b +" + row, 1).c_str()); };
  EXPECT_GT(step("h200 +nvlink"), 0) << result.output;
  EXPECT_GT(step("h200 +socket"), 5 * step("h200 +nvlink"));
  EXPECT_GT(step("h200\\+ranks-per-node=1 +efa"), step("h200 +nvlink"));
  EXPECT_GT(step("h200\\+ranks-per-node=1 +socket"), 5 * step("h200\\+ranks-per-node=1 +efa"));
  EXPECT_THAT(result.output,
              ContainsRegex("ranks-per-node=1 +nvlink +refused: transport 'nvlink' cannot connect the groups of axis 'data'"));
  EXPECT_THAT(result.output, ContainsRegex("h200 +efa +refused: transport 'efa' cannot connect"));
  EXPECT_THAT(result.output, ContainsRegex("transport socket over nvlink: 0\\.[0-9]+x the speed"));
  EXPECT_THAT(result.output, Not(HasSubstr("is not known")));
}

TEST(ComparePredict, SaysOnceWhichTransportTheMachineDoesNotKnow) {
  const ChildResult result = consist_says({"compare", "--predict", "--model", "llama-tiny", "--ranks", "2", "--machine", "cpu",
                                           "--batch", "1,2", "--transport", "socket,efa"});
  const std::string sentence = "How fast 'efa' is within a node of cpu is not known";
  const std::size_t at = result.output.find(sentence);
  ASSERT_NE(at, std::string::npos) << result.output;
  EXPECT_EQ(result.output.find(sentence, at + 1), std::string::npos);
}

TEST(ComparePredict, MachinesAreRowsAndWhatDoesNotFitAnywhereIsAFailure) {
  const Words base{"compare",     "--predict", "--model",    "llama-3-8b", "--ranks",    "8",
                   "--precision", "bf16",      "--sequence", "4096",       "--strategy", "zero3-offload"};
  Words both = base;
  both.insert(both.end(), {"--batch", "1", "--machine", "h200,a100", "--transport", "nvlink"});
  const ChildResult result = consist_says(both);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("machine a100 over h200: 0\\.[0-9]+x the speed"));
  EXPECT_THAT(cell(result.output, "llama-3-8b +h200", 2), ContainsRegex("^±[0-9]+%$")) << result.output;
  EXPECT_EQ(cell(result.output, "llama-3-8b +a100", 2), "?") << result.output;
  EXPECT_THAT(result.output, HasSubstr("Simulated for h200, a100, not measured."));
  EXPECT_THAT(result.output, HasSubstr("?: for a100 no step on one device was measured, no step over nvlink within a node"));
  EXPECT_THAT(result.output,
              HasSubstr("Predicted for Consist's own programs and kernels on a machine with the figures of h200, a100"));
  Words large = base;
  large.insert(large.end(), {"--batch", "64", "--machine", "a100"});
  const ChildResult none = consist_says(large);
  EXPECT_EQ(none.status, 1) << none.output;
  EXPECT_THAT(none.output, HasSubstr("does not fit: a rank needs "));
}

TEST(ComparePredict, ARowThatDoesNotFitSaysWhatWould) {
  const ChildResult result =
      consist_says({"compare", "--predict", "--model", "llama-3-8b", "--ranks", "8", "--precision", "bf16", "--sequence", "8192",
                    "--strategy", "zero3-offload", "--global-batch", "64", "--machine", "h100"});
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("does not fit: a rank needs [^\n]*\n +'--[^']*' fits: [0-9.]+ GiB, a step "));
}

TEST(ComparePredict, NamesTheMachineItTookAndNoFileThatItDidNotWrite) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "runs/compare");
  std::ofstream(folder.path() / "runs/compare/comparison.h5") << "of another comparison";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const ChildResult result = consist_says({"compare", "--predict", "--model", "llama-tiny", "--batch", "1,2"});
  std::filesystem::current_path(before);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("Simulated for h200, not measured."));
  EXPECT_THAT(result.output, Not(HasSubstr("comparison.h5")));
}

TEST(ComparePredict, RowsOfOtherTokensAStepAreNamedAboveTheTable) {
  const auto table = [](const Words& more) {
    Words words{"compare", "--predict", "--model", "llama-tiny", "--sequence", "64", "--ranks", "1,2"};
    words.insert(words.end(), more.begin(), more.end());
    return consist_says(words).output;
  };
  EXPECT_THAT(table({"--batch", "4"}), HasSubstr("Steps of these rows train on different numbers of tokens: 256 tokens "
                                                 "(llama-tiny_ranks1); 512 tokens (llama-tiny_ranks2).\n"));
  EXPECT_THAT(table({"--global-batch", "8"}), Not(HasSubstr("different numbers of tokens")));
}

TEST(ComparePredict, HasEnergyWhereTheMachinesPowerIsMoreThanItsLimit) {
  const auto table = [](const std::string& machine) {
    return consist_says(
               {"compare", "--predict", "--model", "llama-tiny", "--ranks", "2", "--strategy", "ddp,zero2", "--machine", machine})
        .output;
  };
  EXPECT_THAT(
      table("h200+power=500+idle-power=100"),
      ::testing::AllOf(HasSubstr("  J/BTOK"),
                       HasSubstr("J/BTOK: joules of all devices for a billion tokens, by the powers of the machine's file.")));
  EXPECT_THAT(table("a100"), Not(HasSubstr("J/BTOK")));
}

TEST(ComparePredict, HasNoUseForWhatRunsNeed) {
  for (const Words& more : {Words{"--repeats", "3"}, Words{"--overwrite"}, Words{"--output", "x"}, Words{"--add", "x.h5"}}) {
    Words words{"compare", "--predict", "--model", "llama-tiny"};
    words.insert(words.end(), more.begin(), more.end());
    const ChildResult result = consist_says(words);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr("--predict runs nothing and writes nothing, so that " + more.front()));
  }
}

TEST(ComparePredict, StandsBesideWhatWasMeasured) {
  const TemporaryFolder folder;
  const auto compare = [&](const std::string& output, const Words& more) {
    Words words{"compare", "--model",     "llama-tiny", "--dataset", "synthetic", "--sequence", "32",
                "--steps", "6",           "--batch",    "1",         "--device",  "cpu",        "--output",
                output,    "--precision", "fp32,bf16",  "--repeats", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return consist_says(words);
  };
  const ChildResult given = compare(folder / "given", {"--machine", "cpu"});
  ASSERT_EQ(given.status, 0) << given.output;
  const double step =
      step_of_predict({"--model", "llama-tiny", "--sequence", "32", "--batch", "1", "--machine", "cpu,ranks-per-node=1"});
  const std::string predicted = cell(given.output, "llama-tiny +fp32", 3), measured = cell(given.output, "llama-tiny +fp32", 2);
  EXPECT_NEAR(std::atof(predicted.c_str()), step * 1e3, 0.051) << given.output;
  const double off = std::atof(predicted.substr(predicted.find(' ')).c_str());
  const double ratio = step * 1e3 / std::atof(measured.c_str());  // of rounded figures
  EXPECT_NEAR(off, 100 * (ratio - 1), 1 + 10 * ratio) << given.output;
  // The processor's own machine ships, but how far it is off is not known.
  const ChildResult unasked = compare(folder / "unasked", {});
  EXPECT_THAT(unasked.output, Not(HasSubstr("PREDICTED")));
}

/// A row that was simulated.
CompareOutcome predicted(std::size_t row, double rate, double step) {
  CompareOutcome outcome = test::not_finished(row, "finished");
  outcome.prediction =
      Prediction{.machine = "h200", .time = {.seconds = step, .error = {.value = 0.05}}, .model_flops_utilization = 0.4};
  outcome.prediction->time.bubble = step / 8;
  outcome.prediction->time.communication = {{"data", step / 8}};
  outcome.runs.push_back({.status = "finished",
                          .tokens_per_second = rate,
                          .step_seconds = step,
                          .planned_bytes = 3.0 * (1 << 30),
                          .planned_host_bytes = 1 << 30,
                          .bytes_sent_per_step = 0});
  outcome.speed.mean = rate;
  return outcome;
}

TEST(ComparePredict, PredictionsWithinTwoPercentAreNotRanked) {
  const std::vector<CompareRow> rows = test::rows_of({"--model", "m", "--batch", "1,2"});
  const std::vector<CompareOutcome> close{predicted(0, 1000, 1), predicted(1, 1019, 1)};
  EXPECT_THAT(comparison_text(rows, close), Not(ContainsRegex("\n\\*")));
  EXPECT_THAT(effects_text(rows, close), HasSubstr("cannot be told apart here (predictions within 2%"));
  const std::vector<CompareOutcome> far{predicted(0, 1000, 1), predicted(1, 1021, 1)};
  EXPECT_THAT(comparison_text(rows, far), ContainsRegex("\n\\* +m +2 "));
  EXPECT_THAT(effects_text(rows, far), HasSubstr("batch 2 over 1: 1.02x the speed; 1 pair\n"));
}

TEST(ComparePredict, AddsUpWhatComputeWaitsFor) {
  const std::vector<CompareRow> rows = test::rows_of({"--model", "m", "--batch", "1"});
  const std::string text = "\n" + comparison_text(rows, {predicted(0, 1000, 2)});
  EXPECT_EQ(cell(text, "m", 1), "2000.0") << text;
  EXPECT_EQ(cell(text, "m", 2), "±5%");
  EXPECT_EQ(cell(text, "m", 3), "40.0%");
  EXPECT_EQ(cell(text, "m", 4), "3.0 GiB +1.0 GiB host");
  EXPECT_EQ(cell(text, "m", 6), "25%");
}

}  // namespace
}  // namespace consist::launch
