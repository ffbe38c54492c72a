// Collectives of a job whose ranks are threads, on hosts as they come: what each rank gets, and who is named when one does not
// come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "consist/error.h"
#include "core/job/job_messages.h"
#include "core/job/progress.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::blamed;
using testing::expect_all_fine;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::make_addresses_on_hosts;
using testing::run_ranks;
using testing::spread;
using testing::text_of;
using Clock = std::chrono::steady_clock;

int below(std::mt19937& random, int limit) {
  return static_cast<int>(random() % static_cast<unsigned>(limit));
}

std::vector<JobAddress> on_random_hosts(int size, std::mt19937& random) {
  std::vector<JobAddress> addresses = make_addresses(size);
  const int hosts = 1 + below(random, size);
  std::vector<int> host_of;
  for (int rank = 0; rank < size; ++rank) host_of.push_back(below(random, hosts));
  spread(addresses, host_of);
  return addresses;
}

/// The bytes that a rank gives in a round; of a length that every rank can tell. They repeat, with a period that no part's length
/// is a multiple of: to draw each of them takes a job of many ranks most of its time.
std::string bytes_of(unsigned round, int rank, std::size_t most) {
  constexpr std::size_t period = 1021;
  std::mt19937 random(1000 * round + static_cast<unsigned>(rank));
  const std::size_t size = random() % (most + 1);
  std::string bytes(std::min(size, period), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  while (bytes.size() < size) bytes.append(bytes, 0, std::min(size - bytes.size(), bytes.size()));
  return bytes;
}

/// One round of what all ranks of a job do, known to each of them.
struct Round {
  unsigned number = 0;
  int what = 0;
  std::size_t most = 0;      // bytes that a rank gives
  std::vector<int> members;  // none: all
};

std::vector<Round> random_rounds(int size, unsigned seed) {
  constexpr unsigned rounds = 24;
  std::mt19937 random(seed);
  std::vector<Round> all;
  for (unsigned number = 0; number < rounds; ++number) {
    Round round{number, below(random, 4), static_cast<std::size_t>(below(random, 200)), {}};
    if (below(random, 8) == 0) round.most = 3 * part_bytes;
    if (below(random, 2) == 0) {
      round.members.resize(static_cast<std::size_t>(size));
      std::iota(round.members.begin(), round.members.end(), 0);
      std::shuffle(round.members.begin(), round.members.end(), random);
      round.members.resize(static_cast<std::size_t>(1 + below(random, size)));
    }
    all.push_back(std::move(round));
  }
  return all;
}

void play(Job& job, const Round& round) {
  std::vector<int> members = round.members;
  if (members.empty()) {
    members.resize(static_cast<std::size_t>(job.size()));
    std::iota(members.begin(), members.end(), 0);
  }
  if (std::find(members.begin(), members.end(), job.rank()) == members.end()) return;
  const bool first = members.front() == job.rank();
  std::vector<std::string> all;
  for (const int rank : members) all.push_back(bytes_of(round.number, rank, round.most));
  const std::string own = bytes_of(round.number, job.rank(), round.most);
  const std::string name = "round " + std::to_string(round.number % 3);  // names come again
  switch (round.what) {
    case 0:
      EXPECT_TRUE(job.gather(name, own, 20s, round.members) == (first ? all : std::vector<std::string>())) << round.number;
      break;
    case 1:
      EXPECT_TRUE(job.broadcast(name, own, 20s, round.members) == all.front()) << round.number;
      break;
    case 2:
      EXPECT_TRUE(job.all_gather(name, own, 20s, round.members) == all) << round.number;
      break;
    default: {
      const double rank = job.rank();
      const double sum = std::accumulate(members.begin(), members.end(), 0.0);
      const double most = *std::max_element(members.begin(), members.end());
      EXPECT_EQ(job.reduce(name, {rank, 1}, ReduceOp::sum, 20s, round.members),
                (std::vector<double>{sum, static_cast<double>(members.size())}));
      EXPECT_EQ(job.reduce(name, {rank, -rank}, ReduceOp::max, 20s, round.members),
                (std::vector<double>{most, -static_cast<double>(*std::min_element(members.begin(), members.end()))}));
      EXPECT_EQ(job.reduce(name, {-rank}, ReduceOp::min, 20s, round.members), (std::vector<double>{-most}));
    }
  }
}

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, GiveWhatTheMembersGave) {
  const int size = GetParam();
  std::mt19937 random(static_cast<unsigned>(size));
  const std::vector<Round> rounds = random_rounds(size, random());
  expect_all_fine(run_ranks(on_random_hosts(size, random), [&](JoinedJob& job) {
    for (const Round& round : rounds) play(job, round);
    job.leave(20s);
  }));
}

