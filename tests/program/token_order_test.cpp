// The zigzag order of sequences.
#include "consist/token_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace consist {
namespace {

std::vector<std::int64_t> positions(std::int64_t length, std::int64_t zigzag) {
  std::vector<std::int64_t> all;
  for (std::int64_t index = 0; index < length; ++index) all.push_back(position_of(index, length, zigzag));
  return all;
}

TEST(TokenOrder, PairsChunksFromBothEnds) {
  EXPECT_THAT(positions(4, 0), ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(positions(4, 1), ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(positions(8, 2), ::testing::ElementsAre(0, 1, 6, 7, 2, 3, 4, 5));
  EXPECT_THAT(positions(6, 3), ::testing::ElementsAre(0, 5, 1, 4, 2, 3));
}

TEST(TokenOrder, HasAnInverse) {
  for (const std::int64_t zigzag : {0, 1, 2, 3, 8}) {
    const std::int64_t length = zigzag == 0 ? 7 : 2 * zigzag * 5;
    for (std::int64_t index = 0; index < length; ++index) EXPECT_EQ(index_of(position_of(index, length, zigzag), length, zigzag), index);
  }
}

// Keys that each rank's queries see under causal attention.
TEST(TokenOrder, GivesEqualWork) {
  constexpr std::int64_t ranks = 4, length = 48;
  const std::vector<std::int64_t> order = positions(length, ranks);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < length / ranks; ++i) seen += order[static_cast<std::size_t>(rank * length / ranks + i)] + 1;
    EXPECT_EQ(seen, length * (length + 1) / 2 / ranks);
  }
}

}  // namespace
}  // namespace consist
