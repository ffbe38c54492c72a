// Choice of the way in which bf16 matrices are multiplied, from what was measured.
#include "plugins/devices/cpu/bf16_choice.h"

#include <gtest/gtest.h>

namespace consist::cpu {
namespace {

TEST(Bf16Choice, ProcessorsWithSlowBf16InstructionsMultiplyInFp32) {
  EXPECT_FALSE((Bf16Rates{.native = 60e9, .emulated = 95e9}.native_is_chosen()));
  EXPECT_FALSE((Bf16Rates{.native = 90e9, .emulated = 95e9}.native_is_chosen()));
}

TEST(Bf16Choice, EqualsAreMultipliedByTheInstructions) {
  EXPECT_TRUE((Bf16Rates{.native = 95e9, .emulated = 60e9}.native_is_chosen()));
  EXPECT_TRUE((Bf16Rates{.native = 95e9, .emulated = 99e9}.native_is_chosen())) << "within what a short measurement errs by";
}

}  // namespace
}  // namespace consist::cpu
