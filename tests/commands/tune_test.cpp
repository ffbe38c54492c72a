// consist tune: what it recommends is what predict says is the best, and what it runs is its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "core/cost/machine_file.h"
#include "tests/commands/predicted.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using namespace test;

/// The lines behind the heading, with the configuration each.
std::vector<std::pair<double, std::string>> rows_of(const std::string& output) {
  std::vector<std::pair<double, std::string>> rows;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t options = line.find(" --strategy");
    char* end = nullptr;
    const double milliseconds = std::strtod(line.c_str(), &end);
    if (options != std::string::npos && end != line.c_str()) rows.emplace_back(milliseconds, line.substr(options + 1));
  }
  return rows;
}

TEST(Tune, TheTableIsSortedAndSaysWhatPredictSays) {
  const std::string base = "--model llama-3-8b --ranks 4 --sequence 4096 --precision bf16 ";
  const auto result = run("tune", split_words(base + "--global-batch 8 --measure 0 --rows 5 --configurations 20"));
  ASSERT_EQ(result.status, 0) << result.output;
  const auto rows = rows_of(result.output);
  ASSERT_GE(rows.size(), 5U) << result.output;
  for (std::size_t n = 1; n < rows.size(); ++n) EXPECT_LE(rows[n - 1].first, rows[n].first);
  const Json winner = predicted(base + "--global-batch 8 " + rows[0].second);
  EXPECT_NEAR(winner["step_seconds"]["value"].get<double>() * 1e3, rows[0].first, 0.006);
  EXPECT_TRUE(winner["fits"].get<bool>());
  EXPECT_THAT(result.output, HasSubstr("Train with it:\n  consist train " + base + "--global-batch 8 " + rows[0].second));
  // Simple choices of a user are no faster.
  for (const char* usual : {"--strategy zero2 --batch 2", "--strategy zero3-offload --batch 2",
                            "--strategy tp-sp=4 --batch 4 --accumulation 2", "--strategy pipeline=4 --batch 1 --accumulation 8"})
    EXPECT_GE(predicted_seconds(base + usual) * 1e3, rows[0].first - 0.006) << usual;
}

/// The command says over which transports it was planned, where a run could come to others.
TEST(Tune, PredictOfThePrintedCommandSaysWhatTheTableSays) {
  const std::string large = "--model llama-3-8b --sequence 4096 --precision bf16 --global-batch 16 ";
  for (const auto& [words, transports] :
       {std::pair{large + "--ranks 8 --machine h100 ", "--transport nvlink"},
        {large + "--ranks 16 --strategy zero3-offload=8+ddp=2 --machine h100 --transport auto ", "--transport nvlink+data.0=efa"},
        {std::string("--model llama-tiny --sequence 64 --global-batch 4 --ranks 2 --machine cpu "), ""}}) {
    const auto result = run("tune", split_words(words + "--measure 0 --rows 1 --configurations 1 --search-seconds 15"));
    ASSERT_EQ(result.status, 0) << result.output;
    std::smatch command;
    ASSERT_TRUE(std::regex_search(result.output, command, std::regex("\n  consist train ([^\n]*)\n"))) << result.output;
    const std::string options = command[1].str();
    EXPECT_THAT(options, HasSubstr(transports));
    EXPECT_THAT(options, Not(HasSubstr("auto")));
    if (*transports == '\0') EXPECT_THAT(options, Not(HasSubstr("--transport"))) << "there is one, whatever the machine";
    std::smatch first;
    ASSERT_TRUE(std::regex_search(result.output, first, std::regex("\\(ms\\)\n +([0-9.]+) "))) << result.output;
    EXPECT_NEAR(predicted_seconds(options) * 1e3, std::stod(first[1]), 0.051) << options;
  }
}

TEST(Tune, WhatIsGivenIsNotSearched) {
  const auto result = run("tune", split_words("--model qwen3-0.6b --ranks 4 --sequence 1024 --precision bf16 --global-batch 16 "
                                              "--strategy zero2 --zero2.stage 1 --measure 0 --machine h100 --configurations 20"));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("Searched for h100"), Not(HasSubstr("pipeline")), Not(HasSubstr("tp-sp"))));
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("--strategy zero2 --zero2.stage 1 --machine h100 --batch 4"),  // 16 sequences on four ranks
                    Not(HasSubstr("--zero2.stage 2"))));

  const auto whole =
      run("tune", split_words("--model qwen3-0.6b --ranks 2 --sequence 1024 --global-batch 16 --strategy ddp --batch 2 "
                              "--ddp.bucket-size 25Mi --recompute none --measure 0"));
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_THAT(whole.output, AllOf(HasSubstr("1 simulated whole"), HasSubstr("The search has converged")));
  EXPECT_THAT(whole.output, HasSubstr("--ddp.bucket-size 25Mi --recompute none --transport nvlink\n"));
}

