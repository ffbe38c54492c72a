// Requirements on every transport, tested through nothing but the public interface. Ranks are threads of this process.
//
// Runs against every transport that is found (see PluginHost). CONSIST_CONFORMANCE_TRANSPORTS names others or gives options:
// "socket,efa:provider=tcp". CONSIST_CONFORMANCE_MEMORY is "cpu" (host memory, the default) or "cuda": one transport at a time
// then, and as many ranks as there are GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "consist/error.h"
#include "core/plugin/host.h"
#include "tests/conformance/candidates.h"
#include "tests/conformance/transport/allocation_count.h"
#include "tests/conformance/transport/collective_checks.h"
#include "tests/conformance/transport/memory.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using testing::Block;
using testing::Candidate;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::Memory;
using testing::run_ranks;
using testing::text_of;

std::string memory_kind() {
  const char* const given = std::getenv("CONSIST_CONFORMANCE_MEMORY");
  return given == nullptr ? "cpu" : given;
}

/// A rank with memory and a communicator of all ranks.
struct Rank {
  JoinedJob& job;
  Communicator& group;
  Memory& memory;
};

class TransportConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override {
    std::string reason = make()->unavailable(kind_);
    if (!reason.empty()) GTEST_SKIP() << GetParam().name << " does not serve '" << kind_ << "' here: " << reason;
    if (testing::ranks_with_memory(kind_, 2, reason) < 2) GTEST_SKIP() << "two ranks need two GPUs: " << reason;
  }

  bool on_host() const { return kind_ == "cpu"; }
  /// Addresses of a job of `wanted` ranks, or as many as there is memory for.
  std::vector<JobAddress> ranks(int wanted, std::chrono::milliseconds timeout = 20s) const {
    std::string reason;
    return make_addresses(testing::ranks_with_memory(kind_, wanted, reason), timeout);
  }

  std::shared_ptr<Transport> make() { return host_.make<Transport>("transport", GetParam().name, GetParam().options); }

  /// Runs `body` on every rank of a job with a transport of its own, connected to all ranks.
  std::vector<std::exception_ptr> run(const std::vector<JobAddress>& addresses, const std::function<void(Rank&)>& body) {
    std::vector<std::shared_ptr<Transport>> transports;
    for (std::size_t i = 0; i < addresses.size(); ++i) transports.push_back(make());
    return run_ranks(addresses, [&](JoinedJob& job) {
      const auto memory = testing::make_memory(kind_, job.rank());
      GroupRequest group{"data.0", {}, job.rank(), kind_};
      for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
      const auto communicator = transports[static_cast<std::size_t>(job.rank())]->connect(job, group);
      Rank rank{job, *communicator, *memory};
      body(rank);
    });
  }

  static void expect_all_fine(const std::vector<std::exception_ptr>& errors) {
    for (std::size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(text_of(errors[i]), "") << "rank " << i;
  }

 private:
  const std::string kind_ = memory_kind();
  PluginHost host_{{}};
};

