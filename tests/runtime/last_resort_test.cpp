// A rank whose own thread cannot leave a failed job is ended by another thread, with the reason on record.
#include "core/connect/last_resort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "consist/error.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::run_ranks;

TEST(LastResort, ARankThatCannotLeaveAFailedJobIsEndedWithItsReasonOnRecord) {
  std::string recorded;
  run_ranks(make_addresses(2), [&](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 1) throw DataError("the disk is full");
    std::atomic<bool> ended{false};
    const LastResort watch(
        job, [&](const std::string& reason) { recorded = reason; }, 50ms, [&] { ended = true; });
    const auto give_up = std::chrono::steady_clock::now() + 10s;
    while (!ended && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(5ms);  // inside a driver
    EXPECT_TRUE(ended);
  });
  EXPECT_THAT(recorded, HasSubstr("rank 1 on host"));
  EXPECT_THAT(recorded, HasSubstr("failed: the disk is full"));
}

TEST(LastResort, ARankThatLeavesInTimeIsLeftAlone) {
  run_ranks(make_addresses(2), [&](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 1) throw DataError("the disk is full");
    const LastResort watch(
        job, [](const std::string&) { ADD_FAILURE(); }, 5s, [] { ADD_FAILURE(); });
    while (!job.failed()) std::this_thread::sleep_for(1ms);
  });
}

}  // namespace
}  // namespace consist
