// Plugins built against the headers of an installed Consist name those that they include, and are refused for these alone.
#include "core/plugin/header_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "consist/error.h"
#include "consist/optimizer.h"
#include "consist/strategy.h"
#include "core/plugin/host.h"
#include "core/plugin/manifest.h"
#include "tests/child_process.h"
#include "tests/plugin/test_plugins.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* own_sdk = CONSIST_BINARY_DIR "/core/sdk";

/// An SDK and the plugins built against it.
class HeaderMarks : public ::testing::Test {
 protected:
  /// The headers of a Consist in which one declares more.
  std::string sdk_with_other(const std::string& changed) {
    const std::string source = folder_ / ("source-" + changed), sdk = folder_ / ("sdk-" + changed);
    fs::create_directories(source);
    std::string headers;
    for (const fs::directory_entry& header : fs::directory_iterator(CONSIST_SOURCE_DIR "/core/include/consist")) {
      const std::string name = header.path().filename().string(), copy = source + "/" + name;
      fs::copy_file(header.path(), copy);
      if (name == changed) write_whole(copy, read_whole(copy) + "\nnamespace consist { class Added; }\n");
      headers += (headers.empty() ? "" : ";") + copy;
    }
    const test::ChildResult made = test::run_child(
        {CMAKE_COMMAND, "-DHEADERS=" + headers, "-DOUTPUT=" + source + "/fingerprint.h", "-DLIST=" + source + "/list",
         "-DSDK=" + sdk + "/consist", "-P", CONSIST_SOURCE_DIR "/core/cmake/MakeFingerprint.cmake"});
    EXPECT_EQ(made.status, 0) << made.output;
    return sdk;
  }

  /// Builds a plugin of plugins/ by hand.
  std::string build(const std::string& plugin, const std::string& sdk) {
    const std::string file = folder_ / (plugin + fs::path(sdk).filename().string() + ".so");
    const test::ChildResult built = test::run_child({CXX_COMPILER, "-std=c++20", "-O0", "-fPIC", "-shared", "-I" + sdk, "-o",
                                                     file, CONSIST_SOURCE_DIR "/tests/plugin/plugins/" + plugin + ".cpp"});
    EXPECT_EQ(built.status, 0) << built.output;
    return file;
  }

  static std::vector<std::string> names_in(const std::string& file) {
    std::vector<std::string> names;
    for (const HeaderMark& mark : read_manifest(file).headers) names.push_back(mark.name);
    return names;
  }
  static std::string problem_of(const std::string& file) { return incompatibility(read_manifest(file)); }

  TemporaryFolder folder_;
};

TEST_F(HeaderMarks, APluginNamesWhatItIncludesAlsoOnceItIsStripped) {
  const std::string file = build("doubled", own_sdk);
  const std::vector<std::string> names = names_in(file);
  EXPECT_THAT(names, AllOf(Contains("strategy.h"), Contains("plugin.h"), Contains("edit.h"), Contains("options.h"),
                           Not(Contains("optimizer.h")), Not(Contains("fingerprint.h"))));
  EXPECT_EQ(problem_of(file), "");
  const test::ChildResult stripped = test::run_child({"strip", file});
  EXPECT_EQ(stripped.status, 0) << stripped.output;
  EXPECT_EQ(names_in(file), names);
  const test::ChildResult listed = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "plugins", "doubled", "--plugin", file});
  EXPECT_THAT(listed.output, AllOf(HasSubstr("built for: " CONSIST_FINGERPRINT ", of which it includes "),
                                   HasSubstr(" strategy.h"), HasSubstr("available: yes")));
}

