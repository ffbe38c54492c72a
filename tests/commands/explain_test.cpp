// consist explain: what its table says of a rank, all columns say of that rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "tests/child_process.h"

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

}  // namespace
}  // namespace consist
