// Runs a conformance program. A plugin that ends the process in the midst of it is named and fails it; `consist check` is told
// that the end was reached.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/plugin/plugin_faults.h"

int main(int count, char** arguments) {
  consist::report_plugin_faults();
  // Where `consist check` reads how many tests ran, and how many of them were skipped.
  const char* const text = std::getenv("CONSIST_CONFORMANCE_RESULT");
  const int result = text == nullptr ? -1 : std::atoi(text);
  if (result > STDERR_FILENO) fcntl(result, F_SETFD, FD_CLOEXEC);
  unsetenv("CONSIST_CONFORMANCE_RESULT");
  ::testing::InitGoogleTest(&count, arguments);
  const int status = RUN_ALL_TESTS();
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  if (result > STDERR_FILENO) dprintf(result, "%d %d\n", all.test_to_run_count(), all.skipped_test_count());
  consist::command_finished();
  return status;
}
