// A job of 4,096 members in one process, each with its connection and its thread, eight a host.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;

double processor_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

/// Raises the limit of this process's open files as far as it may, and returns it.
rlim_t raise_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

/// Processors' seconds until all of `members` have joined a job. They meet once and leave.
double join(int members) {
  const auto addresses = testing::make_addresses_on_hosts(members, 8, 240s);
  const auto start = std::chrono::steady_clock::now();
  const double before = processor_seconds();
  std::atomic<int> joined{0};
  std::atomic<double> wall{0}, own{0}, met{0};
  const auto errors = testing::run_ranks(addresses, [&](JoinedJob& job) {
    const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    if (++joined == members) {
      wall = since();
      own = processor_seconds() - before;
    }
    EXPECT_EQ(job.reduce("all", {1}, ReduceOp::sum, 240s).front(), members);
    met = since();
    job.leave(240s);
  });
  for (const auto& error : errors) EXPECT_EQ(testing::text_of(error), "");
  std::printf("%d members joined in %.1f s, %.1f s of processors; met %.1f s later\n", members, wall.load(), own.load(),
              met.load() - wall.load());
  return own;
}

TEST(ManyMembers, JoinWithoutACostOfTheSquareOfTheirNumber) {
  constexpr int members = 4096;
  // Both ends of each connection, an eventfd a member, a listener a leader, and connections that are about to end.
  constexpr rlim_t files = 4 * members;
  if (const rlim_t may = raise_files(); may < files)
    GTEST_SKIP() << "the members need " << files << " files in one process, and it may open " << may << " (ulimit -Hn)";
  // 10 s of two cores, by the processors' time, and twice that, since work beside it slows these, too; on a slower machine more, by
  // what a job of few takes there. Sixteen times the members cost about 30 times as much, and 256 times and more where each has to
  // do with all others.
  const double few = join(members / 16), all = join(members);
  EXPECT_LT(all, std::max(40.0, 100 * few));
}

}  // namespace
}  // namespace consist
