// A strategy that changes nothing, with an option of every kind; what it does while it is loaded and probed is asked for in the
// environment. The tests build it several times, with other names and faults.
#include "consist/strategy.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "consist/plugin.h"

#ifdef MISSING_SYMBOL
extern "C" void consist_test_function_that_nobody_defines();
#endif

namespace {

std::string asked(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

/// Adds a line to a file.
void trace(const std::string& path) {
  if (path.empty()) return;
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) std::abort();
  std::fputs(PLUGIN_NAME "\n", file);
  std::fclose(file);
}

/// Runs when the file is loaded. CONSIST_TEST_TRACE names a file that each load adds a line to.
struct OnLoad {
  OnLoad() {
    trace(asked("CONSIST_TEST_TRACE"));
    const std::string fault = asked("CONSIST_TEST_FAULT");
    if (fault == "crash") std::abort();
    if (fault == "exit") std::exit(0);
    if (fault == "print") std::puts("a plugin that talks while it is loaded");
    if (fault == "close and hang") ::close(STDOUT_FILENO);
    while (fault == "hang" || fault == "close and hang") ::pause();
  }
} on_load;

std::string unavailable() {
  return asked("CONSIST_TEST_UNAVAILABLE");
}

class Sample final : public consist::ParallelStrategy {
 public:
  explicit Sample(const consist::Options&) {
#ifdef MISSING_SYMBOL
    consist_test_function_that_nobody_defines();
#endif
    trace(asked("CONSIST_TEST_MADE"));
  }
  consist::AxisRequest axis() const override {
    return {.name = "data", .takes_rest = true, .splits_batch = true};
  }
  void partition(consist::Program& /*forward*/, consist::AxisSet /*axes*/) const override {}
};

}  // namespace

// A kind that the loader does not know; the macro would refuse it without this.
namespace consist::detail {
using interface_of_locomotive = ParallelStrategy;
}

// One macro between, for CONSIST_PLUGIN makes a text of the kind as it is written.
#define SAMPLE_PLUGIN(kind) CONSIST_PLUGIN(kind, consist::ParallelStrategy, Sample, PLUGIN_NAME, "1.2.3", "changes nothing")
SAMPLE_PLUGIN(PLUGIN_KIND);
CONSIST_PLUGIN_AVAILABILITY(unavailable);
#ifndef TUNABLE_BYTES
#define TUNABLE_BYTES "10M|25Mi"
#endif
#ifndef NO_OPTION_TABLE
CONSIST_PLUGIN_OPTIONS({"flag", consist::OptionKind::flag, "false", "a flag"},
                       {"integer", consist::OptionKind::integer, "7", "an integer"},
                       {"real", consist::OptionKind::real, "0.5", "a real number"},
                       {"bytes", consist::OptionKind::bytes, "25Mi", "a number of bytes", "", "", TUNABLE_BYTES},
                       {"text", consist::OptionKind::text, "", "a text"},
                       {"choice", consist::OptionKind::choice, "red", "a colour", "red|green"});
#endif