/// Milliseconds of the best that a search finds, and the number of configurations that were planned and simulated.
std::pair<double, int> best_and_extent(const std::string& options) {
  const auto result = run("tune", split_words(options + " --measure 0 --rows 1"));
  EXPECT_EQ(result.status, 0) << result.output;
  const std::regex shortened("([0-9]+) simulated with few"), whole("([0-9]+) simulated whole"),
      row("\\n +([0-9.]+) [^\n]* --(strategy|batch)");
  std::smatch few, all, first;  // the first row
  if (!std::regex_search(result.output, all, whole) || !std::regex_search(result.output, first, row)) return {};
  const bool has_few = std::regex_search(result.output, few, shortened);
  return {std::stod(first[1]), std::stoi(all[1]) + (has_few ? std::stoi(few[1]) : 0)};
}

// The search plans a part of the space and shortens long steps; what it recommends is the best of the whole space nevertheless.
/// Layouts without the file's strategy were once refused for the options that the file states of it.
TEST(Tune, AFilesStrategyIsNoLimitOfTheSearch) {
  const TemporaryFolder folder;
  std::ofstream(folder / "fsdp.yaml") << "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
                                         "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n";
  const std::string base = "--from " + folder / "fsdp.yaml" + " --model qwen3-0.6b --global-batch 8 --sequence 1024 ";
  const auto rows_with = [&](const std::string& options) {
    return run("tune", split_words(base + "--machine h200 --measure 0 --rows 60 --configurations 40 " + options));
  };
  const auto all = rows_with("");
  ASSERT_EQ(all.status, 0) << all.output;
  const auto has_it = [](const auto& row) { return row.second.find("zero3-offload") != std::string::npos; };
  const auto rows = rows_of(all.output);
  EXPECT_TRUE(std::ranges::any_of(rows, has_it)) << all.output;
  EXPECT_FALSE(std::ranges::all_of(rows, has_it)) << all.output;
  const auto given = rows_with("--zero3-offload.prefetch-bucket-size 1e8");
  ASSERT_EQ(given.status, 0) << given.output;
  for (const auto& [milliseconds, row] : rows_of(given.output)) EXPECT_THAT(row, HasSubstr("zero3-offload"));
}

TEST(Tune, FindsWhatPlanningEveryCombinationFinds) {
  const std::string tiny = "--model qwen3-tiny --sequence 128 --precision bf16 --bf16.states f32 --recompute none --machine cpu ";
  for (const std::string& space : {
           tiny + "--ranks 2 --global-batch 8 --strategy zero3-offload --zero3-offload.offload-param.device none "
                  "--zero3-offload.offload-optimizer.device none",
           tiny + "--ranks 4 --global-batch 16 --strategy pipeline=2+ddp",
           tiny + "--ranks 4 --global-batch 4 --strategy tp-sp=2+zero2 --zero2.offload-optimizer.device none",
       }) {
    const auto [best, all] = best_and_extent(space + " --exhaustive");
    const auto [found, planned] = best_and_extent(space);
    EXPECT_GT(best, 0) << space;
    EXPECT_NEAR(found, best, 0.01 * best) << space;
    EXPECT_LE(planned, 0.5 * all) << space;
  }
}

