// Plugins at the command line: `consist plugins`, and options of parts in commands that run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <ostream>

#include "consist/plugin.h"
#include "tests/child_process.h"
#include "tests/plugin/test_plugins.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::ChildResult;
using test::Environment;
using test::plugin_file;
using test::plugin_folder;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

ChildResult consist(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), CONSIST_BINARY_DIR "/bin/consist");
  return test::run_child(arguments);
}

ChildResult list(const std::string& name) {
  return consist({"plugins", "--plugin", plugin_folder(name)});
}

TEST(PluginsCommand, ListsKindNameVersionAndFile) {
  const ChildResult result = list("sample");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, ContainsRegex("strategy +sample +1\\.2\\.3 +yes +" + plugin_file("sample")));
  EXPECT_THAT(result.output,
              ContainsRegex("strategy +ddp +[0-9.]+ +yes +" CONSIST_BINARY_DIR "/lib/consist/plugins/strategy-ddp.so"));
}

TEST(PluginsCommand, AModelsPresetsAreListed) {
  const ChildResult result = consist({"plugins", "llama"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("presets, for --model:\n"), ContainsRegex("\n    llama-tiny  +[^ ]"),
                                   ContainsRegex("\n    llama-3.1-8b  +[^ ]")));
  EXPECT_THAT(consist({"plugins", "lama"}).output, HasSubstr("Did you mean 'llama'?"));
}

TEST(PluginsCommand, GivesTheReasonOfWhatCannotWork) {
  const Environment reason("CONSIST_TEST_UNAVAILABLE", "the test says so");
  EXPECT_THAT(list("sample").output, ContainsRegex("strategy +sample +1\\.2\\.3 +no .*\n +the test says so\n"));
  const Environment hostile("CONSIST_TEST_UNAVAILABLE", "\033[2J\033]0;title\007");
  EXPECT_THAT(list("sample").output, AllOf(HasSubstr("\\u001b[2J\\u001b]0;title\\u0007"), Not(HasSubstr("\033"))));
  EXPECT_THAT(list("undefined").output, AllOf(ContainsRegex("strategy +undefined +1\\.2\\.3 +no "),
                                              HasSubstr("consist_test_function_that_nobody_defines")));
  EXPECT_THAT(list("fingerprint").output,
              AllOf(ContainsRegex("strategy +fingerprint +1\\.2\\.3 +no "), HasSubstr("headers-00000000deadbeef/"),
                    HasSubstr(CONSIST_FINGERPRINT), HasSubstr("rebuild it")));
  EXPECT_THAT(list("no_manifest").output, AllOf(ContainsRegex("\\? +\\? +no "), HasSubstr("no section .consist_plugin")));
}

TEST(PluginsCommand, OptionsAreShownUnlessTheFileCannotBeLoaded) {
  const std::string options = consist({"plugins", "sample", "--plugin", plugin_folder("sample")}).output;
  EXPECT_THAT(options,
              AllOf(HasSubstr("strategy sample 1.2.3: changes nothing"), HasSubstr("available: yes"),
                    HasSubstr("--sample.choice  (red|green, default red)\n      a colour"),
                    HasSubstr("--sample.text  (text, default empty)"), HasSubstr("--sample.bytes  (bytes, default 25Mi)")));
  const ChildResult undefined = consist({"plugins", "undefined", "--plugin", plugin_folder("undefined")});
  EXPECT_EQ(undefined.status, 0) << undefined.output;
  EXPECT_THAT(undefined.output, AllOf(HasSubstr("available: no: "), HasSubstr("consist_test_function_that_nobody_defines"),
                                      Not(HasSubstr("--undefined."))));
  const ChildResult unknown = consist({"plugins", "samp", "--plugin", plugin_folder("sample")});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, AllOf(HasSubstr("there is no plugin 'samp'"), HasSubstr(" sample"),
                                    HasSubstr("Looked in: " + plugin_folder("sample"))));
}

struct ListedFault {
  const char* name;
  const char* reason;
};