TEST_P(TransportConformance, CollectivesAreCorrect) {
  for (const int size : {1, 2, 3, 4, 6}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    const std::vector<JobAddress> addresses = ranks(size);
    if (addresses.size() < static_cast<std::size_t>(size)) break;  // no more GPUs
    expect_all_fine(run(addresses, [&](Rank& rank) {
      EXPECT_EQ(rank.group.rank(), rank.job.rank());
      EXPECT_EQ(rank.group.size(), size);
      for (const DType dtype : {DType::f32, DType::bf16})
        testing::check_communicator(rank.group, rank.memory, {0, 1, 2, 5, 127, 1000, 65'537}, dtype);
      rank.job.leave(30s);
    }));
  }
}

TEST_P(TransportConformance, LargeDataIsCorrect) {
  expect_all_fine(run(ranks(2), [&](Rank& rank) {
    testing::check_all_reduce(rank.group, rank.memory, 3'000'001, DType::f32);
    testing::check_reduce_scatter(rank.group, rank.memory, 1'000'001, DType::bf16, true);
    testing::check_all_gather(rank.group, rank.memory, 1'000'001, DType::f32, true);
    testing::check_all_to_all(rank.group, rank.memory, 1'000'001, DType::bf16, 0, 5);
    testing::check_broadcast(rank.group, rank.memory, 3'000'001, DType::bf16);
    testing::check_send_receive(rank.group, rank.memory, 3'000'001, DType::f32);
    rank.job.leave(30s);
  }));
}

TEST_P(TransportConformance, TellsItsPathAndCountsItsBytes) {
  expect_all_fine(run(ranks(2), [&](Rank& rank) {
    EXPECT_FALSE(rank.group.verified_path().empty());
    if (rank.job.rank() == 0) std::cout << "path: " << rank.group.verified_path() << std::endl;
    const Block data(rank.memory, 40'000);
    const std::int64_t before = rank.group.bytes_sent();
    rank.group.all_reduce(data.data(), 10'000, DType::f32, rank.memory.queue());
    rank.memory.finish(rank.group);
    // 0 is how a transport says that it does not know.
    if (on_host() || rank.group.bytes_sent() != 0) {
      EXPECT_GE(rank.group.bytes_sent() - before, 40'000);
    }
    rank.job.leave(30s);
  }));
}

TEST_P(TransportConformance, AllocatesOnlyTheFirstTime) {
  expect_all_fine(run(ranks(3), [&](Rank& rank) {
    const auto members = static_cast<std::size_t>(rank.group.size());
    const Block data(rank.memory, 300'000 * sizeof(float));
    const Block parts(rank.memory, members * 300'000 * sizeof(float));
    const Block other(rank.memory, members * 300'000 * sizeof(float));
    const auto all = [&] {
      rank.group.all_reduce(data.data(), 300'000, DType::f32, rank.memory.queue());
      rank.group.reduce_scatter(parts.data(), data.data(), 300'000, DType::f32, rank.memory.queue());
      rank.group.all_gather(data.data(), parts.data(), 300'000, DType::f32, rank.memory.queue());
      rank.group.all_to_all(parts.data(), 300'000, other.data(), 300'000, 300'000, DType::f32, rank.memory.queue());
      rank.group.broadcast(data.data(), 300'000, DType::f32, 1, rank.memory.queue());
    };
    all();
    const std::int64_t before = testing::allocations();
    for (int i = 0; i < 5; ++i) all();
    EXPECT_EQ(testing::allocations(), before);
    rank.memory.finish(rank.group);
    rank.job.leave(30s);
  }));
}

TEST_P(TransportConformance, RefusesTypesThatCannotBeSummed) {
  expect_all_fine(run(ranks(2), [&](Rank& rank) {
    const Block data(rank.memory, 100 * sizeof(std::int32_t));
    EXPECT_THROW(rank.group.all_reduce(data.data(), 100, DType::i32, rank.memory.queue()), Error);
    rank.job.leave(30s);
  }));
}

TEST_P(TransportConformance, MovesBytesOfAnyType) {
  expect_all_fine(run(ranks(3), [&](Rank& rank) {
    const int size = rank.group.size();
    std::vector<std::uint8_t> data(1001, static_cast<std::uint8_t>(rank.group.rank()));
    const Block block(rank.memory, data.size());
    rank.memory.upload(block.data(), data.data(), data.size());
    rank.group.broadcast(block.data(), 1001, DType::u8, size - 1, rank.memory.queue());
    rank.memory.finish(rank.group);
    rank.memory.download(data.data(), block.data(), data.size());
    EXPECT_EQ(data, std::vector<std::uint8_t>(1001, static_cast<std::uint8_t>(size - 1)));

    const auto own = static_cast<std::uint8_t>(10 + rank.group.rank());
    const Block one(rank.memory, 1), gathered(rank.memory, static_cast<std::size_t>(size));
    rank.memory.upload(one.data(), &own, 1);
    rank.group.all_gather(one.data(), gathered.data(), 1, DType::u8, rank.memory.queue());
    rank.memory.finish(rank.group);
    std::vector<std::uint8_t> all(static_cast<std::size_t>(size)), expected;
    rank.memory.download(all.data(), gathered.data(), all.size());
    for (int member = 0; member < size; ++member) expected.push_back(static_cast<std::uint8_t>(10 + member));
    EXPECT_EQ(all, expected);

    // Parts of one byte, three bytes apart where they come from.
    std::vector<std::uint8_t> given(static_cast<std::size_t>(3 * size)), got(static_cast<std::size_t>(size));
    for (int member = 0; member < size; ++member)
      given[static_cast<std::size_t>(3 * member)] = static_cast<std::uint8_t>(16 * rank.group.rank() + member);
    const Block parts(rank.memory, given.size());
    rank.memory.upload(parts.data(), given.data(), given.size());
    rank.group.all_to_all(parts.data(), 3, gathered.data(), 1, 1, DType::u8, rank.memory.queue());
    rank.memory.finish(rank.group);
    rank.memory.download(got.data(), gathered.data(), got.size());
    for (int member = 0; member < size; ++member)
      EXPECT_EQ(got[static_cast<std::size_t>(member)], 16 * member + rank.group.rank()) << "from " << member;
    rank.job.leave(30s);
  }));
}

TEST_P(TransportConformance, AFailingMemberEndsAllWaits) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(ranks(3), [&](Rank& rank) {
    const Block data(rank.memory, 50'000 * sizeof(float));
    for (int i = 0; i < 1000; ++i) {
      if (rank.job.rank() == 1 && i == 10) throw DataError("broken input");
      rank.group.all_reduce(data.data(), 50'000, DType::f32, rank.memory.queue());
      rank.memory.finish(rank.group);
    }
  });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (rank == 1) continue;
    EXPECT_THAT(text_of(errors[rank]), HasSubstr("rank 1 on host"));
    EXPECT_THAT(text_of(errors[rank]), HasSubstr("broken input"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST_P(TransportConformance, AStuckMemberIsNamedAfterTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  // Making a communicator on a GPU takes longer than the wait for a member shall take here.
  const auto timeout = on_host() ? 1s : 5s;
  const auto errors = run(ranks(3, timeout), [&](Rank& rank) {
    const int stuck = rank.job.size() - 1;
    rank.job.set_progress([=, number = rank.job.rank()] {
      return number == stuck ? "step 1, instruction 3: linear" : "step 1, instruction 4: all_reduce";
    });
    const Block data(rank.memory, 50'000 * sizeof(float));
    rank.group.all_reduce(data.data(), 50'000, DType::f32, rank.memory.queue());
    rank.memory.finish(rank.group);
    if (rank.job.rank() == stuck) {
      while (!rank.job.failed()) std::this_thread::sleep_for(10ms);
      rank.job.check();
    }
    rank.group.all_reduce(data.data(), 50'000, DType::f32, rank.memory.queue());
    rank.memory.finish(rank.group);
  });
  for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr("step 1, instruction 3: linear"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, timeout + 9s);
}

INSTANTIATE_TEST_SUITE_P(Found, TransportConformance,
                         ::testing::ValuesIn(testing::candidates("transport", "CONSIST_CONFORMANCE_TRANSPORTS")),
                         [](const auto& info) { return info.param.name; });

TEST(TransportConformanceSuite, FoundSomethingToTest) {
  EXPECT_FALSE(testing::candidates("transport", "CONSIST_CONFORMANCE_TRANSPORTS").empty());
}

}  // namespace
}  // namespace consist
