// The test program in its three parts: the tests, the launcher ("as-launcher RANKS GRACE_MS[/RESTARTS] WORDS...") and the ranks
// ("as-rank WORDS...").
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "launch/start/launcher.h"
#include "tests/launcher/rank_program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "as-rank") return consist::testing::run_rank({words.begin() + 1, words.end()});
  if (!words.empty() && words[0] == "as-launcher") {
    try {
      std::vector<std::string> arguments{"as-rank"};
      arguments.insert(arguments.end(), words.begin() + 3, words.end());
      const std::chrono::milliseconds grace(std::stoi(words[2]));
      const std::size_t slash = words[2].find('/');
      const int restarts = slash == std::string::npos ? 0 : std::stoi(words[2].substr(slash + 1));
      return consist::launch::launch_local(
          std::stoi(words[1]), arguments,
          {.all_output = false, .grace_after_failure = grace, .grace_after_signal = grace, .max_restarts = restarts});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 99;
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