void PrintTo(const ListedFault& fault, std::ostream* stream) {
  *stream << fault.name;
}

class FaultyPlugin : public ::testing::TestWithParam<ListedFault> {};

// The listing stays whole, says what happened, and comes to an end.
TEST_P(FaultyPlugin, DoesNotHurtTheListing) {
  const Environment fault("CONSIST_TEST_FAULT", GetParam().name);
  std::optional<Environment> timeout;
  if (std::string(GetParam().name).find("hang") != std::string::npos) timeout.emplace("CONSIST_PLUGIN_TIMEOUT", "2");
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult result = consist({"plugins", "sample", "--plugin", plugin_file("sample")});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("strategy sample 1.2.3"),
                                   HasSubstr(std::string("available: no: ") + GetParam().reason), Not(HasSubstr("--sample."))));
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultyPlugin,
                         ::testing::Values(ListedFault{"crash", "it crashed while it was probed (Aborted)"},
                                           ListedFault{"exit", "it ended the process that probed it, with status 0"},
                                           ListedFault{"hang", "it did not answer within 2000 ms"},
                                           ListedFault{"close and hang", "it did not answer within 2000 ms"}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(PluginsCommand, WhatAPluginPrintsIsNoReason) {
  const Environment fault("CONSIST_TEST_FAULT", "print");
  EXPECT_THAT(list("sample").output, ContainsRegex("strategy +sample +1\\.2\\.3 +yes"));
}

TEST(PluginsCommand, RefusedPluginsAreNotLoadedEvenInAProcessOfTheirOwn) {
  TemporaryFolder folder;
  const Environment trace("CONSIST_TEST_TRACE", folder / "trace");
  list("fingerprint");
  EXPECT_FALSE(std::filesystem::exists(folder / "trace"));
  list("sample");
  EXPECT_EQ(read_whole(folder / "trace"), "sample\n");
}

TEST(PluginsCommand, CutOffFilesAreListedAndRefused) {
  TemporaryFolder folder;
  const std::string whole = read_whole(plugin_file("sample"));
  for (std::size_t length = 0; length < whole.size(); length += whole.size() / 7) {
    write_whole(folder / "cut.so", whole.substr(0, length));
    const ChildResult listing = consist({"plugins", "--plugin", folder.path().string()});
    EXPECT_EQ(listing.status, 0) << listing.output;
    EXPECT_THAT(listing.output, AllOf(HasSubstr(folder / "cut.so is "), ContainsRegex("strategy +ddp .* yes")));
    const ChildResult named = consist({"plugins", "--plugin", folder / "cut.so"});
    EXPECT_EQ(named.status, 1) << named.output;
    EXPECT_THAT(named.output, HasSubstr("consist: " + (folder / "cut.so")));
  }
}

TEST(PluginsCommand, DuplicatesAreRefusedWithBothFiles) {
  const ChildResult result = consist({"plugins", "--plugin", plugin_folder("sample"), "--plugin", plugin_folder("namesake")});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.output, AllOf(HasSubstr(plugin_file("sample")), HasSubstr(plugin_file("namesake"))));
}

// explain makes the parts of a run without running it; train and compare read options by the same function.
ChildResult explain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"explain", "--summary", "--device", "cpu", "--model", "llama-tiny", "--plugin", plugin_folder("sample")});
  return consist(arguments);
}

