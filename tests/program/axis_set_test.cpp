// Sets of mesh axes: the groups of ranks over them, what moves over them, and the queues on which it moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "consist/analysis.h"
#include "consist/builder.h"
#include "consist/error.h"
#include "core/cost/collective_stream.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Mesh three_axes({{"data", 2}, {"context", 3}, {"tensor", 2}});
constexpr AxisSet data = 0, context = 1, tensor = 2;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "no error";
}

TEST(AxisSet, OfTensorsThatLieAlike) {
  Program program;
  program.mesh = three_axes;
  Builder builder(program);
  const auto lying = [&](AxisSet partial, AxisSet flat) {
    Placements placements;
    placements.set(partial, Placement::partial());
    placements.set(flat, Placement::flat());
    return builder.input("x", DType::f32, {12}, placements);
  };
  const std::vector<TensorId> tensors{lying(data, {}), lying(data | context, tensor), no_tensor,
                                      lying({}, data), lying(context | data, {}),     lying(tensor, {})};
  EXPECT_EQ(axes_with(program[tensors[1]], Placement::partial(), data | tensor), data);
  EXPECT_EQ(axes_with(program[tensors[1]], Placement::replicate(), three_axes.all_axes()), AxisSet());
  EXPECT_THAT(sets_with(program, tensors, Placement::partial(), data | context), ElementsAre(data | context, data));
  EXPECT_THAT(sets_with(program, tensors, Placement::partial(), three_axes.all_axes()),
              ElementsAre(data | context, tensor, data));
  EXPECT_THAT(sets_with(program, tensors, Placement::flat(), tensor), ElementsAre(tensor));
}

TEST(AxisSet, HoldsIndices) {
  const AxisSet set = AxisSet(5) | 1 | 63;
  std::vector<int> indices;
  for (const int axis : set) indices.push_back(axis);
  EXPECT_THAT(indices, ElementsAre(1, 5, 63));
  EXPECT_EQ(set.count(), 3);
  EXPECT_EQ(set.first(), 1);
  EXPECT_EQ(set.last(), 63);
  EXPECT_TRUE(set.contains(5));
  EXPECT_FALSE(set.contains(2));
  EXPECT_TRUE(set.intersects(AxisSet(2) | 5));
  EXPECT_FALSE(set.intersects(-1)) << "no axis meets no set";
  EXPECT_EQ(set.without(AxisSet(1) | 63), 5);
  EXPECT_TRUE(AxisSet(-1).empty());
  EXPECT_EQ(AxisSet().first(), -1);
  EXPECT_EQ(AxisSet().last(), -1);
  EXPECT_THROW(AxisSet(64), ProgramError);
}