TEST_P(Collectives, ARankThatDiesAmongThemIsNamed) {
  const int size = GetParam();
  if (size == 1) return;
  std::mt19937 random(100 + static_cast<unsigned>(size));
  const std::vector<Round> rounds = random_rounds(size, random());
  const int victim = below(random, size);
  const auto last = static_cast<std::size_t>(below(random, static_cast<int>(rounds.size())));
  const auto errors = run_ranks(on_random_hosts(size, random), [&](JoinedJob& job) {
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (job.rank() == victim && i == last) throw DataError("a bad sector");
      play(job, rounds[i]);
    }
    job.all_gather("what the victim never gives", "", 20s);
  });
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(blamed(errors[static_cast<std::size_t>(rank)]), victim);
    // Who had waited for the timeout would say so.
    EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("failed: a bad sector"));
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, Collectives, ::testing::Range(1, 18));

TEST(Collective, LongTextsPassLeaders) {
  std::string longest(40 << 20, '\0');
  for (std::size_t i = 0; i < longest.size(); ++i) longest[i] = static_cast<char>(i * i >> 7);
  expect_all_fine(run_ranks(make_addresses_on_hosts(4, 2), [&](JoinedJob& job) {
    const std::vector<std::string> all = job.gather("long", job.rank() == 3 ? longest : "short", 20s);
    EXPECT_TRUE(job.rank() != 0 || (all[1] == "short" && all[3] == longest));
    EXPECT_TRUE(job.broadcast("long", job.rank() == 0 ? longest : "", 20s) == longest);
    job.leave(20s);
  }));
}

TEST(Collective, NaNIsTheLargestAndTheSmallest) {
  const double nan = std::nan("");
  expect_all_fine(run_ranks(make_addresses(3), [&](JoinedJob& job) {
    const double own = job.rank() == 1 ? nan : job.rank();
    for (const ReduceOp how : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
      EXPECT_TRUE(std::isnan(job.reduce("nan", {own}, how, 20s).front()));
    job.leave(20s);
  }));
}

TEST(Collective, ReduceNamesWhoGivesAnotherCount) {
  const auto errors = run_ranks(make_addresses(3), [](JoinedJob& job) {
    job.reduce("counts", std::vector<double>(job.rank() == 2 ? 3 : 2), ReduceOp::sum, 20s);
  });
  for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr("rank 2 gives 3 numbers to 'counts', rank 0 gives 2"));
}

/// Ranks 1 and 3 of five do not come; 3 is behind.
TEST(Collective, ATimeoutNamesWhoIsMissing) {
  const auto errors = run_ranks(make_addresses_on_hosts(5, 2), [](JoinedJob& job) {
    job.set_progress([rank = job.rank()] { return text_of(Progress{5, rank == 3 ? 80 : 90}, "somewhere"); });
    job.barrier("start", 5s);
    const auto start = Clock::now();
    if (job.rank() % 2 == 0) {
      EXPECT_THROW(job.reduce("norms", {1}, ReduceOp::sum, 1s), PeerError);
      EXPECT_GE(Clock::now() - start, 1s);
      EXPECT_LT(Clock::now() - start, 4s);
    }
    while (!job.failed()) std::this_thread::sleep_for(10ms);
    job.check();
  });
  for (const auto& error : errors) {
    EXPECT_EQ(blamed(error), 3);
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("rank 3 on host"), HasSubstr("step 5, instruction 80: somewhere"),
                                      HasSubstr("not come to 'norms' within 1 s")));
  }
  EXPECT_THAT(text_of(errors[0]), ::testing::AnyOf(HasSubstr("ranks 1, 3 have not come"), HasSubstr("rank 0 has not come")));
}

