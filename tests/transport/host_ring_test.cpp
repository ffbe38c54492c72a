// Rings on host memory over every transport that has them, ranks as threads: results, bytes, groups side by side, failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "consist/error.h"
#include "tests/conformance/transport/collective_checks.h"
#include "tests/transport/host_links.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::expect_all_fine;
using ::testing::HasSubstr;
using testing::HostTransport;
using testing::make_addresses;
using testing::run_ranks;
using testing::text_of;
using testing::whole_job;
using Clock = std::chrono::steady_clock;

std::unique_ptr<RingCommunicator> connect(const HostTransport& transport, Job& job,
                                          std::size_t chunk_bytes = default_chunk_bytes) {
  return std::make_unique<RingCommunicator>(transport.connect(job, whole_job(job)), chunk_bytes);
}

class HostRingSizes : public ::testing::TestWithParam<std::tuple<HostTransport, int, DType>> {};

TEST_P(HostRingSizes, AreCorrectForAllCounts) {
  const auto& [transport, size, dtype] = GetParam();
  expect_all_fine(run_ranks(make_addresses(size), [&, &transport = transport, dtype = dtype](JoinedJob& job) {
    {
      const auto group = connect(transport, job);
      testing::check_communicator(*group, *testing::make_memory("cpu", 0), {0, 1, 2, 3, 5, 64, 1001}, dtype);
      job.barrier("large", 20s);
      testing::check_all_reduce(*group, *testing::make_memory("cpu", 0), 700'001, dtype);
      testing::check_reduce_scatter(*group, *testing::make_memory("cpu", 0), 300'001, dtype, false);
      testing::check_all_gather(*group, *testing::make_memory("cpu", 0), 300'001, dtype, false);
      testing::check_broadcast(*group, *testing::make_memory("cpu", 0), 300'001, dtype);
      testing::check_send_receive(*group, *testing::make_memory("cpu", 0), 300'001, dtype);
      testing::check_shift(*group, *testing::make_memory("cpu", 0), 5'000'001, dtype);  // more than sockets hold
    }
    job.leave(20s);
  }));
}

// Tiny chunks: many pieces, all windows and scratch slots in use.
TEST_P(HostRingSizes, AreCorrectInManyPieces) {
  const auto& [transport, size, dtype] = GetParam();
  expect_all_fine(run_ranks(make_addresses(size), [&, &transport = transport, dtype = dtype](JoinedJob& job) {
    {
      const auto group = connect(transport, job, 256);
      testing::check_communicator(*group, *testing::make_memory("cpu", 0), {1, 63, 64, 65, 127, 129, 255, 511, 513, 1000, 4097},
                                  dtype);
    }
    job.leave(20s);
  }));
}

INSTANTIATE_TEST_SUITE_P(SizesAndTypes, HostRingSizes,
                         ::testing::Combine(::testing::ValuesIn(testing::host_transports()), ::testing::Values(1, 2, 3, 4, 5),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_x" + std::to_string(std::get<1>(info.param)) + "_" +
                                  std::string(name_of(std::get<2>(info.param)));
                         });

class HostRing : public ::testing::TestWithParam<HostTransport> {
 protected:
  const HostTransport& transport = GetParam();
};

TEST_P(HostRing, MovesTheLeastPossibleBytes) {
  constexpr std::int64_t count = 600'000;
  expect_all_fine(run_ranks(make_addresses(3), [&](JoinedJob& job) {
    {
      const auto group = connect(transport, job);
      std::vector<float> data(count, 1.0F);
      std::int64_t before = group->bytes_sent();
      group->all_reduce(data.data(), count, DType::f32, nullptr);
      constexpr double rounding = 100;  // of what does not divide into chunks
      EXPECT_NEAR(static_cast<double>(group->bytes_sent() - before), 2 * 2 * count * 4 / 3.0, rounding);
      std::vector<float> part(count / 3);
      before = group->bytes_sent();
      group->reduce_scatter(data.data(), part.data(), count / 3, DType::f32, nullptr);
      EXPECT_NEAR(static_cast<double>(group->bytes_sent() - before), 2 * count * 4 / 3.0, rounding);
      std::vector<float> exchanged(count);
      before = group->bytes_sent();
      group->all_to_all(data.data(), count / 3, exchanged.data(), count / 3, count / 3, DType::f32, nullptr);
      EXPECT_EQ(group->bytes_sent() - before, 2 * count * 4 / 3);
    }
    job.leave(20s);
  }));
}

TEST_P(HostRing, GroupsOfSomeRanksWorkSideBySide) {
  expect_all_fine(run_ranks(make_addresses(4), [&](JoinedJob& job) {
    {
      // Rows {0,1} {2,3} and columns {2,0} {3,1}: the order in a group need not be that of the ranks.
      const int row = job.rank() / 2;
      const int column = job.rank() % 2;
      RingCommunicator rows(transport.connect(job, {"row." + std::to_string(row), {2 * row, 2 * row + 1}, column, "cpu"}));
      RingCommunicator columns(
          transport.connect(job, {"column." + std::to_string(column), {2 + column, column}, 1 - row, "cpu"}));
      EXPECT_EQ(columns.rank(), 1 - row);
      std::thread other([&] {
        testing::check_communicator(columns, *testing::make_memory("cpu", 0), {1, 1000, 50'000}, DType::f32);
      });
      testing::check_communicator(rows, *testing::make_memory("cpu", 0), {1, 1000, 50'000}, DType::bf16);
      other.join();
    }
    job.leave(20s);
  }));
}

TEST_P(HostRing, AStuckMemberIsNamedByAllAfterTheTimeout) {
  constexpr auto timeout = 2s;
  Clock::time_point start;
  const auto errors = run_ranks(make_addresses(3, timeout), [&](JoinedJob& job) {
    const auto group = connect(transport, job);
    job.set_progress(
        [rank = job.rank()] { return rank == 1 ? "step 4, instruction 9: linear" : "step 4, instruction 10: all_reduce"; });
    job.barrier("start", 5s);
    std::vector<float> data(100'000);
    if (job.rank() == 1) {
      start = Clock::now();
      while (!job.failed()) std::this_thread::sleep_for(10ms);
      job.check();
    }
    group->all_reduce(data.data(), 100'000, DType::f32, nullptr);
  });
  for (const auto& error : errors) {
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("rank 1 on host"), HasSubstr("is stuck, last at step 4, instruction 9: linear")));
  }
  // And the second that the job asks around; a timeout that is doubled on the way shows.
  EXPECT_GE(Clock::now() - start, timeout);
  EXPECT_LT(Clock::now() - start, timeout * 3 / 2 + 1500ms);
}

TEST_P(HostRing, AMemberThatFailsEndsTheCollectivesOfAll) {
  const auto start = Clock::now();
  const auto errors = run_ranks(make_addresses(4), [&](JoinedJob& job) {
    const auto group = connect(transport, job);
    std::vector<float> data(100'000);
    for (int i = 0; i < 1000; ++i) {
      if (job.rank() == 2 && i == 20) throw DataError("out of vocabulary");
      group->all_reduce(data.data(), 100'000, DType::f32, nullptr);
    }
  });
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]),
                AllOf(HasSubstr("rank 2 on host"), HasSubstr("failed: out of vocabulary")));
  }
  EXPECT_LT(Clock::now() - start, 8s);
}

// Wrong numbers would be worse than an end: whoever reads the message of another call, or of another size, says so and names
// both.
TEST_P(HostRing, MembersInDifferentCallsAreNamed) {
  using Calls = std::function<void(RingCommunicator & group, float* data)>;
  struct Case {
    const char* name;
    Calls first, second;  // of the two members
    const char* said[2];
  };
  const Calls reduce = [](RingCommunicator& group, float* data) { group.all_reduce(data, 1000, DType::f32, nullptr); };
  const Case cases[] = {
      {"another kind",
       reduce,
       [](RingCommunicator& group, float* data) { group.all_gather(data, data + 1000, 500, DType::f32, nullptr); },
       {"rank 0 in all_reduce of 1000 f32", "rank 1 in all_gather of 500 f32"}},
      {"another size",
       reduce,
       [](RingCommunicator& group, float* data) { group.all_reduce(data, 998, DType::f32, nullptr); },
       {"rank 0 in all_reduce of 1000 f32", "rank 1 in all_reduce of 998 f32"}},
      {"as many bytes",
       reduce,
       [](RingCommunicator& group, float* data) { group.all_reduce(data, 2000, DType::bf16, nullptr); },
       {"rank 0 in all_reduce of 1000 f32", "rank 1 in all_reduce of 2000 bf16"}},
      {"one more",
       [&](RingCommunicator& group, float* data) {
         reduce(group, data);
         reduce(group, data);
       },
       [&](RingCommunicator& group, float* data) {
         group.all_reduce(data, 0, DType::f32, nullptr);  // says nothing
         reduce(group, data);
       },
       {"number 0", "number 1"}},
      {"messages",
       [](RingCommunicator& group, float* data) { group.send(data, 1000, DType::f32, 1, nullptr); },
       [](RingCommunicator& group, float* data) { group.receive(data, 1001, DType::f32, 0, nullptr); },
       {"rank 0 in message of 1000 f32", "rank 1 in message of 1001 f32"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto errors = run_ranks(make_addresses(2, 5s), [&](JoinedJob& job) {
      std::vector<float> data(4000, 1.0F);  // outlives the group, which receives into it
      const auto group = connect(transport, job);
      (job.rank() == 0 ? c.first : c.second)(*group, data.data());
      job.barrier("never", 5s);
      if (job.rank() == 1) throw DataError("nothing was noticed");
    });
    for (const auto& error : errors)
      EXPECT_THAT(text_of(error),
                  AllOf(HasSubstr("'data.0' are in different calls"), HasSubstr(c.said[0]), HasSubstr(c.said[1])));
  }
}

TEST_P(HostRing, NamesAMemberThatDoesNotComeToConnect) {
  const auto errors = run_ranks(make_addresses(3, 1s), [&](JoinedJob& job) {
    if (job.rank() == 1) {
      while (!job.failed()) std::this_thread::sleep_for(10ms);
      job.check();
    }
    connect(transport, job);
  });
  for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr("rank 1 on host"));
}

INSTANTIATE_TEST_SUITE_P(Transports, HostRing, ::testing::ValuesIn(testing::host_transports()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace consist
