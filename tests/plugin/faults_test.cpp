// A plugin that ends the process, or hangs: the command says its name and fails, and the archive stays whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/plugin/test_plugins.h"
#include "tests/temporary_folder.h"
#include "tests/terminal_process.h"

namespace consist {
namespace {

using test::ChildResult;
using test::Environment;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string faulty_data = TEST_PLUGINS "/faulty_data", faulty_model = TEST_PLUGINS "/faulty_model";

ChildResult consist_within(std::vector<std::string> words) {
  words.insert(words.begin(), CONSIST_BINARY_DIR "/bin/consist");
  return test::run_child(words, std::chrono::seconds(40));
}

/// Trains on the faulty dataset, which commits its fault in the third step.
ChildResult train(const std::string& archive, const std::string& ranks = "1") {
  return consist_within({"train",
                         "--plugin",
                         faulty_data,
                         "--model",
                         CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied",
                         "--dataset",
                         "faulty",
                         "--from-scratch",
                         "--device",
                         "cpu",
                         "--batch",
                         "1",
                         "--cpu.threads",
                         "1",
                         "--sequence",
                         "16",
                         "--steps",
                         "6",
                         "--ranks",
                         ranks,
                         "--archive",
                         archive,
                         "--timeout",
                         "10"});
}

/// The words of `consist` that train on the CPU for `steps` steps of one sequence, with `more`.
std::vector<std::string> training(const std::string& steps, std::vector<std::string> more) {
  more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", "train", "--from-scratch", "--device", "cpu", "--cpu.threads",
                             "1", "--batch", "1", "--sequence", "16", "--steps", steps});
  return more;
}

constexpr const char* of_data = "dataset 'faulty'";

struct FaultInRun {
  const char* deed;
  const char* named;
  const char* message;
  int status;
};

TEST(PluginFaults, TheCommandFailsWithThePluginsNameAndTheArchiveIsWhole) {
  for (const FaultInRun& fault :
       {FaultInRun{"exit", of_data, "ended the process by exit() in read_train()", 1},
        FaultInRun{"throw 42", of_data, "threw a value of type int in read_train()", 1},
        FaultInRun{"throw", of_data, "threw std::out_of_range in read_train()", 1},
        FaultInRun{"crash", of_data, "touched memory that is not there (SIGSEGV), in read_train()", 139},
        FaultInRun{"divide", of_data, "divided by zero (SIGFPE), in read_train()", 136},
        FaultInRun{"abort", of_data, "aborted (SIGABRT), in read_train()", 134},
        FaultInRun{"crash in a thread", "/faulty_data/dataset-test-faulty.so) crashed",
                   "touched memory that is not there (SIGSEGV)", 139},
        FaultInRun{"hang", of_data, "has not returned from read_train() for 1 s", 1}}) {
    SCOPED_TRACE(fault.deed);
    TemporaryFolder folder;
    const Environment deed("CONSIST_TEST_FAULT", std::string("read_train ") + fault.deed);
    const Environment timeout("CONSIST_PLUGIN_TIMEOUT", fault.deed == std::string("hang") ? "1" : "60");
    const ChildResult result = train(folder / "run.h5");
    EXPECT_EQ(result.status, fault.status) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr(fault.named), HasSubstr(fault.message)));
    const ArchiveReader archive(folder / "run.h5");
    EXPECT_THAT(archive.column("loss").size(), ::testing::AnyOf(1u, 2u));   // data is read a step ahead
    EXPECT_EQ(archive.status(), fault.status == 1 ? "failed" : "cut off");  // after a crash nothing more is written
  }
}

// Nobody can catch it: the archive tells it afterwards, and in a job the other ranks.
TEST(PluginFaults, UnderscoreExitLeavesAnArchiveThatIsCutOff) {
  const Environment deed("CONSIST_TEST_FAULT", "read_train _exit");
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks);
    TemporaryFolder folder;
    const ChildResult result = train(folder / "run.h5", ranks);
    EXPECT_EQ(result.status == 0, ranks == std::string("1")) << result.output;
    const ArchiveReader archive(folder / "run.h5");
    EXPECT_EQ(archive.status(), "cut off") << archive.reason();
    const ChildResult again = train(folder / "run.h5", ranks);
    EXPECT_EQ(again.status, 2);
    EXPECT_THAT(again.output, ContainsRegex("of a run that was cut off (after step [12]|before its first step)"));
  }
}

TEST(PluginFaults, ARankThatAPluginEndsFailsTheJobWithItsName) {
  TemporaryFolder folder;
  const Environment deed("CONSIST_TEST_FAULT", "read_train exit");
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult result = train(folder / "run.h5", "2");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_NE(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("dataset 'faulty'"));
  EXPECT_EQ(ArchiveReader(folder / "run.h5").status(), "failed");
}

