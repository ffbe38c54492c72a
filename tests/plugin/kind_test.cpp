// A class of another kind than its macro says does not compile, and the compiler's message says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Compiles a plugin against the public headers alone; returns the compiler's messages.
test::ChildResult compile(const std::string& plugin) {
  const TemporaryFolder folder;
  write_whole(folder / "plugin.cpp", R"(#include "consist/dataset.h"
#include "consist/plugin.h"
#include "consist/precision.h"

class Deaf : public consist::Precision {
 public:
  consist::DTypes dtypes() const override { return {}; }
  std::string describe() const override { return {}; }
  std::string peak() const override { return {}; }
};
class Plain final : public Deaf {
 public:
  explicit Plain(const consist::Options&) {}
};
)" + plugin + "\nCONSIST_PLUGIN_NO_OPTIONS();\n");
  std::vector<std::string> words{CXX_COMPILER, "-std=c++20", "-fsyntax-only"};
  std::istringstream folders(PUBLIC_HEADERS);
  for (std::string include; std::getline(folders, include, ':');) words.push_back("-I" + include);
  words.push_back(folder / "plugin.cpp");
  return test::run_child(words);
}

TEST(PluginMacro, TakesAClassOfItsKind) {
  const test::ChildResult result = compile(R"(CONSIST_PLUGIN(precision, consist::Precision, Plain, "plain", "1", "a test");)");
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(PluginMacro, RefusesAnotherKind) {
  struct Refusal {
    const char* plugin;
    const char* message;
  };
  for (const Refusal& refusal : {Refusal{R"(CONSIST_PLUGIN(strategy, consist::Precision, Plain, "plain", "1", "a test");)",
                                         "CONSIST_PLUGIN: the interface is not that of the kind"},
                                 Refusal{R"(CONSIST_PLUGIN(dataset, consist::Dataset, Plain, "plain", "1", "a test");)",
                                         "CONSIST_PLUGIN: the type does not derive from the interface"},
                                 Refusal{R"(CONSIST_PLUGIN(precision, consist::Precision, Deaf, "deaf", "1", "a test");)",
                                         "CONSIST_PLUGIN: the type has no constructor that takes const consist::Options&"}}) {
    const test::ChildResult result = compile(refusal.plugin);
    EXPECT_NE(result.status, 0) << refusal.plugin;
    EXPECT_THAT(result.output, AllOf(HasSubstr(refusal.message), Not(HasSubstr("No such file"))));
  }
}

}  // namespace
}  // namespace consist
