// The job with its ranks as threads: rendezvous, the store, and barriers.
#include "core/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "consist/error.h"
#include "core/job/job_messages.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::blamed;
using testing::expect_about;
using testing::expect_all_fine;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::run_ranks;
using testing::text_of;
using Clock = std::chrono::steady_clock;

class JobOfSize : public ::testing::TestWithParam<int> {};

TEST_P(JobOfSize, SharesValuesAndMeetsAtBarriers) {
  const int size = GetParam();
  std::atomic<int> arrived{0};
  const auto errors = run_ranks(make_addresses(size), [&](JoinedJob& job) {
    EXPECT_EQ(job.size(), size);
    EXPECT_EQ(job.local_size(), size);
    EXPECT_FALSE(job.host().empty());
    job.put("value/" + std::to_string(job.rank()), std::string(1000, static_cast<char>('a' + job.rank())));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(job.get("value/" + std::to_string(rank), 5s), std::string(1000, static_cast<char>('a' + rank)));
    }
    ++arrived;
    job.barrier("all", 5s);
    EXPECT_EQ(arrived, size);
    job.leave(5s);
  });
  expect_all_fine(errors);
}
INSTANTIATE_TEST_SUITE_P(Sizes, JobOfSize, ::testing::Values(1, 2, 3, 5, 8));

TEST(Job, KeepsBinaryValues) {
  const std::string value("\0\xff\n\r" + std::string(100'000, '\x7f'));
  expect_all_fine(run_ranks(make_addresses(2), [&](JoinedJob& job) {
    if (job.rank() == 1) job.put("binary", value);
    EXPECT_EQ(job.get("binary", 5s), value);
    job.leave(5s);
  }));
}

TEST(Job, GetSaysWhichKeyDidNotCome) {
  expect_all_fine(run_ranks(make_addresses(2), [&](JoinedJob& job) {
    const auto start = Clock::now();
    try {
      job.get("never", 1s);
      ADD_FAILURE() << "get returned";
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), HasSubstr("never"));
    }
    expect_about(1s, Clock::now() - start);
    EXPECT_FALSE(job.failed());
    job.leave(5s);
  }));
}

TEST(Job, WaitsForLateJoiners) {
  auto addresses = make_addresses(3);
  std::vector<std::exception_ptr> errors(3);
  std::vector<std::thread> threads;
  for (int rank : {2, 1, 0}) {
    threads.emplace_back([&, rank] {
      // Rank 0 last: the others must keep knocking.
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 700 : rank * 100));
      try {
        join_job(addresses[static_cast<std::size_t>(rank)])->leave(5s);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  expect_all_fine(errors);
}

TEST(Job, WaitsForRanksToJoinLongerThanForThoseThatHave) {
  auto addresses = make_addresses(3, 400ms);
  for (JobAddress& address : addresses) {
    address.join_timeout = 20s;
    address.join_progress = 200ms;
  }
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  std::vector<std::exception_ptr> errors(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 2 ? 1500 : 0));
      try {
        join_job(addresses[static_cast<std::size_t>(rank)])->leave(5s);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string said = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  expect_all_fine(errors);
  EXPECT_THAT(said, HasSubstr("rank 2 of 3 have not joined yet; rank 0 waits for them another"));
}

TEST(Job, NamesTheRanksThatDidNotJoin) {
  auto addresses = make_addresses(4, 1s);
  addresses.erase(addresses.begin() + 2, addresses.end());
  const auto start = Clock::now();
  const auto errors = run_ranks(addresses, [](JoinedJob&) { ADD_FAILURE() << "the job is not complete"; });
  for (const auto& error : errors) {
    EXPECT_EQ(blamed(error), 2);
    EXPECT_THAT(text_of(error), HasSubstr("ranks 2, 3 of 4 did not join within 1 s"));
  }
  expect_about(1s, Clock::now() - start);
}

TEST(Job, SaysWhereRankZeroWasSought) {
  auto addresses = make_addresses(2, 1s);
  close(addresses[0].listen_fd);
  const auto start = Clock::now();
  try {
    join_job(addresses[1]);
    ADD_FAILURE() << "joined nothing";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 0);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("127.0.0.1 port " + std::to_string(addresses[1].master_port)), HasSubstr("refused")));
  }
  // It gives up when the next attempt would come too late.
  EXPECT_GE(Clock::now() - start, 400ms);
  EXPECT_LT(Clock::now() - start, 1500ms);
}

TEST(Job, RefusesASecondProcessWithTheSameRank) {
  auto addresses = make_addresses(2);
  std::vector<std::exception_ptr> errors(3);
  std::atomic<bool> joined{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      try {
        if (i == 2) {
          while (!joined) std::this_thread::sleep_for(10ms);
        }
        const auto job = join_job(addresses[static_cast<std::size_t>(std::min(i, 1))]);
        joined = true;
        job->barrier("a while later", 10s);
        std::this_thread::sleep_for(500ms);
        job->leave(5s);
      } catch (...) {
        errors[static_cast<std::size_t>(i)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(text_of(errors[0]), "");
  EXPECT_EQ(text_of(errors[1]), "");
  EXPECT_THAT(text_of(errors[2]), HasSubstr("two processes were started with the same rank"));
}

TEST(Job, RefusesARankOfAnotherSize) {
  auto addresses = make_addresses(2, 2s);
  addresses[1].size = 3;
  addresses[1].local_size = 3;
  const auto errors = run_ranks(addresses, [](JoinedJob&) { ADD_FAILURE() << "the job is not complete"; });
  EXPECT_THAT(text_of(errors[1]), HasSubstr("started for a job of 3 ranks, but rank 0 for one of 2"));
}

TEST(Job, AValueThatIsReplacedTakesNoRoomInTheStore) {
  const std::string text(max_value_bytes, 'x');
  const std::size_t rounds = max_store_bytes / text.size() + 10;
  expect_all_fine(run_ranks(make_addresses(2), [&](JoinedJob& job) {
    for (std::size_t round = 0; round < rounds; ++round) job.put("replaced by " + std::to_string(job.rank()), text);
    job.barrier("end", 20s);
    job.leave(20s);
  }));
}

TEST(Job, TheLongestTimeoutIsALongOne) {
  const auto errors = run_ranks(make_addresses(2), [](JoinedJob& job) {
    if (job.rank() == 0) {
      EXPECT_EQ(job.get("late", std::chrono::milliseconds::max()), "here");
    } else {
      std::this_thread::sleep_for(100ms);
      job.put("late", "here");
    }
    job.barrier("end", std::chrono::milliseconds::max());
    job.leave(std::chrono::milliseconds::max());
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "");
}

TEST(Job, ValidatesItsAddress) {
  JobAddress address;
  address.size = 2;
  address.local_size = 2;
  address.master_port = 1;
  address.token = "short";
  EXPECT_THROW(join_job(address), UsageError);
  address.token = testing::test_token;
  address.rank = 2;
  EXPECT_THROW(join_job(address), UsageError);
  address.rank = 1;
  address.master_port = 0;
  EXPECT_THROW(join_job(address), UsageError);
}

}  // namespace
}  // namespace consist