TEST(Tune, ListedTransportsAreSearchedAndTheReasonNamesThem) {
  const std::string base = "--model qwen3-0.6b --ranks 4 --sequence 1024 --precision bf16 ";
  const std::string more = "--global-batch 16 --recompute none --machine h200 ";
  const auto result = run("tune", split_words(base + "--transport socket,nvlink --strategy zero3-offload " + more +
                                              "--measure 0 --rows 1 --configurations 20"));
  ASSERT_EQ(result.status, 0) << result.output;
  // Both are in the table, nvlink first, with the step that predict says.
  const std::size_t fast = result.output.find("--transport nvlink"), slow = result.output.find("--transport socket");
  ASSERT_NE(slow, std::string::npos) << result.output;
  EXPECT_LT(fast, slow);
  EXPECT_THAT(result.output, ::testing::ContainsRegex("Beside '--transport socket[^\n]* ms less of exposed communication "
                                                      "\\(data over nvlink within nodes, not data over socket within nodes\\)"));
  const std::size_t train = result.output.find("  consist train ");
  ASSERT_NE(train, std::string::npos);
  const std::string command = result.output.substr(train);
  EXPECT_THAT(command,
              AllOf(HasSubstr(base + "--strategy zero3-offload " + more + "--transport nvlink "), Not(HasSubstr("socket"))));
  const std::regex first("\n +([0-9.]+) [^\n]*(--transport nvlink[^\n]*)");
  std::smatch row;
  ASSERT_TRUE(std::regex_search(result.output, row, first)) << result.output;
  EXPECT_NEAR(predicted_seconds(base + "--strategy zero3-offload " + more + row[2].str()) * 1e3, std::stod(row[1]), 0.006);

  const auto one =
      run("tune", split_words(base + "--strategy ddp --transport nvlink " + more + "--measure 0 --configurations 1"));
  EXPECT_EQ(one.status, 0) << one.output;
  EXPECT_THAT(one.output, HasSubstr("--strategy ddp --transport nvlink " + more)) << "one is fixed";
  for (const auto& [transports, says] :
       {std::pair{"nvlink,pigeons", "pigeons"},
        {"nvlink,socket+tp-sp=efa", "'socket+tp-sp=efa', which names a strategy that no layout"}}) {
    const auto bad = run("tune", split_words(base + "--strategy ddp --measure 0 " + more + "--transport " + transports));
    EXPECT_EQ(bad.status, 2) << bad.output;
    EXPECT_THAT(bad.output, HasSubstr(says));
  }
}

TEST(Tune, OptionsOfThirdPartiesAreSearched) {
  const auto result =
      run("tune", split_words("--plugin " CONSIST_BINARY_DIR "/tests/plugin/sample --model llama-tiny --ranks 2 --sequence "
                              "32 --batch 2 --global-batch 4 --strategy sample --recompute none --measure 0"));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output,
              ::testing::ContainsRegex("2 (configurations estimated|simulated whole)"));  // sample.bytes is 25Mi or 10M
}

TEST(Tune, LooksAtActivationsOnTheHostWhereMemoryIsShort) {
  const std::string words =
      "--model qwen3-0.6b --precision bf16 --sequence 32768 --global-batch 1 --recompute none --measure 0 "
      "--bf16.states f32 --bf16.gradients f32 --configurations 10 --machine h200";
  const auto small = run("tune", split_words(words + ",capacity=20e9")), large = run("tune", split_words(words));
  EXPECT_EQ(small.status, 0) << small.output;
  EXPECT_THAT(small.output, HasSubstr("--offload-activations all"));
  EXPECT_EQ(large.status, 0) << large.output;
  EXPECT_THAT(large.output, Not(HasSubstr("--offload-activations")));
}

TEST(Tune, TheLowestCostNeedsAPriceForTheMachine) {
  const std::string base =
      "--model llama-tiny --ranks 2 --sequence 64 --strategy ddp --batch 2 --global-batch 4 --measure 0 --objective cost ";
  const auto priced = run("tune", split_words(base + "--price h200=3.6"));
  EXPECT_EQ(priced.status, 0) << priced.output;
  EXPECT_THAT(priced.output, HasSubstr("COST/BTOK    J/BTOK CONFIGURATION"));
  for (const auto& [options, says] : {std::pair{"", "no --price of a GPU and hour is given"},
                                      {"--price a100=1", "--price a100=1 has none for the machine h200"}}) {
    const auto refused = run("tune", split_words(base + options));
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(says));
  }
}

TEST(Tune, TheLeastMemoryIsAnObjective) {
  const std::string base = "--model llama-tiny --ranks 2 --sequence 512 --precision bf16 --global-batch 8 ";
  const auto result = run("tune", split_words(base + "--measure 0 --configurations 100 --objective memory"));
  ASSERT_EQ(result.status, 0) << result.output;
  const auto rows = rows_of(result.output);
  ASSERT_GE(rows.size(), 2U);
  const auto bytes_of = [&](const std::string& options) {
    double most = 0;
    const Json json = predicted(base + options);
    for (const Json& memory : json["memory"]) most = std::max(most, memory["device_bytes"].get<double>());
    return most;
  };
  for (std::size_t n = 1; n < rows.size(); ++n) EXPECT_LE(bytes_of(rows[0].second), bytes_of(rows[n].second)) << rows[n].second;
  EXPECT_LT(bytes_of(rows[0].second), 0.5 * bytes_of("--strategy ddp --batch 4"));
}

