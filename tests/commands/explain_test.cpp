// consist explain: what its table says of a rank, all columns say of that rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

/// PARAMETERS of the table of stages, by RANK.
std::map<int, double> parameters_by_rank(const std::string& strategy, const std::string& ranks) {
  const test::ChildResult result = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "explain", "--summary", "--model",
                                                    "qwen3-tiny", "--sequence", "32", "--strategy", strategy, "--ranks", ranks});
  EXPECT_EQ(result.status, 0) << result.output;
  std::istringstream lines(
      result.output.substr(std::min(result.output.find("RANK  LAYERS    PARAMETERS"), result.output.size())));
  std::string line;
  std::getline(lines, line);
  std::map<int, double> found;
  while (std::getline(lines, line) && !line.empty()) {
    std::istringstream words(line);
    int rank = -1;
    double value = 0;
    std::string layers, prefix;
    words >> rank >> layers >> value >> prefix;
    found[rank] = value * (prefix == "k" ? 1e3 : prefix == "M" ? 1e6 : 0);
  }
  return found;
}

TEST(Explain, ParametersAreTheRanksAndNotItsStages) {
  const std::map<int, double> stages = parameters_by_rank("pipeline=2", "2");
  const std::map<int, double> ranks = parameters_by_rank("tp-sp=2+pipeline=2", "4");
  ASSERT_EQ(stages.size(), 2U);
  ASSERT_EQ(ranks.size(), 2U);  // one of each stage
  auto stage = stages.begin();
  for (const auto& [rank, parameters] : ranks) {
    // Half of each matrix; norms are whole on both.
    EXPECT_GE(parameters, 0.495 * stage->second) << "rank " << rank;
    EXPECT_LE(parameters, 0.52 * stage->second) << "rank " << rank;
    ++stage;
  }
}

test::ChildResult explain_zero3(std::vector<std::string> options) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                 "explain",
                                 "--model",
                                 "llama-3-8b",
                                 "--precision",
                                 "bf16",
                                 "--sequence",
                                 "4096",
                                 "--strategy",
                                 "zero3-offload",
                                 "--ranks",
                                 "4"};
  words.insert(words.end(), options.begin(), options.end());
  return test::run_child(words);
}

/// Instructions between the gather of the LM head and its use.
std::ptrdiff_t lead_of_head(const std::string& program) {
  const std::size_t gather = program.find("= all_gather", program.rfind("\n", program.rfind(": lm_head.weight bf16")));
  const std::size_t use = program.find("lm_head_loss_grad(", gather);
  EXPECT_NE(use, std::string::npos);
  if (use == std::string::npos) return 0;
  return std::count(program.begin() + static_cast<std::ptrdiff_t>(gather), program.begin() + static_cast<std::ptrdiff_t>(use),
                    '\n');
}

TEST(Explain, TheMachineReachesThePasses) {
  const test::ChildResult inside = explain_zero3({"--machine", "h200"});
  const test::ChildResult across = explain_zero3({"--machine", "h200,network=12.5e9,ranks-per-node=1"});
  ASSERT_EQ(inside.status, 0) << inside.output;
  ASSERT_EQ(across.status, 0) << across.output;
  EXPECT_GT(lead_of_head(across.output), lead_of_head(inside.output) + 5) << "what travels for longer begins earlier";
  EXPECT_EQ(explain_zero3({}).output, inside.output) << "an H200 is the reference";
}

TEST(Explain, WritesASimulatedStepAsATrace) {
  const TemporaryFolder folder;
  const std::string path = folder / "step.json";
  const test::ChildResult result = explain_zero3({"--summary", "--machine", "h100", "--trace", path});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_NE(result.output.find("a step: "), std::string::npos);
  const nlohmann::json trace = nlohmann::json::parse(read_whole(path));
  EXPECT_GT(trace["traceEvents"].size(), 1000U);
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "rank 0 on h100, simulated");
}

}  // namespace
}  // namespace consist
