// consist bench collectives over host memory: every collective, correct results, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/child_process.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

test::ChildResult bench(std::vector<std::string> options) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist", "bench", "collectives"};
  words.insert(words.end(), options.begin(), options.end());
  return test::run_child(words);
}

// Times and bandwidths are printed with two digits after the point: each may be off by half of the last one.
constexpr double kRounded = 0.0051;

struct Row {
  long long bytes, count;
  std::string type, operation;
  int root;
  double time, algbw, busbw;
  long long wrong;
};

std::vector<Row> rows_of(const std::string& output) {
  std::vector<Row> rows;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    Row row{};
    if (words >> row.bytes >> row.count >> row.type >> row.operation >> row.root >> row.time >> row.algbw >> row.busbw >>
        row.wrong)
      rows.push_back(row);
  }
  return rows;
}

TEST(BenchCollectives, TimesEveryCollectiveAndChecksItsResult) {
  const auto result = bench(
      {"--device", "cpu", "--ranks", "3", "--min-bytes", "3000", "--max-bytes", "300000", "--factor", "10", "--seconds", "0.01"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("# path: tcp "));
  const std::vector<Row> rows = rows_of(result.output);
  ASSERT_EQ(rows.size(), 15U) << result.output;
  for (const Row& row : rows) {
    EXPECT_EQ(row.wrong, 0);
    EXPECT_GT(row.time, 0);
    const double bandwidth = static_cast<double>(row.bytes) / row.time / 1e3;
    EXPECT_NEAR(row.algbw, bandwidth, kRounded + bandwidth * kRounded / row.time);
  }
  // all_reduce, then all_gather of 3000 bytes: 750 elements in all, 250 of each member; each link carries 4/3 and 2/3 of them.
  EXPECT_EQ(rows[0].count, 750);
  EXPECT_NEAR(rows[2].busbw, rows[2].algbw * 4 / 3, 3 * kRounded);
  EXPECT_EQ(rows[3].count, 250);
  EXPECT_NEAR(rows[5].busbw, rows[5].algbw * 2 / 3, 3 * kRounded);
  EXPECT_THAT(result.output, HasSubstr("consist bench expect --collective reduce_scatter --bandwidth "));
}

#ifdef CONSIST_WITH_LIBFABRIC
TEST(BenchCollectives, EfaWithoutTheHardwareStandsBesideSocket) {
  const auto result = bench({"--device", "cpu", "--transport", "efa", "--efa.provider", "tcp", "--min-bytes", "1000000",
                             "--max-bytes", "1000000", "--seconds", "0.01"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("# path: libfabric "));
  EXPECT_THAT(result.output, HasSubstr("# wrong elements: 0, OK"));
  EXPECT_EQ(rows_of(result.output).size(), 5U) << result.output;
}
#endif

TEST(BenchCollectives, SizesThatDoNotDivideAreRoundedDown) {
  const auto result = bench({"--device", "cpu", "--ranks", "3", "--dtype", "bf16", "--min-bytes", "1", "--max-bytes", "1003",
                             "--factor", "1003", "--seconds", "0.001", "--collectives", "reduce_scatter,all_gather"});
  EXPECT_EQ(result.status, 0) << result.output;
  const std::vector<Row> rows = rows_of(result.output);
  ASSERT_EQ(rows.size(), 4U) << result.output;
  EXPECT_EQ(rows[0].bytes, 6);  // one element of each member at least
  EXPECT_EQ(rows[1].bytes, 1002);
}

TEST(BenchCollectives, RefusesWhatItCannotDo) {
  for (const auto& [options, reason] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--transport", "pigeon"}, "pigeon"},
           {{"--collectives", "all_reduce,scan"},
            "'scan'; there are: all_reduce all_gather reduce_scatter broadcast send_receive"},
           {{"--min-bytes", "2Mi", "--max-bytes", "1Mi"}, "less than --min-bytes"},
           {{"--dtype", "i32"}, "one of f32, bf16"},
           {{"--factor", "1"}, "--factor is '1'; it must be at least 2"},
           {{"--ddp.bucket-size", "1M"}, "neither the transport nor the device"}}) {
    const auto result = bench(options);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(reason));
  }
  EXPECT_THAT(bench({"--device", "cpu", "--transport", "nvlink", "--ranks", "1"}).output,
              HasSubstr("NVLink connects GPUs, and a 'cpu' device is none"));
}

}  // namespace
}  // namespace consist
