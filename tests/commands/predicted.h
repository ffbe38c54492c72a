// consist predict and tune as users run them, and what they print.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/child_process.h"

namespace consist::test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

inline ChildResult run(const std::string& command, const std::vector<std::string>& words) {
  std::vector<std::string> all{CONSIST_BINARY_DIR "/bin/consist", command};
  all.insert(all.end(), words.begin(), words.end());
  return run_child(all);
}

inline std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

/// The prediction for these options, as `consist predict --json` prints it.
inline Json predicted(const std::string& options) {
  std::vector<std::string> words = split_words(options);
  words.push_back("--json");
  const auto result = run("predict", words);
  EXPECT_EQ(result.status, 0) << result.output;
  return Json::parse(result.output.substr(std::min(result.output.find('{'), result.output.size())));
}

/// Predicted seconds of a step.
inline double predicted_seconds(const std::string& options) {
  return predicted(options)["step_seconds"]["value"].get<double>();
}

}  // namespace consist::test
