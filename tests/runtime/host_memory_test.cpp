// Memory that a host's ranks pin together must fit before any of them pins it.
#include "core/connect/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "consist/host.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t gib = std::int64_t{1} << 30;

/// The error text of each rank when rank r wants to pin wanted[r].
std::vector<std::string> answers(const std::vector<std::int64_t>& wanted, std::int64_t limit) {
  const auto addresses = testing::make_addresses(static_cast<int>(wanted.size()));
  std::vector<std::string> texts;
  for (const std::exception_ptr& error : testing::run_ranks(addresses, [&](JoinedJob& job) {
         check_host_memory(job, wanted[static_cast<std::size_t>(job.rank())], limit);
         job.leave(job.timeout());
       })) {
    texts.push_back(testing::text_of(error));
  }
  return texts;
}

TEST(HostMemory, IsWhatAllRanksOfAHostPinTogether) {
  EXPECT_THAT(answers({2 * gib, gib, 0}, 3 * gib), Each(IsEmpty()));
  const std::vector<std::string> refused = answers({2 * gib, gib, 1}, 3 * gib);
  EXPECT_THAT(refused[0],
              AllOf(HasSubstr("pins 3.0 GiB"), HasSubstr("3 ranks"), HasSubstr("3.0 GiB may be pinned by --host-memory-limit")));
  for (const int rank : {1, 2}) EXPECT_THAT(refused[static_cast<std::size_t>(rank)], HasSubstr("rank 0"));
}

TEST(HostMemory, IsWhatTheHostHasUnlessALimitSaysMore) {
  const std::int64_t there = available_host_memory();
  ASSERT_GT(there, 0);
  ASSERT_LT(there, std::int64_t{1} << 50) << "this host says what it has";
  EXPECT_THAT(answers({4 * there}, 0)[0], HasSubstr("are available there"));
  EXPECT_THAT(answers({4 * there}, 5 * there)[0], IsEmpty());
}

}  // namespace
}  // namespace consist
