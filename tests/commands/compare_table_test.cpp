// The table of a comparison, of outcomes that no run is needed for.
#include "launch/compare_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace consist::launch {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(CompareTable, SaysWhatIsSentWhereTheTransportDoesNotCount) {
  const std::vector<CompareRow> rows = expand_rows({"--model", "m", "--transport", "socket,nvlink"});
  CompareOutcome counted{.status = "finished", .tokens_per_second = 100, .step_seconds = 1, .bytes_sent_per_step = 3 << 20};
  CompareOutcome planned = counted;
  planned.sent_is_counted = false;
  planned.bytes_sent_per_step = 2 << 20;
  const std::string both = comparison_text(rows, {counted, planned});
  EXPECT_THAT(both, ContainsRegex("socket.* 3\\.0 MiB "));
  EXPECT_THAT(both, ContainsRegex("nvlink.* ~2\\.0 MiB "));
  EXPECT_THAT(both, HasSubstr("\n~: the transport does not count"));
  EXPECT_THAT(comparison_text(rows, {counted, counted}), Not(HasSubstr("~")));
  planned.bytes_sent_per_step = std::numeric_limits<double>::quiet_NaN();  // an archive of before
  planned.sent_is_counted = true;
  EXPECT_THAT(comparison_text(rows, {counted, planned}), ContainsRegex("nvlink.* 0 B +- +0\\.0000"));
  planned.sent_is_counted = false;
  planned.status = "failed";
  EXPECT_THAT(comparison_text(rows, {counted, planned}), Not(HasSubstr("~")));
}

}  // namespace
}  // namespace consist::launch
