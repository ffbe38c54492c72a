// What every transport of host memory must do, through nothing but the public interface. Ranks are threads of this process.
//
// Runs against every transport that is found (see PluginHost). CONSIST_CONFORMANCE_TRANSPORTS names others or gives options:
// "socket,efa:provider=tcp".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "consist/error.h"
#include "core/plugin/host.h"
#include "tests/conformance/transport/allocation_count.h"
#include "tests/conformance/transport/collective_checks.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::run_ranks;
using testing::text_of;

struct Candidate {
  std::string name;
  std::map<std::string, std::string> options;
};

void PrintTo(const Candidate& candidate, std::ostream* stream) {
  *stream << candidate.name;
}

std::vector<Candidate> candidates() {
  std::vector<Candidate> result;
  const char* const given = std::getenv("CONSIST_CONFORMANCE_TRANSPORTS");
  if (given == nullptr) {
    for (const std::string& name : PluginHost({}).names("transport")) result.push_back({name, {}});
    return result;
  }
  std::istringstream list(given);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream words(item);
    Candidate candidate;
    std::getline(words, candidate.name, ':');
    for (std::string option; std::getline(words, option, ':');) {
      const std::size_t equals = option.find('=');
      candidate.options[option.substr(0, equals)] = equals == std::string::npos ? "true" : option.substr(equals + 1);
    }
    result.push_back(candidate);
  }
  return result;
}

class TransportConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override {
    const std::string reason = make()->unavailable("cpu");
    if (!reason.empty()) GTEST_SKIP() << GetParam().name << " does not serve host memory here: " << reason;
  }

  std::shared_ptr<Transport> make() { return host_.make<Transport>("transport", GetParam().name, GetParam().options); }

  /// Runs `body` on every rank of a job with a transport of its own, connected to all ranks.
  std::vector<std::exception_ptr> run(const std::vector<JobAddress>& addresses,
                                      const std::function<void(JoinedJob&, Communicator&)>& body) {
    std::vector<std::shared_ptr<Transport>> transports;
    for (std::size_t i = 0; i < addresses.size(); ++i) transports.push_back(make());
    return run_ranks(addresses, [&](JoinedJob& job) {
      GroupRequest group{"data.0", {}, job.rank(), "cpu"};
      for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
      const auto communicator = transports[static_cast<std::size_t>(job.rank())]->connect(job, group);
      body(job, *communicator);
    });
  }

  static void expect_all_fine(const std::vector<std::exception_ptr>& errors) {
    for (std::size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(text_of(errors[i]), "") << "rank " << i;
  }

 private:
  PluginHost host_{{}};
};