TEST(Tune, TheLeastEnergyNeedsAMachineWhoseFileHasPower) {
  const std::string base = "--model llama-tiny --ranks 2 --sequence 512 --precision bf16 --global-batch 8 ";
  const auto refused = run("tune", split_words(base + "--objective energy --machine cpu"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("--objective is 'energy', but the file of the machine cpu has no power"));

  // A device that draws much in products and little else: other configurations are the best than for speed.
  const TemporaryFolder folder;
  Json machine = Json::parse(to_json(*find_machine("h200")));
  machine["power"] = {{"idle", {{"value", 100}, {"source", "measured here"}}},
                      {"loads",
                       {{{"work", "*"}, {"value", 200}, {"source", "measured here"}},
                        {{"work", "products"}, {"value", 900}, {"source", "measured here"}}}}};
  std::ofstream(folder / "m.json") << machine.dump();
  const auto result =
      run("tune", split_words(base + "--measure 0 --configurations 100 --objective energy --machine " + (folder / "m.json")));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("J/BTOK CONFIGURATION"),
                                   HasSubstr("J/BTOK: joules of all devices for a billion tokens, by powers measured here.")));
  const auto rows = rows_of(result.output);
  ASSERT_GE(rows.size(), 2U);
  const auto joules_of = [&](const std::string& options) {
    return predicted(base + options + " --machine " + (folder / "m.json"))["joules_per_billion_tokens"].get<double>();
  };
  for (std::size_t n = 1; n < rows.size(); ++n)
    EXPECT_LE(joules_of(rows[0].second), joules_of(rows[n].second) * (1 + 1e-9)) << rows[n].second;

  const auto by_tokens = run("tune", split_words(base + "--measure 0 --configurations 20 --machine a100"));
  EXPECT_THAT(by_tokens.output, Not(HasSubstr("J/BTOK"))) << "the limit says no more than the time";
}

// One unit more does not fit, whatever is chosen.
TEST(Tune, FitsTheLongestSequenceAndTheLargestBatch) {
  const std::string base =
      "--model qwen3-tiny --ranks 2 --machine h200,capacity=400e6 --strategy ddp --ddp.bucket-size 25Mi --measure 0 "
      "--configurations 1 ";
  const auto sequence = run("tune", split_words(base + "--global-batch 2 --fit sequence"));
  ASSERT_EQ(sequence.status, 0) << sequence.output;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(sequence.output, found, std::regex("fits: --sequence ([0-9]+)"))) << sequence.output;
  const int longest = std::stoi(found[1]);
  EXPECT_THAT(sequence.output, HasSubstr(" --sequence " + std::to_string(longest) + " --batch 1"));
  EXPECT_EQ(longest % 1024, 0);
  const auto more = run("tune", split_words(base + "--global-batch 2 --sequence " + std::to_string(longest + 1024)));
  EXPECT_EQ(more.status, 1) << more.output;

  const auto batch = run("tune", split_words(base + "--sequence 2048 --fit batch"));
  ASSERT_EQ(batch.status, 0) << batch.output;
  ASSERT_TRUE(std::regex_search(batch.output, found, std::regex("--global-batch ([0-9]+) --accumulation 1"))) << batch.output;
  const int largest = std::stoi(found[1]);
  const auto larger =
      run("tune", split_words(base + "--sequence 2048 --accumulation 1 --global-batch " + std::to_string(largest + 2)));
  EXPECT_EQ(larger.status, 1) << larger.output;
  EXPECT_THAT(run("tune", split_words(base + "--global-batch 4 --fit batch")).output, HasSubstr("leave one of them out"));
}

TEST(Tune, TheBestAreRun) {
  const auto result =
      run("tune", split_words("--model llama-tiny --ranks 2 --sequence 32 --global-batch 4 --device cpu --machine "
                              "cpu --measure 2 --rows 3 --configurations 50"));
  ASSERT_EQ(result.status, 0) << result.output;
  const std::regex running("running (--strategy[^\n]*), (10|30) steps");
  std::vector<std::string> steps;
  for (std::sregex_iterator at(result.output.begin(), result.output.end(), running), end; at != end; ++at)
    steps.push_back((*at)[2]);
  EXPECT_EQ(steps, (std::vector<std::string>{"10", "10", "30"})) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("failed")));
  EXPECT_THAT(result.output, HasSubstr("Train with it:\n  consist train --model llama-tiny --ranks 2 "));
}

