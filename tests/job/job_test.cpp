// The job with its ranks as threads: rendezvous, the store, barriers, and how failures spread.
#include "core/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "consist/error.h"
#include "core/job/job_messages.h"
#include "core/job/progress.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::run_ranks;
using testing::text_of;
using Clock = std::chrono::steady_clock;

/// The rank that a PeerError blames; -1 for anything else.
int blamed(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const PeerError& e) {
    return e.rank();
  } catch (...) {
  }
  return -1;
}

void expect_all_fine(const std::vector<std::exception_ptr>& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(text_of(errors[i]), "") << "rank " << i;
}

/// A wait that was to end after `timeout` has not ended before, and not so late that the time could have been doubled.
void expect_about(Clock::duration timeout, Clock::duration taken) {
  EXPECT_GE(taken, timeout);
  EXPECT_LT(taken, timeout * 3 / 2);
}

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
  } catch (const SystemError& error) {
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

TEST(Job, TellsAllWhyARankFailed) {
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

TEST(Job, TellsAllWhyRankZeroFailed) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 0) throw DataError("no space left");
    job.barrier("never", 20s);
  });
  for (int rank : {1, 2}) EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("failed: no space left"));
}

TEST(Job, ADestroyedJobThatWasNotLeftIsAFailure) {
  const auto errors = run_ranks(make_addresses(2), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 0) job.barrier("never", 20s);
  });
  EXPECT_EQ(blamed(errors[0]), 1);
  EXPECT_THAT(text_of(errors[0]), HasSubstr("ended the job early"));
}

TEST(Job, NamesTheRankMissingAtABarrierByItsPosition) {
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

TEST(Job, BlamesTheRankFurthestBehindAndNotTheSuspectedNeighbour) {
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

TEST(Job, AmongEqualsTheSuspectIsBlamed) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() == 1) job.blame(2, "connection reset");
    while (!job.failed()) std::this_thread::sleep_for(5ms);
    job.check();
  });
  for (const auto& error : errors) EXPECT_EQ(blamed(error), 2);
}

TEST(Job, AFailureDuringAnInquiryExplainsIt) {
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

TEST(Job, LeavingWaitsForAllAndNamesTheMissing) {
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

TEST(Job, CollectGivesRankZeroAllTextsAndTheOthersItsOwn) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    const std::string own = "text of " + std::to_string(job.rank());
    const std::vector<std::string> texts = job.collect("texts", own, 5s);
    EXPECT_EQ(texts, job.rank() == 0 ? std::vector<std::string>({"text of 0", "text of 1", "text of 2"})
                                     : std::vector<std::string>({"text of 0"}));
    job.leave(5s);
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "");
}

// Checkpoints are announced so, for as long as a run lasts.
TEST(Job, WhatIsCollectedOrForgottenTakesNoRoomInTheStore) {
  const std::string text(max_collected_bytes, 'x');
  const std::size_t rounds = max_store_bytes / text.size() / 2 + 10;
  const auto errors = run_ranks(make_addresses(2), [&](JoinedJob& job) {
    for (std::size_t round = 0; round < rounds; ++round) {
      job.collect("round " + std::to_string(round), text, 20s);
      const std::string key = std::to_string(job.rank()) + "." + std::to_string(round);
      job.put(key, text);
      job.forget(key);
      job.put("replaced by " + std::to_string(job.rank()), text);
    }
    job.leave(20s);
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "");
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

TEST(Progress, TextsAreReadBack) {
  for (const Progress& progress : {Progress{0, -1}, Progress{12, 0}, Progress{100'000, 345}}) {
    EXPECT_EQ(parse_progress(text_of(progress)), progress);
    EXPECT_EQ(parse_progress(text_of(progress, "all_reduce x, instruction 5")), progress);
  }
  for (const Activity activity :
       {Activity::reading, Activity::recording, Activity::evaluating, Activity::saving, Activity::exporting}) {
    const Progress progress{.step = 7, .activity = activity, .round = activity == Activity::evaluating ? 3 : 0};
    EXPECT_EQ(parse_progress(text_of(progress)), progress) << text_of(progress);
  }
  EXPECT_EQ(text_of(Progress{.step = 5, .activity = Activity::reading}), "reading data of step 5");
  EXPECT_EQ(text_of(Progress{.step = 4, .activity = Activity::saving}), "writing the checkpoint of step 4");
  EXPECT_EQ(parse_progress("loading weights"), std::nullopt);
  EXPECT_EQ(parse_progress("step x"), std::nullopt);
  EXPECT_LT((Progress{1, 500}), (Progress{2, 0}));
}

// A rank that hangs between two steps is behind those that have begun the next one, and before those that wait in the last.
TEST(Progress, WhatTheHostDoesBetweenStepsIsOrdered) {
  const Progress in_order[] = {{.step = 4, .instruction = 345},
                               {.step = 4, .activity = Activity::recording},
                               {.step = 4, .instruction = 3, .activity = Activity::evaluating, .round = 0},
                               {.step = 4, .instruction = 1, .activity = Activity::evaluating, .round = 1},
                               {.step = 4, .activity = Activity::saving},
                               {.step = 5, .activity = Activity::reading},
                               {.step = 5},
                               {.step = 5, .instruction = 0}};
  for (std::size_t i = 1; i < std::size(in_order); ++i) EXPECT_LT(in_order[i - 1], in_order[i]) << i;
}

}  // namespace
}  // namespace consist