TEST(OptionsOfParts, LegalOnesAreTaken) {
  for (const std::vector<std::string>& legal :
       std::vector<std::vector<std::string>>{{"--ddp.bucket-size", "1M"},
                                             {"--ddp.bucket-size=1M"},
                                             {"--strategy", "sample", "--sample.flag", "--sample.choice", "green"},
                                             {"--strategy", "sample", "--sample.flag=false", "--sample.real", "-1"}}) {
    const ChildResult result = explain(legal);
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

// Kernels are asked for their scratch memory only if --device names who is asked.
TEST(Explain, AsksNoDeviceUnlessOneIsNamed) {
  const auto output = [](const std::string& device) {
    const Environment trace("LD_DEBUG", "files");  // the dynamic linker names what it loads
    const std::string all =
        consist({"explain", "--summary", "--sequence", "32", "--model", CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied", device})
            .output;
    std::string said;
    for (const char* sign : {"The scratch memory of kernels is estimated", "strategy-ddp.so", "device-"})
      said += all.find(sign) == all.npos ? "" : sign;
    return said;
  };
  EXPECT_EQ(output("--ranks=1"), "The scratch memory of kernels is estimatedstrategy-ddp.so");
  EXPECT_EQ(output("--device=cpu"), "strategy-ddp.sodevice-");
}

TEST(OptionsOfParts, ThePathFromTheEnvironmentIsSearched) {
  const std::vector<std::string> words{"explain", "--summary",  "--device",   "cpu",
                                       "--model", "llama-tiny", "--strategy", "sample"};
  EXPECT_THAT(consist(words).output, HasSubstr("there is no strategy 'sample'"));
  const Environment path("CONSIST_PLUGIN_PATH", plugin_folder("sample"));
  EXPECT_EQ(consist(words).status, 0);
}

// The launching process to check them, each rank to train with them.
TEST(PartsOfARun, EachProcessMakesThemOnce) {
  const TemporaryFolder folder;
  const Environment made("CONSIST_TEST_MADE", folder / "made");
  const Environment model("CONSIST_TEST_FAULT", "constructor say");
  const ChildResult result = consist({"train",
                                      "--plugin",
                                      plugin_folder("sample"),
                                      "--plugin",
                                      plugin_folder("faulty_model"),
                                      "--strategy",
                                      "ddp=2+sample",
                                      "--ranks",
                                      "2",
                                      "--model",
                                      "llama-tiny",
                                      "--device",
                                      "cpu",
                                      "--cpu.threads",
                                      "1",
                                      "--dataset",
                                      "synthetic",
                                      "--sequence",
                                      "16",
                                      "--batch",
                                      "1",
                                      "--steps",
                                      "1"});
  ASSERT_EQ(result.status, 0) << result.output;
  std::ifstream file(folder / "made");
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 1 + 2);
  int models = 0;
  for (std::size_t at = 0; (at = result.output.find("constructor reached", at)) != std::string::npos; ++at) ++models;
  EXPECT_EQ(models, 1 + 2) << result.output;
}

struct Refusal {
  std::vector<std::string> arguments;
  const char* message;
};

TEST(OptionsOfParts, IllegalOnesAreRefused) {
  const Refusal refusals[] = {
      {{"--ddp.bucket-size", "1X"}, "--ddp.bucket-size is '1X'; it must be a number of bytes"},
      {{"--ddp.bucket-size"}, "--ddp.bucket-size"},
      {{"--ddp.bucket-size", "1M", "--ddp.bucket-size", "2M"}, "--ddp.bucket-size is given twice"},
      {{"--ddp.bucket", "1M"}, "plugin 'ddp' has no option 'bucket'. It has bucket-size"},
      {{"--dd.bucket-size", "1M"}, "there is no plugin 'dd'"},
      {{"--step", "3"}, "there is no option '--step'"},
      {{"--strategy", "dd"}, "there is no strategy 'dd'. There are: cp ddp "},
      {{"--sample.integer", "1"}, "'sample' is not part of this configuration"},
      {{"--strategy", "sample", "--sample.integer", "1.5"}, "--sample.integer is '1.5'; it must be a whole number"},
      {{"--strategy", "sample", "--sample.choice", "gre"}, "--sample.choice is 'gre'; it must be one of red, green"},
      {{"--ddp.bucket-size=1M", "2M"}, "'2M' is neither an option nor the value of one"},
      {{"--plugin", "/not/there"}, "--plugin /not/there: there is no such file or folder"},
  };
  for (const Refusal& refusal : refusals) {
    const ChildResult result = explain(refusal.arguments);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(refusal.message));
  }
}

}  // namespace
}  // namespace consist