// Files that a run reads or writes besides its steps are of the user's run, not of those that are measured.
TEST(Tune, MeasuredRunsAreOfTheirOwnLengthAndLeaveTheUsersFilesAlone) {
  const TemporaryFolder folder;
  const std::string archive = folder / "run.h5", trace = folder / "trace.json";
  const auto result =
      run("tune",
          split_words("--model llama-tiny --ranks 2 --sequence 32 --global-batch 4 --device cpu --machine cpu "
                      "--strategy ddp --measure 2 --steps 7 --dataset text --text.documents line "
                      "--evaluate-every 2 --checkpoint " +
                      (folder / "ckpt") + " --export " + (folder / "export") + " --archive " + archive + " --trace " + trace));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr(", 10 steps\n"), HasSubstr(", 30 steps\n"), Not(HasSubstr("failed"))));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "a measured run wrote there";
  EXPECT_THAT(result.output, HasSubstr("--steps 7"));  // of the command to train with
}

// Where the device here is of another machine, nothing is run, and the reason is said.
TEST(Tune, NothingIsMeasuredForAMachineThatIsNotHere) {
  const auto result =
      run("tune", split_words("--model llama-tiny --ranks 2 --sequence 32 --global-batch 4 --device cpu --strategy ddp "
                              "--machine h100 --measure 2"));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("Nothing is measured: the device here is"), HasSubstr("not of the machine h100"),
                                   Not(HasSubstr("running --"))));
}

TEST(Tune, TheCommandKeepsTheNumericsAndOthersAreNamedApart) {
  const auto result = run("tune", split_words("--model qwen3-0.6b --ranks 4 --sequence 1024 --precision bf16 --global-batch 16 "
                                              "--strategy zero2 --batch 4 --recompute none --machine h200 --measure 0"));
  ASSERT_EQ(result.status, 0) << result.output;
  const std::size_t train = result.output.find("Train with it:"), other = result.output.find("With other numerics");
  ASSERT_NE(train, std::string::npos);
  ASSERT_NE(other, std::string::npos) << result.output;
  EXPECT_LT(train, other);
  EXPECT_THAT(result.output.substr(0, other), Not(HasSubstr("--bf16."))) << "neither in the table nor in the command";
  EXPECT_THAT(result.output.substr(other), HasSubstr("--bf16."));
}

TEST(Tune, ASearchThatHasConvergedEndsAndSaysSo) {
  const std::string base =
      "--model qwen3-0.6b --ranks 4 --sequence 1024 --precision bf16 --global-batch 16 --machine h200 --measure 0 ";
  const auto whole = run("tune", split_words(base + "--strategy zero2 --search-seconds 300"));
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_THAT(whole.output,
              AllOf(HasSubstr("configurations estimated by"), HasSubstr("Estimates were"), HasSubstr("% off in the mean"),
                    HasSubstr("The search has converged: none that was left out is estimated to be faster.")));
  const auto cut = run("tune", split_words(base + "--configurations 1"));
  ASSERT_EQ(cut.status, 0) << cut.output;
  EXPECT_THAT(cut.output, AllOf(HasSubstr("The search has not converged: "), HasSubstr("it ended by --configurations.")));
}

// 70B parameters on 640 GPUs: 2,010 ms is what somebody found by hand.
TEST(Tune, FindsAtLeastWhatAHandFinds) {
  const auto result =
      run("tune", split_words("--model llama-3.1-70b --ranks 640 --global-batch 320 --sequence 4096 --precision bf16 "
                              "--machine h100 --measure 0 --strategy tp-sp=4+pipeline=4+zero2 --batch 1 --recompute none"));
  ASSERT_EQ(result.status, 0) << result.output;
  const std::regex first("\\n +([0-9.]+) [^\n]*--pipeline.schedule interleaved --pipeline.chunks");
  std::smatch row;
  ASSERT_TRUE(std::regex_search(result.output, row, first)) << result.output;
  EXPECT_LE(std::stod(row[1]), 2011) << result.output;
}

TEST(Tune, AStrategyThatIsGivenHasItsStages) {
  const auto result = run("tune", split_words("--model llama-tiny --ranks 2 --sequence 32 --global-batch 8 --machine cpu "
                                              "--strategy pipeline=2 --measure 0 --rows 50"));
  ASSERT_EQ(result.status, 0) << result.output;
  // Each stage has something to do: of eight sequences no micro-batch of all eight.
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("--pipeline.schedule zero-bubble"), HasSubstr("--batch 4"), Not(HasSubstr("--batch 8"))));
}

