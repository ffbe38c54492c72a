// Plugin discovery: where plugins are found, which are refused, and what loading them needs.
#include "core/plugin/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "consist/error.h"
#include "consist/strategy.h"
#include "tests/plugin/test_plugins.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using test::Environment;
using test::message_of;
using test::plugin_file;
using test::plugin_folder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const PluginFile& listed(const PluginHost& host, const fs::path& path) {
  const auto& files = host.files();
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const PluginFile& file) { return file.path == fs::canonical(path); });
  if (found == files.end()) throw std::runtime_error(path.string() + " is not listed");
  return *found;
}

TEST(PluginHost, ListingRunsNoPluginCode) {
  TemporaryFolder folder;
  const Environment trace("CONSIST_TEST_TRACE", folder / "trace");
  PluginHost host({plugin_folder("sample")});
  EXPECT_EQ(listed(host, plugin_file("sample")).name, "sample");
  EXPECT_EQ(listed(host, plugin_file("sample")).version, "1.2.3");
  EXPECT_TRUE(host.has("strategy", "sample"));
  EXPECT_FALSE(host.has("precision", "sample"));
  EXPECT_FALSE(fs::exists(folder / "trace"));

  // The trace is no fiction: loading the plugin writes it.
  EXPECT_NE(host.make<ParallelStrategy>("strategy", "sample", {}), nullptr);
  EXPECT_EQ(read_whole(folder / "trace"), "sample\n");
}

