// remove_dead(): what nobody reads goes, what is done for others stays.
#include <gtest/gtest.h>

#include "consist/builder.h"
#include "consist/rewrite.h"
#include "core/program/verifier.h"

namespace consist {
namespace {

class RemoveDead : public ::testing::Test {
 protected:
  RemoveDead() : builder_(program_) {
    program_.mesh = Mesh({{"pipeline", 2}});
    x_ = builder_.input("ids", DType::f32, {4});
  }
  TensorId cast(TensorId from) { return builder_.emit_one("cast", {from}, {{"dtype", std::string("f32")}}); }
  std::vector<std::string> left() {
    remove_dead(program_);
    verify(program_);
    std::vector<std::string> ops;
    for (const Instruction& i : program_.instructions) ops.emplace_back(i.op->name());
    return ops;
  }

  Program program_;
  Builder builder_;
  TensorId x_ = no_tensor;
};

TEST_F(RemoveDead, WhatIsReadForTheLossStays) {
  program_.loss = cast(cast(x_));
  cast(cast(x_));
  EXPECT_EQ(left(), (std::vector<std::string>{"cast", "cast"}));
}

TEST_F(RemoveDead, AMessageStaysWithWhatItSends) {
  builder_.emit("send", {cast(x_)}, {{"axis", AxisSet(0)}, {"lane", static_cast<std::int64_t>(Lane::to_next)}});
  cast(x_);
  EXPECT_EQ(left(), (std::vector<std::string>{"cast", "send"}));
}

TEST_F(RemoveDead, AReleaseStaysForWhatIsMadeAndKeepsNothingAlive) {
  const TensorId read = cast(x_), unread = cast(x_);
  program_.loss = cast(read);
  builder_.emit("release", {read, unread});
  builder_.emit("release", {unread});
  EXPECT_EQ(left(), (std::vector<std::string>{"cast", "cast", "release"}));
  EXPECT_EQ(program_.instructions.back().inputs, std::vector<TensorId>{read});
}

}  // namespace
}  // namespace consist