/// The last line of --json.
Json result_of(const std::string& words) {
  const auto result = run("tune", split_words(words + " --json"));
  EXPECT_EQ(result.status, 0) << result.output;
  const std::size_t begin = result.output.rfind("\n{\"event\":\"result\"");
  return begin == std::string::npos ? Json() : Json::parse(result.output.substr(begin + 1, result.output.find('\n', begin + 1) - begin));
}

TEST(Tune, RowsHaveTheIntervalOfPredictAndStepsItsTimes) {
  const std::string base = "--model qwen3-0.6b --ranks 4 --sequence 1024 --precision bf16 --global-batch 16 --machine h200 ",
                    fixed = "--strategy zero2 --recompute none --offload-activations none ";
  const Json found = result_of(base + fixed + "--measure 0 --price h200=3.6");
  const Json& first = found["rows"][0];
  std::string options;
  for (const auto& [option, value] : first["options"].items()) options += "--" + option + " " + value.get<std::string>() + " ";
  const Json own = predicted(base + fixed + "--price h200=3.6 " + options)["step_seconds"];
  EXPECT_NEAR(first["predicted_low_ms"].get<double>(), 1e3 * own["low"].get<double>(), 1e-6);
  EXPECT_NEAR(first["predicted_high_ms"].get<double>(), 1e3 * own["high"].get<double>(), 1e-6);
  EXPECT_LT(first["predicted_low_ms"], first["predicted_ms"]);
  EXPECT_GT(first["cost_per_billion_tokens"], 0);
  EXPECT_TRUE(first["on_frontier"].get<bool>());

  int checked = 0;
  for (const Json& option : found["around"]) {
    for (const Json& step : option["steps"]) {
      if (!step["simulated"].get<bool>()) continue;
      const std::string name = option["option"], value = step["value"];
      const bool stated = first["options"].contains(name);
      std::string changed = options;
      if (stated) changed.replace(changed.find("--" + name), 3 + name.size() + option["value"].get<std::string>().size(), "");
      const double seconds = predicted_seconds(base + fixed + changed + " --" + name + " " + value);
      // Steps are compared by few micro-batches.
      EXPECT_NEAR(seconds / own["value"].get<double>() - 1, step["loss"].get<double>(), 0.01) << name << " " << value;
      ++checked;
    }
  }
  EXPECT_GE(checked, 2) << found["around"];
  ASSERT_EQ(found["other_rates"].size(), 4U);
  for (const Json& other : found["other_rates"]) EXPECT_EQ(other["gain"].get<double>() > 0, other["best"].get<int>() > 0);
}

TEST(Tune, RowsHaveTheirTokensOfADayWithFailures) {
  const std::string base = "--model qwen3-0.6b --ranks 4 --sequence 1024 --precision bf16 --global-batch 16 --machine h200 ",
                    failures = "--mtbf 50 --restart 600 --storage 1G ";
  const Json rows = result_of(base + failures + "--strategy zero2 --measure 0 --configurations 5")["rows"];
  ASSERT_GE(rows.size(), 2U);
  std::string options;
  for (const auto& [option, value] : rows[1]["options"].items()) options += "--" + option + " " + value.get<std::string>() + " ";
  EXPECT_EQ(rows[1]["goodput"], predicted(base + failures + "--strategy zero2 " + options)["goodput"]);
  EXPECT_LT(rows[1]["goodput"]["tokens_per_day"], rows[1]["tokens_per_second"].get<double>() * 86400);
  EXPECT_THAT(run("tune", split_words(base + "--restart 5")).output, HasSubstr("--restart has no effect without --mtbf"));
}

TEST(Tune, RefusesWhatCannotBe) {
  for (const auto& [words, status, says] : std::vector<std::tuple<std::string, int, std::string>>{
           {"--model llama-tiny --ranks 2", 2, "--global-batch is missing"},
           {"--model llama-tiny --ranks 2 --global-batch 4 --measure some", 2, "measure"},
           {"--model llama-3-70b --ranks 1 --global-batch 1 --precision bf16 --measure 0", 1, "None fits"}}) {
    const auto result = run("tune", split_words(words));
    EXPECT_EQ(result.status, status) << result.output;
    EXPECT_THAT(result.output, HasSubstr(says));
  }
}

}  // namespace
}  // namespace consist
