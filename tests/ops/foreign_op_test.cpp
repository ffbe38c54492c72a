// An op that the core has never heard of gets everything it needs through the virtual functions of Op.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "consist/builder.h"
#include "consist/device.h"
#include "consist/op.h"
#include "core/lower/prepared_program.h"
#include "core/lower/program_summary.h"
#include "core/program/verifier.h"
#include "tests/idle_device.h"

namespace consist {
namespace {

class NothingToDo final : public Kernel {
 public:
  void launch(std::span<const Buffer>, std::span<const Buffer>, void*, NativeQueue) override {}
};

/// Sends each rank's tensor to its neighbour on the axis: a collective of its own.
class Rotate final : public Op {
 public:
  std::string_view name() const noexcept override { return "test_rotate"; }
  Types infer(const Types& inputs, const Attributes& /*attributes*/) const override { return inputs; }
  void shard(AxisSharding& axis, const Types& /*inputs*/, const Attributes& /*attributes*/) const override {
    axis.outputs = axis.inputs;
  }
  bool is_collective() const noexcept override { return true; }
  std::int64_t bytes_sent(std::int64_t bytes, int ranks) const noexcept override { return bytes * ranks + 1; }
  std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* /*communicator*/,
                                                 int ranks) const override {
    EXPECT_EQ(request.op, name());
    EXPECT_EQ(ranks, 2);
    return std::make_unique<NothingToDo>();
  }
};

/// A name for a moment of the program; no device has a kernel for it.
class Mark final : public Op {
 public:
  std::string_view name() const noexcept override { return "test_mark"; }
  Types infer(const Types& /*inputs*/, const Attributes& /*attributes*/) const override { return {}; }
  void shard(AxisSharding& /*axis*/, const Types& /*inputs*/, const Attributes& /*attributes*/) const override {}
  bool touches_memory() const noexcept override { return false; }
};

TEST(ForeignOp, BringsItsCollectiveKernelAndNeedsNoneWhereNothingIsTouched) {
  registry().add(std::make_unique<Rotate>());
  registry().add(std::make_unique<Mark>());
  Program program;
  program.mesh = Mesh({{"data", 2}});
  Builder builder(program);
  const TensorId x = builder.input("x", DType::f32, {6});
  const TensorId y = builder.emit_one("test_rotate", {x}, {{"axis", AxisSet(0)}}, "y");
  builder.emit("test_mark", {y}, {}, {});
  ASSERT_EQ(program.instructions.size(), 2u);
  verify(program);

  test::IdleDevice device;
  PreparedProgram prepared(program, device, {});
  prepared.plan();
  EXPECT_EQ(prepared.program().instructions[0].queue, Queue::communication(0));
  EXPECT_TRUE(prepared.program().instructions[1].waits.empty()) << "it touches nothing, so there is nothing to wait for";
  const ProgramSummary summary = summarize(prepared);
  ASSERT_EQ(summary.collectives.size(), 1u);
  EXPECT_EQ(summary.collectives[0].op, "test_rotate");
  EXPECT_EQ(summary.collectives[0].bytes_sent, 6 * 4 * 2 + 1);
}

}  // namespace
}  // namespace consist
