// Failures in a job whose ranks are threads: every rank learns which one failed, where it was, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "consist/error.h"
#include "core/job/progress.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::blamed;
using testing::expect_about;
using ::testing::HasSubstr;
using testing::make_addresses_on_hosts;
using testing::run_ranks;
using testing::text_of;
using Clock = std::chrono::steady_clock;

/// By ranks a host: all on rank 0's host, or some through leaders.
class JobFailure : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<JobAddress> make_addresses(int size) { return make_addresses_on_hosts(size, GetParam()); }
};

TEST_P(JobFailure, TellsAllWhyARankFailed) {
  const auto start = Clock::now();
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.set_progress([] { return text_of(Progress{7, 42}, "linear layer 3"); });
    job.barrier("start", 5s);
    if (job.rank() == 1) {
      job.set_progress(nullptr);  // as when the trainer is unwound; the last position is still told
      throw DataError("the token file is cut off");
    }
    job.barrier("never", 20s);
  });
  EXPECT_EQ(text_of(errors[1]), "the token file is cut off");
  for (int rank : {0, 2}) {
    EXPECT_EQ(blamed(errors[static_cast<std::size_t>(rank)]), 1);
    EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]),
                AllOf(HasSubstr("rank 1 on host"),
                      HasSubstr("failed: the token file is cut off, last at step 7, instruction 42: linear layer 3")));
  }
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST_P(JobFailure, TellsAllWhyRankZeroFailed) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 0) throw DataError("no space left");
    job.barrier("never", 20s);
  });
  for (int rank : {1, 2}) EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("failed: no space left"));
}

TEST_P(JobFailure, ADestroyedJobThatWasNotLeftIsAFailure) {
  const auto errors = run_ranks(make_addresses(2), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 0) job.barrier("never", 20s);
  });
  EXPECT_EQ(blamed(errors[0]), 1);
  EXPECT_THAT(text_of(errors[0]), HasSubstr("ended the job early"));
}

TEST_P(JobFailure, NamesTheRankMissingAtABarrierByItsPosition) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.set_progress([rank = job.rank()] { return text_of(Progress{5, 100 - 10 * rank}, "somewhere"); });
    job.barrier("start", 5s);
    std::this_thread::sleep_for(700ms);
    if (job.rank() == 0) {
      const auto start = Clock::now();
      EXPECT_THROW(job.barrier("end", 1s), PeerError);
      expect_about(1s, Clock::now() - start);
      job.check();
    } else {
      while (!job.failed()) std::this_thread::sleep_for(10ms);
      job.check();
    }
  });
  // Ranks 1 and 2 have not come; 2 is further behind.
  for (const auto& error : errors) {
    EXPECT_EQ(blamed(error), 2);
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("barrier 'end'"), HasSubstr("step 5, instruction 80: somewhere")));
  }
}

TEST_P(JobFailure, BlamesTheRankFurthestBehindAndNotTheSuspectedNeighbour) {
  const auto start = Clock::now();
  const auto errors = run_ranks(make_addresses(4), [](JoinedJob& job) {
    job.set_progress([rank = job.rank()] { return text_of(rank == 2 ? Progress{3, 17} : Progress{3, 18}, "linear"); });
    job.barrier("start", 5s);
    // Rank 0 waits for rank 3, which itself waits for the stuck rank 2.
    if (job.rank() == 0) job.blame(3, "no byte moved for 1 s");
    while (!job.failed()) std::this_thread::sleep_for(5ms);
    job.check();
  });
  for (const auto& error : errors) {
    EXPECT_EQ(blamed(error), 2);
    EXPECT_THAT(text_of(error),
                AllOf(HasSubstr("rank 2 on host"), HasSubstr("is stuck, last at step 3, instruction 17: linear")));
  }
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST_P(JobFailure, AmongEqualsTheSuspectIsBlamed) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 1) job.blame(2, "connection reset");
    while (!job.failed()) std::this_thread::sleep_for(5ms);
    job.check();
  });
  for (const auto& error : errors) EXPECT_EQ(blamed(error), 2);
}

TEST_P(JobFailure, AFailureDuringAnInquiryExplainsIt) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 1) job.blame(2, "connection closed");
    if (job.rank() == 2) {
      // Closed its connections first, and tells why a little later.
      std::this_thread::sleep_for(300ms);
      throw SystemError("disk full");
    }
    job.barrier("never", 20s);
  });
  for (int rank : {0, 1}) EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("rank 2 on host"));
  for (int rank : {0, 1}) EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("failed: disk full"));
}

TEST_P(JobFailure, LeavingWaitsForAllAndNamesTheMissing) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.barrier("start", 5s);
    const auto start = Clock::now();
    if (job.rank() != 1) {
      EXPECT_THROW(job.leave(1s), PeerError);
      expect_about(1s, Clock::now() - start);
    }
    while (!job.failed()) std::this_thread::sleep_for(5ms);
    job.check();
  });
  for (const auto& error : errors) {
    EXPECT_EQ(blamed(error), 1);
    EXPECT_THAT(text_of(error), HasSubstr("still busy"));
  }
}

INSTANTIATE_TEST_SUITE_P(RanksPerHost, JobFailure, ::testing::Values(4, 2, 1));

}  // namespace
}  // namespace consist