// Kernels run on the device's threads. They are called too often to be watched one by one.
TEST(PluginFaults, AKernelThatDoesNotReturnEndsTheRunWithItsName) {
  TemporaryFolder folder;
  const Environment deed("CONSIST_TEST_FAULT", "hang"), timeout("CONSIST_PLUGIN_TIMEOUT", "1");
  const ChildResult result =
      test::run_child(training("3", {"--plugin", TEST_PLUGINS "/faulty_kernels", "--plugin", TEST_PLUGINS "/foreign_op",
                                     "--model", "own-op-tiny", "--dataset", "synthetic", "--archive", folder / "run.h5"}),
                      std::chrono::seconds(40));
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("kernels 'faulty'"), HasSubstr("has not returned from launch() for 1 s")));
  EXPECT_EQ(ArchiveReader(folder / "run.h5").status(), "failed");
}

// With the usual limit of 300 s: who stops a run does not wait for a plugin that hangs.
TEST(PluginFaults, ASignalEndsARunThatWaitsForAPluginWithinSeconds) {
  TemporaryFolder folder;
  test::TerminalProcess run(training("6", {"--plugin", faulty_data, "--dataset", "faulty", "--model",
                                           CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied", "--archive", folder / "run.h5"}),
                            {{"CONSIST_TEST_FAULT", "read_train hang"}});
  run.wait_for("step 1/", std::chrono::seconds(60));
  const auto sent = test::TerminalProcess::Clock::now();
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(std::chrono::seconds(30)), 1) << run.output();
  EXPECT_LT(run.ended_at() - sent, std::chrono::seconds(12));
  EXPECT_THAT(run.output(), AllOf(HasSubstr("dataset 'faulty'"), HasSubstr("has not returned from read_train()"),
                                  HasSubstr("a signal asked the run to end")));
  EXPECT_EQ(ArchiveReader(folder / "run.h5").status(), "failed");
}

TEST(PluginFaults, ADeedAtTheStartIsNamedToo) {
  TemporaryFolder folder;
  for (const char* fault : {"load exit", "load abort", "constructor exit", "open exit", "open throw 42"}) {
    const Environment deed("CONSIST_TEST_FAULT", fault);
    const ChildResult result = train(folder / "run.h5");
    EXPECT_NE(result.status, 0) << fault;
    EXPECT_THAT(result.output, HasSubstr("dataset 'faulty'")) << fault;
  }
}

ChildResult explain(const std::string& model, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"explain", "--summary", "--plugin", faulty_model, "--model", model, "--sequence", "16"});
  return consist_within(more);
}

TEST(ModelPlugins, OneThatThrowsIsLeftOutOfRunsThatDoNotNeedItAndNamed) {
  for (const char* fault : {"load throw", "constructor throw 42"}) {
    SCOPED_TRACE(fault);
    const Environment deed("CONSIST_TEST_FAULT", fault);
    const ChildResult result = explain("llama-tiny");
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("model 'faulty'"), HasSubstr("parameters 2.42 M")));
    const ChildResult asked = explain("faulty:faulty-tiny");
    EXPECT_NE(asked.status, 0);
    EXPECT_THAT(asked.output, HasSubstr("model 'faulty'"));
  }
}

TEST(ModelPlugins, OneThatEndsTheProcessIsNamedAndNotLoadedWhereAnotherIsAskedForByName) {
  for (const char* fault : {"load abort", "load exit", "load crash", "load hang", "presets exit"}) {
    SCOPED_TRACE(fault);
    const Environment deed("CONSIST_TEST_FAULT", fault);
    const Environment timeout("CONSIST_PLUGIN_TIMEOUT", "1");
    const ChildResult result = explain("llama-tiny");
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr("model 'faulty'"));
    EXPECT_EQ(explain("llama:llama-tiny").status, 0);
  }
}

TEST(PluginFaults, ATimeoutThatIsNoneIsRefused) {
  const Environment timeout("CONSIST_PLUGIN_TIMEOUT", "soon");
  const ChildResult result = explain("llama:llama-tiny");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.output, HasSubstr("CONSIST_PLUGIN_TIMEOUT is 'soon'; it must be a number of seconds from 1 on"));
}

TEST(ModelPlugins, WhatSeveralOfferIsRefusedUnlessOneIsNamed) {
  const ChildResult preset = explain("llama-32m");
  EXPECT_EQ(preset.status, 2);
  EXPECT_THAT(preset.output, AllOf(HasSubstr("offered by several plugins"), HasSubstr("faulty (" + faulty_model),
                                   HasSubstr("llama (" CONSIST_BINARY_DIR), HasSubstr("--model faulty:llama-32m")));
  const std::string folder = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
  EXPECT_THAT(explain(folder).output, AllOf(HasSubstr("'LlamaForCausalLM' is offered by several plugins"), HasSubstr("llama (")));
  EXPECT_EQ(explain("llama:llama-32m").status, 0);
  EXPECT_EQ(explain("llama:" + folder).status, 0);
  EXPECT_THAT(explain("faulty:llama-32m").output, HasSubstr("model 'faulty'"));  // which makes no architecture
}

}  // namespace
}  // namespace consist