TEST(AxisSet, GroupsAreRowMajorOverTheAxesInMeshOrder) {
  EXPECT_THAT(three_axes.group(7, context), ElementsAre(7, 9, 11));
  EXPECT_THAT(three_axes.group(7, data | tensor), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(three_axes.group(7, AxisSet()), ElementsAre(7));
  for (const AxisSet axes : {data, context, tensor, data | context, data | tensor, context | tensor, three_axes.all_axes()}) {
    std::map<std::vector<int>, int> groups;
    for (int rank = 0; rank < three_axes.ranks(); ++rank) {
      const std::vector<int> group = three_axes.group(rank, axes);
      ++groups[group];
      EXPECT_EQ(static_cast<int>(group.size()), three_axes.size_of(axes));
      EXPECT_EQ(group[static_cast<std::size_t>(three_axes.coordinate(rank, axes))], rank) << three_axes.text(axes);
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
    }
    EXPECT_EQ(static_cast<int>(groups.size()), three_axes.groups(axes));
    for (const auto& [group, members] : groups) EXPECT_EQ(members, static_cast<int>(group.size()));
  }
  EXPECT_THROW(three_axes.group(0, 3), std::out_of_range);
  EXPECT_THROW(three_axes.coordinate(0, 3), std::out_of_range);
  EXPECT_THROW(three_axes.size_of(3), std::out_of_range);
}

TEST(AxisSet, HasATextThatIsReadBack) {
  EXPECT_EQ(three_axes.text(data | tensor), "data+tensor");
  EXPECT_EQ(three_axes.text(AxisSet()), "none");
  for (const AxisSet axes : {data, context | tensor, three_axes.all_axes()})
    EXPECT_EQ(three_axes.parse(three_axes.text(axes)), axes);
  EXPECT_EQ(three_axes.parse("data+pipeline"), std::nullopt);
  EXPECT_EQ(three_axes.parse(""), std::nullopt);
  EXPECT_THROW(Mesh({{"a+b", 2}}), UsageError);
}

TEST(QueueTable, NumbersQueuesComputeFirst) {
  const Queue both = Queue::communication(data | context), one = Queue::communication(data, Lane::to_next);
  const QueueTable table({one, both, Queue::device_to_host(), both});
  EXPECT_EQ(table.size(), 4U);
  EXPECT_EQ(table.number_of(Queue::compute()), 0U);
  for (std::size_t number = 0; number < table.size(); ++number) EXPECT_EQ(table.number_of(table[number]), number);
  EXPECT_FALSE(table.contains(Queue::communication(data)));
  EXPECT_THROW(table.number_of(Queue::communication(data)), ProgramError);
  EXPECT_EQ(text_of(both, three_axes), "comm:data+context");
  EXPECT_EQ(text_of(one, three_axes), "comm:data.to_next");
}

struct OverSets : ::testing::Test {
  Program program;
  Builder b{program};
  TensorId x = no_tensor;
  void SetUp() override {
    program.mesh = three_axes;
    x = b.input("x", DType::f32, {12, 12});
  }
  Placements placed(Placement on_data, Placement on_context, Placement on_tensor = {}) {
    Placements placements;
    placements[0] = on_data;
    placements[1] = on_context;
    placements[2] = on_tensor;
    return placements;
  }
};

TEST_F(OverSets, OneCollectiveMovesOverAllAxes) {
  const TensorId part = b.reshard(x, data | context, Placement::shard(0));
  EXPECT_EQ(program.local(part), Shape({2, 12}));
  EXPECT_FALSE(program[part].placements.all_replicate());
  const TensorId whole = b.reshard(part, data | context, Placement::replicate());
  EXPECT_TRUE(program[whole].placements.all_replicate());
  ASSERT_EQ(program.instructions.size(), 2U);
  EXPECT_EQ(program.instructions[1].queue, Queue::communication(data | context));
  EXPECT_THAT(to_text(program, 1), HasSubstr("comm:data+context"));
  EXPECT_THAT(to_text(program, 1), HasSubstr("{axis=data+context dim=0}"));
  verify(program);
  const TensorId parts = b.reshard(x, data | tensor, Placement::flat());
  EXPECT_EQ(program.local(parts), Shape({36}));
}

TEST_F(OverSets, PartsThatNestMoveTogether) {
  program[x].placements = placed(Placement::shard(0), Placement::shard(0), Placement::partial());
  EXPECT_THAT(error_of([&] { b.reshard(x, data, Placement::replicate()); }), HasSubstr("move it over 'data+context'"));
  const TensorId inner_whole = b.reshard(x, context, Placement::replicate());
  EXPECT_EQ(program.local(inner_whole), Shape({6, 12})) << "the parts of the inner axis lie one behind the other";
  Placements nothing;
  const TensorId whole = b.reshard(x, nothing);
  EXPECT_TRUE(program[whole].placements.all_replicate());
  ASSERT_EQ(program.instructions.size(), 3U);
  EXPECT_EQ(program.instructions[1].attributes.axes("axis"), data | context);
  EXPECT_EQ(program.instructions[2].op->name(), "all_reduce");
}

TEST_F(OverSets, ASumIsScatteredBehindAnAxisThatIsDividedFirst) {
  program[x].placements = placed({}, Placement::partial());
  const Placements wanted = placed(Placement::shard(0), Placement::shard(0));
  const TensorId part = b.reshard(x, wanted);
  EXPECT_EQ(program[part].placements, wanted);
  EXPECT_EQ(program.local(part), Shape({2, 12}));
  EXPECT_EQ(program.instructions.back().op->name(), "reduce_scatter");
}

TEST_F(OverSets, WhatLiesDifferentlyIsRefused) {
  program[x].placements = placed(Placement::flat(), Placement::flat());
  EXPECT_THAT(error_of([&] { b.reshard(x, context, Placement::replicate()); }), HasSubstr("move it over 'data+context'"));
  EXPECT_THAT(error_of([&] { b.reshard(x, data | tensor, Placement::replicate()); }), HasSubstr("does not lie alike"));
  EXPECT_THAT(error_of([&] { b.reshard(x, tensor, Placement::flat()); }), HasSubstr("divides the same parts"));
  EXPECT_EQ(program[b.reshard(x, data | context, Placement::replicate())].placements, Placements());
}

TEST_F(OverSets, TheVerifierKnowsTheAxesOfAMesh) {
  b.reshard(x, data | context, Placement::shard(0));
  const TensorId part = program.instructions[0].outputs[0];
  b.reshard(part, data | context, Placement::replicate());
  verify(program);
  Instruction& gather = program.instructions[1];
  gather.queue = Queue::communication(data);
  EXPECT_THAT(error_of([&] { verify(program); }), HasSubstr("runs on the queue of its axes"));
  gather.queue = Queue::communication(data | 5);
  EXPECT_THAT(error_of([&] { verify(program); }), HasSubstr("its queue is of data+axis 5, the mesh has 3 axes"));
  gather.queue = Queue::communication(AxisSet());
  EXPECT_THAT(error_of([&] { verify(program); }), HasSubstr("its queue is of none"));
}

/// Ranks meet in groups over both axes: who leaves such a collective out is found.
TEST_F(OverSets, RanksMustMeetInTheGroupsOfASet) {
  program[x].placements = placed(Placement::partial(), Placement::partial());
  b.reshard(x, data | context, Placement::replicate());
  const CollectiveStream stream = collective_stream(program);
  EXPECT_EQ(decode_stream(encode(stream)), stream);
  std::vector<const CollectiveStream*> streams(12, &stream);
  verify_streams(three_axes, streams);

  Program silent = program;
  silent.instructions.clear();
  const CollectiveStream nothing = collective_stream(silent);
  streams[3] = &nothing;
  // Rank 3 is in the group of the odd ranks.
  const std::string error = error_of([&] { verify_streams(three_axes, streams); });
  EXPECT_THAT(error, HasSubstr("rank 1 at"));
  EXPECT_THAT(error, HasSubstr("rank 11 at"));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("rank 2 at")));
}

}  // namespace
}  // namespace consist
