// The order proof finds conflicts that nothing orders, within a step and across its end, and what insert_waits must see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/builder.h"
#include "consist/op.h"
#include "core/interpreter/order_check.h"
#include "core/lower/waits.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Compute reads `x`, and a gather of [4] from flat parts of 2 over 3 ranks, 6 elements, goes where the caller says.
Planned gather_beside_compute(std::int64_t address_of_gathered, std::int64_t address_of_x) {
  Planned made;
  Program& p = made.program;
  p.mesh = Mesh({{"data", 3}});
  Builder b(p);
  Placements flat;
  flat[0] = Placement::flat();
  const TensorId x = b.input("x", DType::f32, {8}), part = b.input("part", DType::f32, {4}, flat);
  const TensorId y = b.emit_one("cast", {x}, {{"dtype", "f32"}}, "y");
  const TensorId whole = b.reshard(part, 0, Placement::replicate());
  made.plan.address.assign(p.tensors.size(), -1);
  const auto place = [&](TensorId id, std::int64_t address) { made.plan.address[static_cast<std::size_t>(id)] = address; };
  place(x, address_of_x);
  place(part, 1024);
  place(y, 2048);
  place(whole, address_of_gathered);
  made.plan.workspace.assign(p.instructions.size(), -1);
  made.workspaces.assign(p.instructions.size(), 0);
  return made;
}

TEST(Order, ThePaddingOfFlatPartsIsWrittenToo) {
  Planned made = gather_beside_compute(0, 16);  // the gathered tensor's own bytes end where x begins
  EXPECT_THAT(check_order(made).violations,
              ::testing::ElementsAre(::testing::AllOf(HasSubstr("bytes [16, 24)"), HasSubstr("cast"), HasSubstr("all_gather"))));
  insert_waits(made.program, made.plan, made.workspaces);
  EXPECT_THAT(made.program.instructions[1].waits, ::testing::ElementsAre(0));
  EXPECT_THAT(check_order(made).violations, IsEmpty());
}

TEST(Order, NothingWaitsForWhatLiesBehindThePadding) {
  Planned made = gather_beside_compute(0, 24);
  insert_waits(made.program, made.plan, made.workspaces);
  EXPECT_THAT(made.program.instructions[1].waits, IsEmpty());
  EXPECT_THAT(check_order(made).violations, IsEmpty());
}

// Ranks that do the same are looked at once: a wait that one of them lacks, or an address that one of them has alone, is not
// lost.
TEST(Order, OfARankThatDiffersIsLookedAtByItself) {
  const auto made = compile(config_of({"llama-tied"}, {"--strategy=ddp", "--ranks=4", "--ddp.bucket-size=4Ki"}), 256);
  std::vector<std::string> wrong;
  const std::int64_t conflicts = check_ranks(made->steps, wrong);
  EXPECT_THAT(wrong, IsEmpty());
  EXPECT_EQ(conflicts, 4 * check_order(made->steps[0]).conflicts);

  Planned& third = made->steps[2];
  const auto waiting = std::ranges::find_if(third.program.instructions, [](const Instruction& i) { return !i.waits.empty(); });
  const std::vector<InstructionId> waits = std::exchange(waiting->waits, {});
  check_ranks(made->steps, wrong);
  EXPECT_THAT(wrong, ::testing::AllOf(::testing::Not(IsEmpty()), ::testing::Each(HasSubstr("rank 2,"))));
  waiting->waits = waits;

  wrong.clear();
  const TensorId reduced =
      std::ranges::find_if(third.program.instructions, [](const Instruction& i) { return i.op->is_collective(); })->inputs[0];
  const std::int64_t address = third.plan.address[static_cast<std::size_t>(reduced)];
  std::ranges::replace_if(
      third.plan.address, [&](std::int64_t other) { return other >= 0 && other != address; }, address);
  check_ranks(made->steps, wrong);
  EXPECT_THAT(wrong, ::testing::AllOf(::testing::Not(IsEmpty()), ::testing::Each(HasSubstr("rank 2,"))));
}

// Executables join all queues between steps. If one joined compute alone, the next step would meet what others still do.
TEST(Order, OfAStepsEndAndTheNextStepsBeginIsLookedAt) {
  for (const Words& words : {Words{"--strategy=ddp", "--ranks=2", "--ddp.bucket-size=4Ki"},
                             Words{"--strategy=zero3-offload", "--ranks=2", "--zero3-offload.offload-optimizer.device=cpu"}}) {
    const auto made = compile(config_of({"llama-tied"}, words), 256);
    EXPECT_THAT(check_order(made->steps[0]).violations, IsEmpty());
    const std::vector<std::string> violations =
        check_order(made->steps[0], [](Queue queue) { return queue == Queue::compute(); }).violations;
    EXPECT_THAT(violations, ::testing::Not(IsEmpty()));
    EXPECT_THAT(violations, ::testing::Each(HasSubstr("of the next step")));
  }
}

}  // namespace
}  // namespace consist::interpreter