TEST_P(TransportConformance, CollectivesAreCorrect) {
  for (const int size : {1, 2, 3, 4, 6}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    expect_all_fine(run(make_addresses(size), [&](JoinedJob& job, Communicator& group) {
      EXPECT_EQ(group.rank(), job.rank());
      EXPECT_EQ(group.size(), size);
      for (const DType dtype : {DType::f32, DType::bf16})
        testing::check_communicator(group, {0, 1, 2, 5, 127, 1000, 65'537}, dtype);
      job.leave(30s);
    }));
  }
}

TEST_P(TransportConformance, LargeDataIsCorrect) {
  expect_all_fine(run(make_addresses(2), [&](JoinedJob& job, Communicator& group) {
    testing::check_all_reduce(group, 3'000'001, DType::f32);
    testing::check_reduce_scatter(group, 1'000'001, DType::bf16, true);
    testing::check_all_gather(group, 1'000'001, DType::f32, true);
    testing::check_broadcast(group, 3'000'001, DType::bf16);
    testing::check_send_receive(group, 3'000'001, DType::f32);
    job.leave(30s);
  }));
}

TEST_P(TransportConformance, TellsItsPathAndCountsItsBytes) {
  expect_all_fine(run(make_addresses(2), [&](JoinedJob& job, Communicator& group) {
    EXPECT_FALSE(group.verified_path().empty());
    std::vector<float> data(10'000, 1.0F);
    const std::int64_t before = group.bytes_sent();
    group.all_reduce(data.data(), 10'000, DType::f32, nullptr);
    EXPECT_GE(group.bytes_sent() - before, 40'000);
    job.leave(30s);
  }));
}

TEST_P(TransportConformance, AllocatesOnlyTheFirstTime) {
  expect_all_fine(run(make_addresses(3), [&](JoinedJob& job, Communicator& group) {
    std::vector<float> data(300'000, 1.0F);
    std::vector<float> parts(900'000);
    const auto all = [&] {
      group.all_reduce(data.data(), 300'000, DType::f32, nullptr);
      group.reduce_scatter(parts.data(), data.data(), 300'000, DType::f32, nullptr);
      group.all_gather(data.data(), parts.data(), 300'000, DType::f32, nullptr);
      group.broadcast(data.data(), 300'000, DType::f32, 1, nullptr);
    };
    all();
    const std::int64_t before = testing::allocations();
    for (int i = 0; i < 5; ++i) all();
    EXPECT_EQ(testing::allocations(), before);
    job.leave(30s);
  }));
}

TEST_P(TransportConformance, RefusesTypesThatCannotBeSummed) {
  const auto errors = run(make_addresses(2), [&](JoinedJob& job, Communicator& group) {
    std::vector<std::int32_t> data(100);
    EXPECT_THROW(group.all_reduce(data.data(), 100, DType::i32, nullptr), Error);
    job.leave(30s);
  });
}

TEST_P(TransportConformance, MovesBytesOfAnyType) {
  expect_all_fine(run(make_addresses(3), [&](JoinedJob& job, Communicator& group) {
    std::vector<std::uint8_t> data(1001, static_cast<std::uint8_t>(group.rank()));
    group.broadcast(data.data(), 1001, DType::u8, 2, nullptr);
    EXPECT_EQ(data, std::vector<std::uint8_t>(1001, 2));
    std::vector<std::uint8_t> all(3);
    const auto own = static_cast<std::uint8_t>(10 + group.rank());
    group.all_gather(&own, all.data(), 1, DType::u8, nullptr);
    EXPECT_THAT(all, ::testing::ElementsAre(10, 11, 12));
    job.leave(30s);
  }));
}

TEST_P(TransportConformance, AFailingMemberEndsAllWaits) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(make_addresses(3), [&](JoinedJob& job, Communicator& group) {
    std::vector<float> data(50'000);
    for (int i = 0; i < 1000; ++i) {
      if (job.rank() == 1 && i == 10) throw DataError("broken input");
      group.all_reduce(data.data(), 50'000, DType::f32, nullptr);
    }
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("rank 1 on host"));
    EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("broken input"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST_P(TransportConformance, AStuckMemberIsNamedAfterTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(make_addresses(3, 1s), [&](JoinedJob& job, Communicator& group) {
    job.set_progress(
        [rank = job.rank()] { return rank == 2 ? "step 1, instruction 3: linear" : "step 1, instruction 4: all_reduce"; });
    std::vector<float> data(50'000);
    group.all_reduce(data.data(), 50'000, DType::f32, nullptr);
    if (job.rank() == 2) {
      while (!job.failed()) std::this_thread::sleep_for(10ms);
      job.check();
    }
    group.all_reduce(data.data(), 50'000, DType::f32, nullptr);
  });
  for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr("step 1, instruction 3: linear"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

INSTANTIATE_TEST_SUITE_P(Found, TransportConformance, ::testing::ValuesIn(candidates()),
                         [](const auto& info) { return info.param.name; });

TEST(TransportConformanceSuite, FoundSomethingToTest) {
  EXPECT_FALSE(candidates().empty());
}

}  // namespace
}  // namespace consist