TEST(Collective, OnlyTheFirstMissesWhoDoesNotCome) {
  const auto errors = run_ranks(make_addresses_on_hosts(5, 2), [](JoinedJob& job) {
    job.barrier("start", 5s);
    if (job.rank() % 2 == 0) job.gather("norms", "1", 1s);
    while (!job.failed()) std::this_thread::sleep_for(10ms);
    job.check();
  });
  for (const auto& error : errors) {
    EXPECT_EQ(blamed(error), 1);
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("rank 1 on host"), HasSubstr("is what the others wait for"),
                                      HasSubstr("ranks 1, 3 have not come to 'norms' within 1 s")));
  }
}

/// Rank 0 waits for rank 1, which waits for rank 2 in a group, which waits for rank 3 at a barrier.
TEST(Collective, TheRankAtTheEndOfARowOfWaitsIsNamed) {
  const auto errors = run_ranks(make_addresses_on_hosts(4, 2), [](JoinedJob& job) {
    job.barrier("start", 5s);
    const std::vector<int> group{1, 2};
    if (job.rank() == 0) job.gather("all", "", 1s);
    if (job.rank() == 1) job.gather("group", "", 20s, group);
    if (job.rank() == 2) {
      job.gather("all", "", 20s);
      job.barrier("elsewhere", 20s);
    }
    if (job.rank() == 3) job.gather("all", "", 20s);
    while (!job.failed()) std::this_thread::sleep_for(10ms);
    job.check();
  });
  // All but 2 have not come to the barrier either; of those, 3 alone waits for nobody.
  for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr("rank 1 has not come to 'all' within 1 s"));
  for (const auto& error : errors) EXPECT_EQ(blamed(error), 3);
}

TEST(Collective, HostRanksAreThoseOfThisHost) {
  auto addresses = make_addresses(5);
  spread(addresses, {0, 1, 0, 2, 1});
  expect_all_fine(run_ranks(addresses, [](JoinedJob& job) {
    const std::vector<std::vector<int>> expected{{0, 2}, {1, 4}, {0, 2}, {3}, {1, 4}};
    EXPECT_EQ(std::vector<int>(job.host_ranks().begin(), job.host_ranks().end()), expected[static_cast<std::size_t>(job.rank())]);
    const double sum = job.reduce("of the host", {1.0 * job.rank()}, ReduceOp::sum, 20s, job.host_ranks()).front();
    EXPECT_EQ(sum, job.rank() == 3 ? 3 : job.rank() % 2 == 0 && job.rank() != 4 ? 2 : 5);
    job.leave(20s);
  }));
}

TEST(Collective, RefusesANameOfAbsurdLengthAndRanksThatAreNone) {
  expect_all_fine(run_ranks(make_addresses(2), [](JoinedJob& job) {
    EXPECT_THROW(job.gather(std::string(max_key_bytes + 1, 'x'), "", 1s), Error);
    EXPECT_THROW(job.broadcast(std::string(max_key_bytes + 1, 'x'), "", 1s), Error);
    EXPECT_THROW(job.gather("others", "", 1s, std::vector<int>{1 - job.rank()}), Error);
    EXPECT_THROW(job.gather("too many", "", 1s, std::vector<int>{0, 1, 2}), Error);
    job.leave(20s);
  }));
}

}  // namespace
}  // namespace consist
