// Help texts: each fits a screen and shows an example; that of train names every option with its default.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/config/option_table.h"
#include "tests/child_process.h"

namespace consist {
namespace {

std::string help_of(const std::string& command) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist"};
  if (!command.empty()) words.push_back(command);
  words.push_back("--help");
  const test::ChildResult result = test::run_child(words);
  EXPECT_EQ(result.status, 0) << result.output;
  return result.output;
}

TEST(Help, IsShownForMinusH) {
  for (const std::string command : {"", "train", "explain", "plugins"}) {
    std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist"};
    if (!command.empty()) words.push_back(command);
    words.push_back("-h");
    const test::ChildResult result = test::run_child(words);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_EQ(result.output, help_of(command));
  }
}

class HelpOf : public ::testing::TestWithParam<std::string> {};

TEST_P(HelpOf, FitsAScreenAndShowsAnExample) {
  const std::string text = help_of(GetParam());
  EXPECT_NE(text.find("usage: consist"), std::string::npos);
  EXPECT_NE(text.find("example"), std::string::npos);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

INSTANTIATE_TEST_SUITE_P(Commands, HelpOf,
                         ::testing::Values("", "train", "compare", "doctor", "evaluate", "explain", "generate", "report",
                                           "plugins", "launch", "tokenize", "bench", "calibrate", "predict", "reproduce", "tune",
                                           "show", "watch", "completion", "man"),
                         [](const auto& info) { return info.param.empty() ? std::string("consist") : info.param; });

TEST(TrainHelp, NamesEveryOptionWithItsDefault) {
  const std::string text = help_of("train");
  for (const RunOption& option : run_option_table()) {
    const std::string name = std::string("--") + option.spec.name, shown = option.spec.fallback;
    const std::size_t at = text.find("  " + name + " ");  // not within the words of another
    ASSERT_NE(at, std::string::npos) << name << " is not in the help";
    EXPECT_NE(text.find(option.spec.help), std::string::npos) << name;
    if (option.is_switch() || shown.empty() || shown == "0") continue;  // what an absent one means is said in words
    EXPECT_EQ(text.compare(text.find('[', at) + 1, shown.size(), shown), 0) << name << " is " << shown << " by default";
  }
}

}  // namespace
}  // namespace consist