TEST(PluginHost, WarnsOfPlacesThatOthersCanWrite) {
  const TemporaryFolder folder;
  fs::copy_file(plugin_file("sample"), folder / "sample.so");
  const auto of_folder = [&] {
    std::vector<std::string> said;
    const PluginHost host({folder.path().string()});
    for (const std::string& text : host.warnings()) {
      if (text.find(folder.path().string()) != std::string::npos) said.push_back(text);
    }
    return said;
  };
  EXPECT_THAT(of_folder(), ::testing::IsEmpty());
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(of_folder(), ::testing::ElementsAre(AllOf(HasSubstr("in which plugins lie"), HasSubstr("written by every user"))));
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(folder / "sample.so", fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(of_folder(), ::testing::ElementsAre(AllOf(HasSubstr("plugin file"), HasSubstr("sample.so may be written"))));
  fs::permissions(folder / "sample.so", fs::perms::others_write, fs::perm_options::remove);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  constexpr uid_t somebody = 12345;
  ASSERT_EQ(::chown(folder.path().c_str(), somebody, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(of_folder(),
              ::testing::ElementsAre(AllOf(HasSubstr("in which plugins lie"), HasSubstr("another user (number 12345)"))));
}

// Whoever can rename the folder can put another in its place. In a folder such as /tmp only its owner can.
TEST(PluginHost, AFolderAboveThatOthersMayChangeIsNamed) {
  TemporaryFolder folder;
  const fs::path above = folder / "shared", plugins = above / "mine/plugins";
  fs::create_directories(plugins);
  fs::copy_file(plugin_file("sample"), plugins / "sample.so");
  const auto warnings = [&](const fs::path& place) {
    std::vector<std::string> said = PluginHost({place.string()}).warnings();
    std::erase_if(said, [&](const std::string& text) { return text.find(folder.path().string()) == std::string::npos; });
    return said;
  };
  for (const fs::path& place : {plugins, plugins / "sample.so"}) {
    EXPECT_THAT(warnings(place), ::testing::IsEmpty());
    fs::permissions(above, fs::perms::all);
    EXPECT_THAT(warnings(place), ::testing::ElementsAre(AllOf(HasSubstr("the folder " + above.string() + ", in which"),
                                                              HasSubstr("written by every user"))));
    fs::permissions(above, fs::perms::all | fs::perms::sticky_bit);
    EXPECT_THAT(warnings(place), ::testing::IsEmpty());
    fs::permissions(above, fs::perms::owner_all);
  }
}

TEST(PluginHost, PluginsStayLoadedAfterTheirHost) {
  std::shared_ptr<ParallelStrategy> strategy;
  {
    PluginHost host({plugin_folder("sample")});
    strategy = host.make<ParallelStrategy>("strategy", "sample", {});
  }
  EXPECT_EQ(strategy->axis().name, "data");
}

TEST(PluginHost, AWrongFingerprintIsListedWithBothValuesAndNeverLoaded) {
  TemporaryFolder folder;
  const Environment trace("CONSIST_TEST_TRACE", folder / "trace");
  PluginHost host({plugin_folder("fingerprint")});
  const auto both_values_and_remedy =
      AllOf(HasSubstr("headers-00000000deadbeef/"), HasSubstr(CONSIST_FINGERPRINT), HasSubstr("rebuild it"));
  EXPECT_THAT(listed(host, plugin_file("fingerprint")).problem, both_values_and_remedy);
  EXPECT_FALSE(host.has("strategy", "fingerprint"));
  EXPECT_THAT(host.names("strategy"), Not(Contains("fingerprint")));
  const auto make = [&] { host.make<ParallelStrategy>("strategy", "fingerprint", {}); };
  EXPECT_THAT(message_of<UsageError>(make), AllOf(both_values_and_remedy, HasSubstr(plugin_file("fingerprint"))));
  EXPECT_FALSE(fs::exists(folder / "trace"));
}

TEST(PluginHost, AFileWithoutARecordIsListedWithItsProblem) {
  const std::string file = plugin_folder("no_manifest") + "/consist_test_no_manifest.so";
  const PluginHost host({plugin_folder("no_manifest")});
  EXPECT_THAT(listed(host, file).problem, HasSubstr("no section .consist_plugin"));
  // Named itself, it was meant to be a plugin.
  EXPECT_THAT(message_of<DataError>([&] { PluginHost({file}); }), HasSubstr("no section .consist_plugin"));
}

TEST(PluginHost, AnUndefinedSymbolIsNamed) {
  PluginHost host({plugin_folder("undefined")});
  EXPECT_TRUE(host.has("strategy", "undefined"));  // its bytes do not tell
  const auto make = [&] { host.make<ParallelStrategy>("strategy", "undefined", {}); };
  EXPECT_THAT(message_of<UnavailableError>(make),
              AllOf(HasSubstr("consist_test_function_that_nobody_defines"), HasSubstr(plugin_file("undefined"))));
}

TEST(PluginHost, AMissingOptionTableIsNamed) {
  PluginHost host({plugin_folder("no_options")});
  EXPECT_THAT(message_of<UnavailableError>([&] { host.option_table("strategy", "no-options"); }),
              HasSubstr("consist_plugin_options"));
}

TEST(PluginHost, ATunableValueThatIsNotLegalIsNamed) {
  PluginHost host({plugin_folder("tunable")});
  EXPECT_THAT(message_of<UnavailableError>([&] { host.option_table("strategy", "tunable"); }),
              AllOf(HasSubstr(plugin_file("tunable")), HasSubstr("a tunable value of --tunable.bytes is 'many'; it must be"),
                    HasSubstr("CONSIST_PLUGIN_OPTIONS")));
}

TEST(PluginHost, TwoPluginsOfOneNameAreAnErrorThatNamesBoth) {
  const auto both = AllOf(HasSubstr(plugin_file("sample")), HasSubstr(plugin_file("namesake")), HasSubstr("'sample'"));
  EXPECT_THAT(message_of<UsageError>([] { PluginHost({plugin_folder("sample"), plugin_folder("namesake")}); }), both);
  const Environment path("CONSIST_PLUGIN_PATH", plugin_folder("namesake"));
  EXPECT_THAT(message_of<UsageError>([] { PluginHost({plugin_folder("sample")}); }), both);
}

TEST(PluginHost, OneFileFoundTwiceIsOnePlugin) {
  TemporaryFolder folder;
  fs::create_symlink(plugin_file("sample"), folder / "another-name.so");
  const Environment path("CONSIST_PLUGIN_PATH", plugin_folder("sample") + ":" + folder.path().string());
  const PluginHost host({plugin_file("sample"), plugin_folder("sample") + "/."});
  const auto& files = host.files();
  EXPECT_EQ(std::count_if(files.begin(), files.end(), [](const PluginFile& file) { return file.name == "sample"; }), 1);
}

TEST(PluginHost, AnUnknownNameListsWhatExistsAndWhereItWasLookedForInOrder) {
  const Environment path("CONSIST_PLUGIN_PATH", plugin_folder("no_manifest") + "::/not/there");
  PluginHost host({plugin_file("sample"), plugin_folder("fingerprint")});
  const std::string message = message_of<UsageError>([&] { host.find("strategy", "samp"); });  // nothing is guessed
  EXPECT_THAT(message,
              ::testing::ContainsRegex("there is no strategy 'samp'\\. There are: ([a-z0-9-]+ )*ddp ([a-z0-9-]+ )*sample[ .]"));
  EXPECT_THAT(message, HasSubstr("Looked in: " + plugin_file("sample") + " " + plugin_folder("fingerprint") + " " +
                                 plugin_folder("no_manifest") + " /not/there (which is not there) " +
                                 CONSIST_BINARY_DIR "/lib/consist/plugins (add places"));
  EXPECT_THAT(message, HasSubstr("not used: " + plugin_folder("no_manifest") + "/consist_test_no_manifest.so has no section"));
  EXPECT_THAT(message_of<UsageError>([&] { host.find("precision", "sample"); }), HasSubstr("there is no precision 'sample'"));
}

TEST(PluginHost, APathThatIsNotThereIsAnErrorOnlyIfItWasNamed) {
  EXPECT_THAT(message_of<UsageError>([] { PluginHost({"/not/there"}); }),
              HasSubstr("--plugin /not/there: there is no such file or folder"));
  const Environment path("CONSIST_PLUGIN_PATH", "/not/there");
  EXPECT_NO_THROW(PluginHost({}));
}

TEST(PluginHost, AFolderMayHoldAnything) {
  TemporaryFolder folder;
  fs::create_symlink(folder / "nowhere", folder / "broken.so");
  fs::create_symlink(folder / "loop.so", folder / "loop.so");
  fs::create_directory(folder / "folder.so");
  write_whole(folder / "readme.txt", "no plugin");
  write_whole(folder / "cut.so", read_whole(plugin_file("sample")).substr(0, 5000));
  fs::copy_file(plugin_file("sample"), folder / "whole.so");
  const PluginHost host({folder.path().string()});
  EXPECT_EQ(listed(host, folder / "whole.so").problem, "");
  EXPECT_THAT(listed(host, folder / "cut.so").problem, HasSubstr("is cut off"));
  const auto& files = host.files();
  EXPECT_EQ(
      std::count_if(files.begin(), files.end(), [&](const PluginFile& file) { return file.path.parent_path() == folder.path(); }),
      2);
}

// In the executable consist, whatever program asks: one that started itself to find out would start itself again from there.
TEST(PluginHost, AvailabilityIsFoundOutByTheExecutable) {
  const PluginHost host({plugin_folder("sample"), plugin_folder("undefined")});
  EXPECT_EQ(host.unavailable(listed(host, plugin_file("sample")), std::chrono::seconds(20)), "");
  EXPECT_FALSE(host.probe(listed(host, plugin_file("undefined")), std::chrono::seconds(20)).loads);
  const Environment reason("CONSIST_TEST_UNAVAILABLE", "the test says so");
  const Availability answer = host.probe(listed(host, plugin_file("sample")), std::chrono::seconds(20));
  EXPECT_EQ(answer.reason, "the test says so");
  EXPECT_TRUE(answer.loads);
}

TEST(PluginHost, AKindThatDoesNotExistIsAProblem) {
  const PluginHost host({plugin_folder("kind")});
  EXPECT_THAT(listed(host, plugin_file("kind")).problem, HasSubstr("its kind is 'locomotive'"));
}

}  // namespace
}  // namespace consist