TEST_F(HeaderMarks, AChangeOfAHeaderThatOnlyStrategiesIncludeLeavesOptimizersLoading) {
  const std::string sdk = sdk_with_other("strategy.h"), optimizer = build("counting", sdk), strategy = build("doubled", sdk);
  ASSERT_STRNE(read_manifest(optimizer).fingerprint, CONSIST_FINGERPRINT) << "the two SDKs are one";
  PluginHost host({optimizer, strategy});
  EXPECT_NE(host.make<Optimizer>("optimizer", "counting", {}), nullptr);
  EXPECT_THAT(message_of<UsageError>([&] { host.make<ParallelStrategy>("strategy", "doubled", {}); }),
              AllOf(HasSubstr(read_manifest(strategy).fingerprint), HasSubstr(CONSIST_FINGERPRINT),
                    ::testing::ContainsRegex("1 of the [0-9]+ headers that it includes differ: strategy.h; rebuild it")));
  const test::ChildResult listed = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "plugins", "counting", "doubled", "--json",
                                                    "--plugin", optimizer, "--plugin", strategy});
  EXPECT_THAT(listed.output,
              AllOf(HasSubstr(R"("changed": [])"), ::testing::ContainsRegex(R"("changed": \[[[:space:]]*"strategy.h")")));
}

TEST_F(HeaderMarks, AChangeOfAHeaderThatBothIncludeRefusesBoth) {
  const std::string sdk = sdk_with_other("program.h");
  for (const char* plugin : {"counting", "doubled"}) {
    EXPECT_THAT(problem_of(build(plugin, sdk)), HasSubstr("headers that it includes differ: program.h; rebuild it")) << plugin;
  }
}

TEST_F(HeaderMarks, ADamagedListOrOneOfAnotherCompilerIsRefused) {
  const std::string file = build("counting", own_sdk), whole = read_whole(file);
  const std::size_t mark = whole.find("optimizer.h ");
  ASSERT_NE(mark, std::string::npos);
  std::string damaged = whole;
  damaged[mark + 5] = '\033';
  write_whole(file, damaged);
  EXPECT_THAT(message_of<DataError>([&] { read_manifest(file); }), AllOf(HasSubstr(file), HasSubstr(".consist_headers holds")));
  damaged = whole;
  damaged[mark] = 'O';
  write_whole(file, damaged);
  EXPECT_THAT(problem_of(file), HasSubstr("differ: Optimizer.h;"));
  write_whole(file, whole);
  PluginManifest plugin = read_manifest(file);
  const std::string other = "headers-0123456789abcdef/gxx-abi-1/cxx11-1";
  std::copy(other.c_str(), other.c_str() + other.size() + 1, plugin.fingerprint);
  EXPECT_THAT(incompatibility(plugin), AllOf(HasSubstr("it was built against " + other), Not(HasSubstr("differ"))));
}

// Where the record's own header has no mark, others prove nothing: all headers must be this build's.
TEST(HeaderMarksOfARecord, AListWithoutTheRecordsHeaderDoesNotCount) {
  PluginManifest plugin = read_manifest(test::plugin_file("fingerprint"));
  EXPECT_TRUE(plugin.headers.empty());
  const std::vector<HeaderMark> all = read_manifest(test::plugin_file("sample")).headers;
  EXPECT_TRUE(all.empty()) << "headers of the source tree have no marks";
  plugin.headers = {{"strategy.h", std::string(64, '0')}};
  EXPECT_THAT(incompatibility(plugin), AllOf(HasSubstr("headers-00000000deadbeef/"), Not(HasSubstr("differ"))));
}

TEST(HeaderMarksOfARecord, AMessageNamesFiveHeadersAtMost) {
  PluginManifest plugin = read_manifest(test::plugin_file("sample"));
  for (const char* name : {"a.h", "b.h", "c.h", "d.h", "e.h", "f.h", "plugin.h"})
    plugin.headers.push_back({name, std::string(64, '0')});
  EXPECT_THAT(incompatibility(plugin),
              HasSubstr("7 of the 7 headers that it includes differ: a.h, b.h, c.h, d.h, e.h and 2 more;"));
}

}  // namespace
}  // namespace consist
