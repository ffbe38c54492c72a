// `consist check` refuses plugins that are wrong, each for its fault, and no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "tests/child_process.h"
#include "tests/plugin/test_plugins.h"

namespace consist {
namespace {

using test::ChildResult;
using test::Environment;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ChildResult check(const std::string& file, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", "check", TEST_PLUGINS "/" + file});
  return test::run_child(more, std::chrono::seconds(100));
}

const std::string faulty_kernels = "faulty_kernels/kernels-test-faulty.so";

TEST(Check, KernelsWithoutAFaultConform) {
  const ChildResult result = check(faulty_kernels);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("kernels 'faulty' conforms\n"));
}

struct Fault {
  const char* name;
  const char* message;
};

TEST(Check, EachFaultOfKernelsIsFound) {
  for (const Fault& fault :
       {Fault{"a wrong gradient", "element 0 of the gradient of input 0 is"},
        Fault{"square of a summand", "works on (partial) and makes (partial)"},
        Fault{"shard without outputs", "shard() left placements of 0 outputs; the op has 1"},
        Fault{"a state", "it keeps data from launch to launch"}, Fault{"a written input", "it wrote to input 0"},
        Fault{"an overrun", "behind the end of output 0"}, Fault{"an underrun", "in front of the beginning of output 0"},
        Fault{"an overrun of the workspace", "byte 1 behind the end of the workspace"},
        Fault{"a read behind the input", "something was read that is no input"},
        Fault{"an unwritten element", "bytes of an output were not written"},
        Fault{"an allocation", "memory is asked for by workspace_bytes()"}, Fault{"NaN", "NaN or infinity"},
        Fault{"negative workspace", "asks for -5 bytes of workspace"}, Fault{"exit", "ended the process by exit() in launch()"},
        Fault{"_exit", "was ended in the midst of the suite, with status 0"},
        Fault{"hang", "has not returned from launch() for 2 s"}}) {
    SCOPED_TRACE(fault.name);
    const Environment deed("CONSIST_TEST_FAULT", fault.name);
    std::optional<Environment> timeout;
    if (fault.name == std::string("hang")) timeout.emplace("CONSIST_PLUGIN_TIMEOUT", "2");
    const ChildResult result = check(faulty_kernels);
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr(fault.message), HasSubstr("kernels 'faulty' does not conform")));
  }
}

TEST(Check, APluginThatEndsTheProcessDoesNotConform) {
  for (const Fault& fault :
       {Fault{"read_train exit", "dataset 'faulty' (" TEST_PLUGINS}, Fault{"read_train _exit", "with status 0"}}) {
    SCOPED_TRACE(fault.name);
    const Environment deed("CONSIST_TEST_FAULT", fault.name);
    const ChildResult result = check("faulty_data/dataset-test-faulty.so");
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr(fault.message), HasSubstr("does not conform"), HasSubstr("ended in the midst of the suite")));
  }
}

TEST(Check, ThatNoTestIsLeftIsNoSuccess) {
  const ChildResult result = check(faulty_kernels, {"--skip", "*"});
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("no test was run; --skip '*' leaves out all"));
}

TEST(Check, ThatNoTestCanRunIsNoSuccess) {
  const ChildResult result = check("../../lib/consist/plugins/dataset-jsonl.so");
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("nothing was checked, since none of its"), Not(HasSubstr("conforms"))));
}

TEST(Check, OptionsThatThePluginDoesNotHaveAndIllegalValuesAreRefused) {
  const std::string strategy = "doubled/strategy-test-doubled.so";
  const ChildResult unknown = check(strategy, {"--option", "file=x"});
  EXPECT_EQ(unknown.status, 2) << unknown.output;
  EXPECT_THAT(unknown.output, HasSubstr("--option is 'file=x', but strategy 'doubled' has no option of that name. It has"));
  const ChildResult illegal = check("../../lib/consist/plugins/strategy-ddp.so", {"--option", "bucket-size=many"});
  EXPECT_EQ(illegal.status, 2) << illegal.output;
  EXPECT_THAT(illegal.output, HasSubstr("bucket-size"));
}

TEST(Check, WhatWasLeftOutIsSaid) {
  const ChildResult result = check(faulty_kernels, {"--skip", "*Gradients*"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("conforms; tests named *Gradients* were left out"));
}

TEST(Check, AModelIsCheckedWithTheOpsOfAnotherPlugin) {
  const std::string model = "foreign_op/model-test-foreign-op.so", ops = TEST_PLUGINS "/" + faulty_kernels;
  const std::string own = "*Config*:*Presets*:*Sizes*";  // of which it has none, or not its own
  EXPECT_THAT(check(model, {"--skip", own}).output, HasSubstr("there is no op"));
  const ChildResult result = check(model, {"--plugin", ops, "--skip", own});
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(Check, AFactorOfTheGradientsIsFoundByTheirNorm) {
  const Environment brief("CONSIST_CONFORMANCE_BRIEF", "1");
  const ChildResult result = check("doubled/strategy-test-doubled.so", {"--skip", "*Programs*"});
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("norm of the gradients of step 1"));
}

TEST(Check, AnOptimizerThatCountsItsOwnStepsDoesNotResume) {
  const ChildResult result = check("counting/optimizer-test-counting.so", {"--skip", "*Learns*:*HoldParts*"});
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("of the resumed run"));
}

}  // namespace
}  // namespace consist
