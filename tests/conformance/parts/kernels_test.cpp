// Every set of kernels must have keys that nobody else has, of ops that are registered; kernels for its examples, on the
// device that it is for, which write all of their outputs, the same each time, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "consist/error.h"
#include "tests/conformance/parts/kernel_suite.h"

namespace consist {
namespace {

using testing::all_finite;
using testing::filled;
using testing::Numbers;
using testing::Operands;
using testing::Trial;

class KernelsConformance : public testing::KernelSuite {};

TEST_P(KernelsConformance, ItsKeysAreOfOneDeviceAndDifferent) {
  std::set<std::tuple<std::string, std::string, DType>> keys;
  for (const KernelKey& key : set_->keys()) {
    EXPECT_EQ(key.device, device_kind_) << "a set is for one kind of device";
    EXPECT_FALSE(key.op.empty());
    EXPECT_FALSE(key.dtypes.empty()) << key.op;
    for (const DType dtype : key.dtypes)
      EXPECT_TRUE(keys.emplace(key.device, key.op, dtype).second) << key.op << " of " << name_of(dtype) << " is there twice";
  }
}

TEST_P(KernelsConformance, EveryOpHasAnExampleThatItsInferAccepts) {
  std::set<std::string> shown;
  for (const KernelExample& example : set_->examples()) {
    shown.insert(example.op);
    const Op* op = registry().find(example.op);
    if (op == nullptr && device_kind_ != "cpu") continue;  // the plugin that has the op is another one
    ASSERT_NE(op, nullptr) << "nobody registers the op '" << example.op << "'";
    EXPECT_FALSE(op->infer(example.inputs, example.attributes).empty()) << example.op;
    EXPECT_THROW(op->infer({}, example.attributes), ProgramError) << example.op << " of no inputs";
  }
  for (const KernelKey& key : set_->keys()) EXPECT_TRUE(shown.contains(key.op)) << "'" << key.op << "' has no example";
}

std::vector<std::vector<char>> bytes_of(const Operands& operands) {
  std::vector<std::vector<char>> bytes;
  for (const auto& operand : operands) bytes.push_back(operand ? operand->bytes : std::vector<char>());
  return bytes;
}

// A kernel is shared by the instructions of equal requests, and launched again in each step.
TEST_P(KernelsConformance, ItsExamplesWriteAllOfTheirOutputsTheSameEachTime) {
  if (const std::string reason = open_device(); !reason.empty()) GTEST_SKIP() << reason;
  for (const KernelExample& example : examples()) {
    SCOPED_TRACE(example.op);
    const Numbers numbers = numbers_for(example);
    const Operands inputs = filled(example.inputs, 0, numbers), others = filled(example.inputs, 3, numbers);
    Trial trial = trial_of(example);
    const auto first = bytes_of(trial.launch(inputs, 0x3f).outputs);
    EXPECT_EQ(first, bytes_of(trial_of(example).launch(inputs, 0x3f).outputs)) << "the same inputs gave other numbers";
    EXPECT_EQ(first, bytes_of(trial_of(example).launch(inputs, 0x40).outputs))
        << "outputs depend on what was in memory: bytes of an output were not written, or something was read that is no input";
    trial.launch(others, 0x3f);
    EXPECT_EQ(first, bytes_of(trial.launch(inputs, 0x3f).outputs))
        << "a kernel that was launched before gave other numbers: it keeps data from launch to launch";
  }
}

TEST_P(KernelsConformance, TheyTouchNothingButTheirOutputsAndWorkspace) {
  if (const std::string reason = open_device(); !reason.empty()) GTEST_SKIP() << reason;
  for (const KernelExample& example : examples()) {
    SCOPED_TRACE(example.op);
    EXPECT_THAT(trial_of(example).launch(filled(example.inputs, 0, numbers_for(example)), 0x3f).mischief, ::testing::IsEmpty());
  }
}

// This holds for a library that is called, too; on another device than cpu its own library allocates as it likes.
TEST_P(KernelsConformance, LaunchAllocatesNothing) {
  if (const std::string reason = open_device(); !reason.empty()) GTEST_SKIP() << reason;
  if (device_kind_ != "cpu") GTEST_SKIP() << "allocations are counted on the device cpu alone";
  for (const KernelExample& example : examples()) {
    SCOPED_TRACE(example.op);
    Trial trial = trial_of(example);
    const Operands inputs = filled(example.inputs, 0, numbers_for(example));
    trial.launch(inputs, 0x3f);  // the first may set up what stays
    EXPECT_EQ(trial.launch(inputs, 0x3f).allocations, 0) << "memory is asked for by workspace_bytes(), or taken in make_kernel()";
  }
}

TEST_P(KernelsConformance, OfFiniteNumbersTheyMakeFiniteOnes) {
  if (const std::string reason = open_device(); !reason.empty()) GTEST_SKIP() << reason;
  for (const KernelExample& example : examples()) {
    SCOPED_TRACE(example.op);
    const Operands inputs = filled(example.inputs, 0, numbers_for(example));
    EXPECT_TRUE(all_finite(trial_of(example).launch(inputs, 0x3f).outputs))
        << "NaN or infinity, of numbers between 0.2 and 1.7, too";
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelsConformance,
                         ::testing::ValuesIn(testing::candidates("kernels", "CONSIST_CONFORMANCE_KERNELS")),
                         [](const auto& info) { return testing::test_name(info); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KernelsConformance);

}  // namespace
}  // namespace consist
