// Slices of a tensor on ranks: together every element, flat parts included, and no element twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/mesh.h"
#include "consist/op.h"
#include "core/program/local_ranges.h"

namespace consist {
namespace {

Placements placed(Placement data, Placement tensor) {
  Placements placements;
  placements[0] = data;
  placements[1] = tensor;
  return placements;
}

TEST(Placement, FlatPartsAreEqualAndTheLastIsShorter) {
  const Mesh mesh({{"data", 4}});
  Placements placements;
  placements[0] = Placement::flat();
  EXPECT_EQ(local_shape({3, 5}, placements, mesh), Shape({4}));
  const std::vector<std::int64_t> counts = {4, 4, 4, 3}, begins = {0, 4, 8, 12};
  for (int rank = 0; rank < 4; ++rank) {
    const LocalPart part = local_part({3, 5}, placements, mesh, rank);
    EXPECT_EQ(part.shape, Shape({counts[static_cast<std::size_t>(rank)]}));
    EXPECT_EQ(part.origin[0], begins[static_cast<std::size_t>(rank)]);
  }
  EXPECT_EQ(local_part({5}, placements, mesh, 3).shape, Shape({0}));  // 2 + 2 + 1 + 0
  EXPECT_EQ(placements.text(mesh), "{data:F}");
}

TEST(Placement, FlatAlongTwoAxesIsCutOnceOverBoth) {
  const Mesh mesh({{"data", 2}, {"context", 3}});
  const Placements both = placed(Placement::flat(), Placement::flat());
  EXPECT_EQ(both.flat_axes(), AxisSet(0) | 1);
  EXPECT_EQ(local_shape({4, 4}, both, mesh), Shape({3}));  // ceil(16 / 6), where twice a cut would give ceil(8 / 3) as well
  EXPECT_EQ(local_shape({5}, both, mesh), Shape({1}));
  for (int rank = 0; rank < 6; ++rank) {
    const LocalPart part = local_part({4, 4}, both, mesh, rank);
    EXPECT_EQ(part.origin[0], std::min(16, 3 * rank));
    EXPECT_EQ(part.shape[0], rank < 5 ? 3 : 1);
  }
}

TEST(Placement, RangesOfAllRanksAreTheTensorOnce) {
  const Mesh mesh({{"data", 3}, {"tensor", 2}});
  const Shape shape{6, 4, 5};
  for (const Placements& placements :
       {placed(Placement::flat(), Placement::shard(0)), placed(Placement::flat(), Placement::shard(1)),
        placed(Placement::shard(0), Placement::shard(0)), placed(Placement::flat(), Placement::flat()),
        placed(Placement::shard(0), Placement::flat())}) {
    std::map<std::int64_t, int> seen;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      std::int64_t local = 0;
      for (const LocalRange& range : local_ranges(shape, placements, mesh, rank)) {
        EXPECT_EQ(range.local, local) << "ranges follow each other without gaps";
        local += range.count;
        for (std::int64_t i = 0; i < range.count; ++i) ++seen[range.logical + i];
      }
      EXPECT_EQ(local, local_part(shape, placements, mesh, rank).shape.elements());
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), shape.elements()) << placements.text(mesh);
    for (const auto& [index, times] : seen) EXPECT_EQ(times, 1) << "element " << index << " of " << placements.text(mesh);
  }
}

TEST(Placement, FlatPartsAreMadeLastAndUndoneFirst) {
  Program p;
  p.mesh = Mesh({{"data", 2}, {"tensor", 2}});
  Builder b(p);
  const Placements parts = placed(Placement::flat(), Placement::shard(0));
  const TensorId whole = b.input("whole", DType::f32, {4, 4}), part = b.input("part", DType::f32, {4, 4}, parts);
  const TensorId scalars = b.input("scalars", DType::f32, {4});
  b.emit("muon", {scalars, part, whole, no_tensor}, {{"scale", 1.0}, {"weight_decay", 0.0}});
  b.emit("orthogonalize", {part}, {{"iterations", std::int64_t{1}}, {"products", std::string("f32")}});
  std::vector<std::string> moves;
  for (const Instruction& i : p.instructions) {
    if (i.attributes.has("axis"))
      moves.push_back(std::string(i.op->name()) + " " + p.mesh.text(i.attributes.axes("axis")));
  }
  EXPECT_EQ(moves, (std::vector<std::string>{"slice tensor", "slice data", "all_gather data", "all_gather tensor"}));
  EXPECT_THROW(b.reshard(part, 1, Placement::replicate()), ProgramError);
}

TEST(Placement, RangesWithinAWindowAreItsElements) {
  const Mesh mesh({{"tensor", 2}});
  Placements placements;
  placements[0] = Placement::shard(1);
  const std::vector<LocalRange> ranges = local_ranges({7, 6}, placements, mesh, 1);  // 7 rows of 3
  ASSERT_EQ(ranges.size(), 7U);
  for (std::int64_t first = 0; first <= 21; ++first) {
    for (std::int64_t count = 0; first + count <= 21; ++count) {
      std::int64_t local = 0;
      for (const LocalRange& range : ranges_within(ranges, first, count)) {
        EXPECT_EQ(range.local, local);
        ASSERT_GT(range.count, 0);
        for (std::int64_t i = 0; i < range.count; ++i, ++local)
          EXPECT_EQ(range.logical + i, (first + local) / 3 * 6 + 3 + (first + local) % 3);
      }
      EXPECT_EQ(local, count) << "from " << first;
    }
  }
}

TEST(Placement, OriginIsWhereThePartBegins) {
  const Mesh mesh({{"data", 2}, {"tensor", 4}});
  const LocalPart part = local_part({16, 6}, placed(Placement::shard(1), Placement::shard(0)), mesh, 6);  // data 1, tensor 2
  EXPECT_EQ(part.shape, Shape({4, 3}));
  EXPECT_EQ(part.origin[0], 8);
  EXPECT_EQ(part.origin[1], 3);
}

}  // namespace
}  // namespace consist
