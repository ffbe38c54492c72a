// The socket transport with its ranks as threads: collectives over real TCP connections, failures, strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "consist/error.h"
#include "core/collectives/ring.h"
#include "core/network/handshake.h"
#include "plugins/transports/socket/connect.h"
#include "tests/conformance/transport/collective_checks.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::run_ranks;
using testing::text_of;
using Clock = std::chrono::steady_clock;

GroupRequest whole_job(const Job& job, const std::string& name = "data.0") {
  GroupRequest group{name, {}, job.rank(), "cpu"};
  for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
  return group;
}

std::unique_ptr<RingCommunicator> connect(Job& job, std::size_t chunk_bytes = RingCommunicator::default_chunk_bytes,
                                          const SocketOptions& options = {}) {
  return std::make_unique<RingCommunicator>(connect_members(job, whole_job(job), options), chunk_bytes);
}

void expect_all_fine(const std::vector<std::exception_ptr>& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(text_of(errors[i]), "") << "rank " << i;
}

class SocketCollectives : public ::testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(SocketCollectives, AreCorrectForAllCounts) {
  const auto [size, dtype] = GetParam();
  expect_all_fine(run_ranks(make_addresses(size), [&, dtype = dtype](JoinedJob& job) {
    {
      const auto group = connect(job);
      testing::check_communicator(*group, *testing::make_memory("cpu", 0), {0, 1, 2, 3, 5, 64, 1001}, dtype);
      job.barrier("large", 20s);
      testing::check_all_reduce(*group, *testing::make_memory("cpu", 0), 700'001, dtype);
      testing::check_reduce_scatter(*group, *testing::make_memory("cpu", 0), 300'001, dtype, false);
      testing::check_all_gather(*group, *testing::make_memory("cpu", 0), 300'001, dtype, false);
      testing::check_broadcast(*group, *testing::make_memory("cpu", 0), 300'001, dtype);
      testing::check_send_receive(*group, *testing::make_memory("cpu", 0), 300'001, dtype);
    }
    job.leave(20s);
  }));
}

// Tiny chunks: many pieces, all windows and scratch slots in use.
TEST_P(SocketCollectives, AreCorrectInManyPieces) {
  const auto [size, dtype] = GetParam();
  expect_all_fine(run_ranks(make_addresses(size), [&, dtype = dtype](JoinedJob& job) {
    {
      const auto group = connect(job, 256);
      testing::check_communicator(*group, *testing::make_memory("cpu", 0), {1, 63, 64, 65, 127, 129, 255, 511, 513, 1000, 4097}, dtype);
    }
    job.leave(20s);
  }));
}

INSTANTIATE_TEST_SUITE_P(SizesAndTypes, SocketCollectives,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5), ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& info) {
                           return "x" + std::to_string(std::get<0>(info.param)) + "_" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

TEST(Socket, MovesTheLeastPossibleBytes) {
  constexpr std::int64_t count = 600'000;
  expect_all_fine(run_ranks(make_addresses(3), [&](JoinedJob& job) {
    {
      const auto group = connect(job);
      std::vector<float> data(count, 1.0F);
      group->all_reduce(data.data(), count, DType::f32, nullptr);
      EXPECT_EQ(group->bytes_sent(), 2 * 2 * count * 4 / 3);
      std::vector<float> part(count / 3);
      const std::int64_t before = group->bytes_sent();
      group->reduce_scatter(data.data(), part.data(), count / 3, DType::f32, nullptr);
      EXPECT_EQ(group->bytes_sent() - before, 2 * count * 4 / 3);
    }
    job.leave(20s);
  }));
}

TEST(Socket, GroupsOfSomeRanksWorkSideBySide) {
  expect_all_fine(run_ranks(make_addresses(4), [](JoinedJob& job) {
    {
      // Rows {0,1} {2,3} and columns {2,0} {3,1}: the order in a group need not be that of the ranks.
      const int row = job.rank() / 2;
      const int column = job.rank() % 2;
      RingCommunicator rows(connect_members(job, {"row." + std::to_string(row), {2 * row, 2 * row + 1}, column, "cpu"}, {}));
      RingCommunicator columns(
          connect_members(job, {"column." + std::to_string(column), {2 + column, column}, 1 - row, "cpu"}, {}));
      EXPECT_EQ(columns.rank(), 1 - row);
      std::thread other([&] { testing::check_communicator(columns, *testing::make_memory("cpu", 0), {1, 1000, 50'000}, DType::f32); });
      testing::check_communicator(rows, *testing::make_memory("cpu", 0), {1, 1000, 50'000}, DType::bf16);
      other.join();
    }
    job.leave(20s);
  }));
}

TEST(Socket, SaysWhichPathWasTaken) {
  expect_all_fine(run_ranks(make_addresses(2), [](JoinedJob& job) {
    EXPECT_EQ(connect(job)->verified_path(), "tcp 127.0.0.1 on lo");
    job.leave(20s);
  }));
  expect_all_fine(
      run_ranks(make_addresses(1), [](JoinedJob& job) { EXPECT_EQ(connect(job)->verified_path(), "none (one member)"); }));
}

TEST(Socket, TakesTheInterfaceThatWasAskedFor) {
  std::string address;
  for (const auto& entry : network::interface_addresses()) {
    if (!entry.loopback && entry.address.find(':') == std::string::npos) address = entry.address;
  }
  if (address.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  expect_all_fine(run_ranks(make_addresses(2), [&](JoinedJob& job) {
    {
      const auto group = connect(job, RingCommunicator::default_chunk_bytes, {address, 1 << 20});
      // Both ends are on this machine, so the packets take the loopback interface all the same, and the report says so.
      EXPECT_EQ(group->verified_path(), "tcp " + address + " on lo");
      testing::check_all_reduce(*group, *testing::make_memory("cpu", 0), 1000, DType::f32);
    }
    job.leave(20s);
  }));
}

TEST(Socket, RefusesAnUnknownInterface) {
  const auto errors = run_ranks(make_addresses(2), [](JoinedJob& job) { connect(job, 4096, {"nosuch7", 0}); });
  int named = 0;
  for (const auto& error : errors) named += text_of(error).find("'nosuch7'") != std::string::npos ? 1 : 0;
  EXPECT_EQ(named, 2);
  EXPECT_THAT(text_of(errors[0]), HasSubstr("lo (127.0.0.1)"));
}

TEST(Socket, AStuckMemberIsNamedByAll) {
  const auto start = Clock::now();
  const auto errors = run_ranks(make_addresses(3, 1s), [](JoinedJob& job) {
    const auto group = connect(job);
    job.set_progress(
        [rank = job.rank()] { return rank == 1 ? "step 4, instruction 9: linear" : "step 4, instruction 10: all_reduce"; });
    job.barrier("start", 5s);
    std::vector<float> data(100'000);
    if (job.rank() == 1) {
      while (!job.failed()) std::this_thread::sleep_for(10ms);
      job.check();
    }
    group->all_reduce(data.data(), 100'000, DType::f32, nullptr);
  });
  for (const auto& error : errors) {
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("rank 1 on host"), HasSubstr("is stuck, last at step 4, instruction 9: linear")));
  }
  EXPECT_LT(Clock::now() - start, 8s);
}

TEST(Socket, AMemberThatFailsEndsTheCollectivesOfAll) {
  const auto start = Clock::now();
  const auto errors = run_ranks(make_addresses(4), [](JoinedJob& job) {
    const auto group = connect(job);
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

TEST(Socket, NamesAMemberThatDoesNotComeToConnect) {
  const auto errors = run_ranks(make_addresses(3, 1s), [](JoinedJob& job) {
    if (job.rank() == 1) {
      while (!job.failed()) std::this_thread::sleep_for(10ms);
      job.check();
    }
    connect(job);
  });
  for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr("rank 1 on host"));
}

}  // namespace
}  // namespace consist
