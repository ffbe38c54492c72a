// Commands that must be refused: one clear message, an exit status that says so, nothing left behind.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist::test {

struct BadInput {
  std::string arguments;  ///< of `consist`, separated by spaces; %G is the folder of the small reference models
  int status;
  std::vector<std::string> says;  ///< parts of the message
};

class BadInputTest : public ::testing::Test {
 protected:
  /// Runs each in folder_, which must not change.
  void expect_refused(const std::vector<BadInput>& inputs) const {
    for (const BadInput& input : inputs) {
      SCOPED_TRACE("consist " + input.arguments);
      const std::map<std::string, std::uintmax_t> before = files();
      std::vector<std::string> words{"env", "-C", folder_.path().string(), CONSIST_BINARY_DIR "/bin/consist"};
      std::istringstream split(input.arguments);
      for (std::string word; split >> word;) {
        if (const std::size_t at = word.find("%G"); at != std::string::npos)
          word.replace(at, 2, CONSIST_SOURCE_DIR "/tests/golden/hf");
        words.push_back(word == "''" ? "" : word);
      }
      const ChildResult result = run_child(words, std::chrono::seconds(60));
      EXPECT_EQ(result.status, input.status) << result.output;
      for (const std::string& part : input.says) EXPECT_THAT(result.output, ::testing::HasSubstr(part));
      EXPECT_EQ(messages(result.output), 1) << "it must be said, and said once:\n" << result.output;
      EXPECT_THAT(result.output, ::testing::Not(::testing::HasSubstr("step 1/"))) << "it began to train";
      EXPECT_THAT(result.output, ::testing::Not(::testing::HasSubstr("\033"))) << "a terminal would obey it";
      EXPECT_EQ(files(), before) << "it left something behind, or changed it";
    }
  }

  TemporaryFolder folder_;

 private:
  static int messages(const std::string& output) {
    int count = 0;
    for (std::size_t at = 0; (at = output.find("consist: ", at)) != std::string::npos; ++at) {
      count += at == 0 || output[at - 1] == '\n' || output.compare(at - std::min<std::size_t>(at, 2), 2, "] ") == 0 ? 1 : 0;
    }
    return count;
  }
  std::map<std::string, std::uintmax_t> files() const {
    std::map<std::string, std::uintmax_t> sizes;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      sizes[entry.path().string()] = entry.is_regular_file() ? entry.file_size() : 0;
    }
    return sizes;
  }
};

}  // namespace consist::test
