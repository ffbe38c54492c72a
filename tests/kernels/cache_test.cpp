// Kernels of a cache of keys and values: rows of tables and caches from a position on, and attention of queries at a position
// beside all keys, against fp64 and against attention to whole sequences.
#include <gmock/gmock.h>

#include <limits>
#include <numeric>

#include "consist/error.h"
#include "core/reference/gradients.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/run_kernel.h"

namespace consist {
namespace {

using reference::random_value;
using reference::Visibility;
using reference::zeros;
using test::DeviceAndDtype;
using test::expect_close;
using test::Value;
using test::Values;

Value position_value(std::int64_t at) {
  Value position = zeros(DType::i32, {1});
  position.at(0) = static_cast<double>(at);
  return position;
}

class CacheKernel : public test::DeviceTest<DeviceAndDtype> {
 protected:
  void SetUp() override { open_or_skip(GetParam().device, test::options_of(GetParam().device)); }
  Value random(const Shape& shape, double scale = 1) { return random_value(engine_, GetParam().dtype, shape, scale); }
  double tolerance() const { return GetParam().dtype == DType::bf16 ? 6e-3 : 8e-6; }

  std::mt19937 engine_{31};
};

TEST_P(CacheKernel, RowsOfATableFromAPosition) {
  const std::int64_t length = 11, width = 6;
  const Value table = random_value(engine_, DType::f32, {length, width});
  for (const std::int64_t rows : {1, 4}) {
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{3}, length - rows}) {
      const Values found = test::run_kernel(*device_, "rows_at", {table, position_value(at)}, {{"rows", rows}});
      for (std::int64_t i = 0; i < rows * width; ++i)
        ASSERT_EQ(found[0]->at(i), table.at(at * width + i)) << rows << " at " << at;
    }
  }
}

TEST_P(CacheKernel, RowsAreWrittenAndTheOthersKept) {
  const Value cache = random({2, 13, 10});
  for (const std::int64_t rows : {1, 5}) {
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{6}, 13 - rows}) {
      const Value written = random({2, rows, 10});
      const Values found = test::run_kernel(*device_, "write_rows", {cache, written, position_value(at)}, {});
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t row = 0; row < 13; ++row) {
          for (std::int64_t c = 0; c < 10; ++c) {
            const bool is_new = row >= at && row < at + rows;
            const double expected = is_new ? written.at((b * rows + row - at) * 10 + c) : cache.at((b * 13 + row) * 10 + c);
            ASSERT_EQ(found[0]->at((b * 13 + row) * 10 + c), expected)
                << "row " << row << " of " << b << ", " << rows << " at " << at;
          }
        }
      }
    }
  }
}

struct CacheCase {
  std::int64_t batch, room, heads, kv_heads, dim, queries, at, window = 0;
  AttentionScores scores = {};
  std::int64_t value_dim = 0;  ///< 0: dim
};

TEST_P(CacheKernel, AttentionOfQueriesAtAPosition) {
  // One query and stretches of several, at both ends and across the borders of tiles; groups of 1, 2, 3 and 7; windows.
  for (const CacheCase& c :
       {CacheCase{1, 20, 2, 1, 4, 1, 0}, CacheCase{1, 20, 2, 2, 4, 1, 19}, CacheCase{2, 130, 6, 2, 16, 1, 64},
        CacheCase{1, 130, 7, 1, 12, 3, 62}, CacheCase{2, 200, 4, 2, 64, 64, 64}, CacheCase{1, 300, 3, 1, 128, 70, 100},
        CacheCase{2, 130, 4, 2, 16, 1, 100, 7}, CacheCase{1, 200, 2, 1, 32, 64, 100, 50}, CacheCase{1, 130, 2, 2, 8, 1, 3, 64},
        CacheCase{1, 40, 2, 1, 16, 1, 30, 0, {.scale = 0.4}}, CacheCase{2, 90, 2, 2, 12, 5, 70, 9, {.scale = 0.3, .cap = 1.5}},
        // Values of a size of their own, smaller and larger.
        CacheCase{2, 70, 4, 2, 48, 3, 50, 0, {}, 20}, CacheCase{1, 70, 2, 1, 6, 1, 69, 0, {}, 40}}) {
    SCOPED_TRACE(::testing::Message() << c.queries << " of " << c.heads << " heads of " << c.dim << " at " << c.at << ", window "
                                      << c.window);
    const Value q = random({c.batch, c.queries, c.heads * c.dim}, 2), k = random({c.batch, c.room, c.kv_heads * c.dim}),
                v = random({c.batch, c.room, c.kv_heads * (c.value_dim > 0 ? c.value_dim : c.dim)});
    Visibility visible{.window = c.window};
    for (std::int64_t i = 0; i < c.queries; ++i) visible.queries.push_back(c.at + i);
    visible.keys.resize(static_cast<std::size_t>(c.room));
    std::iota(visible.keys.begin(), visible.keys.end(), 0);
    const Values expected = reference::attention({q, k, v}, c.dim, visible, c.scores);
    Attributes attributes{{"head_dim", c.dim}};
    if (c.window > 0) attributes.set("window", c.window);
    if (c.value_dim > 0) attributes.set("value_dim", c.value_dim);
    test::set_scores(attributes, c.scores);
    const Values found = test::run_kernel(*device_, "attention", {q, k, v, std::nullopt, position_value(c.at)}, attributes);
    expect_close(found[0], *expected[0], tolerance(), "o");
    expect_close(found[1], *expected[1], 2e-6, "lse");
  }
}

// Contents behind the queries may be anything: a cache holds there what it held before.
TEST_P(CacheKernel, KeysBehindTheQueriesAreNotRead) {
  const std::int64_t room = 90, at = 40, channels = 16;
  Value q = random({1, 1, channels}), k = random({1, room, channels}), v = random(k.shape);
  const Values clean =
      test::run_kernel(*device_, "attention", {q, k, v, std::nullopt, position_value(at)}, {{"head_dim", std::int64_t{8}}});
  for (std::int64_t i = (at + 1) * channels; i < room * channels; ++i)
    k.at(i) = v.at(i) = std::numeric_limits<double>::quiet_NaN();
  const Values found =
      test::run_kernel(*device_, "attention", {q, k, v, std::nullopt, position_value(at)}, {{"head_dim", std::int64_t{8}}});
  EXPECT_EQ(found[0]->data, clean[0]->data);
}

INSTANTIATE_TEST_SUITE_P(Devices, CacheKernel, ::testing::ValuesIn(test::devices_and_dtypes()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace consist
