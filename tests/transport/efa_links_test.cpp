// Transport efa on host memory over libfabric's provider tcp, with ranks as threads: its path, and strangers. What all transports
// of host memory do is in host_ring_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "consist/error.h"
#include "consist/wire.h"
#include "plugins/transports/efa/endpoint.h"
#include "plugins/transports/efa/fabric_links.h"
#include "tests/conformance/transport/collective_checks.h"
#include "tests/transport/host_links.h"

namespace consist::efa {
namespace {

using namespace std::chrono_literals;
using consist::testing::efa_over_tcp;
using consist::testing::expect_all_fine;
using consist::testing::make_addresses;
using consist::testing::run_ranks;
using consist::testing::text_of;
using consist::testing::whole_job;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

RingCommunicator connect(Job& job, const HostOptions& options = efa_over_tcp) {
  return RingCommunicator(connect_members(job, whole_job(job), options), 4096);
}

/// This rank's job as its transport sees it.
class SeenJob : public Job {
 public:
  explicit SeenJob(Job& job) : job_(job) {}
  int rank() const noexcept override { return job_.rank(); }
  int size() const noexcept override { return job_.size(); }
  int local_rank() const noexcept override { return job_.local_rank(); }
  int local_size() const noexcept override { return job_.local_size(); }
  std::string_view host() const noexcept override { return job_.host(); }
  std::span<const int> host_ranks() const noexcept override { return job_.host_ranks(); }
  int generation() const noexcept override { return job_.generation(); }
  std::string_view token() const noexcept override { return job_.token(); }
  std::vector<std::string> gather(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                  std::span<const int> members) override {
    return job_.gather(name, bytes, timeout, members);
  }
  std::string broadcast(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                        std::span<const int> members) override {
    return job_.broadcast(name, bytes, timeout, members);
  }
  void put(std::string_view key, std::string_view value) override { job_.put(key, value); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override { return job_.get(key, timeout); }
  void barrier(std::string_view name, std::chrono::milliseconds timeout) override { job_.barrier(name, timeout); }
  bool failed() const noexcept override { return job_.failed(); }
  void check() const override { job_.check(); }
  [[noreturn]] void blame(int peer, std::string_view what) override {
    job_.blame(peer, what);
    std::abort();
  }
  void set_progress(std::function<std::string()> progress) override { job_.set_progress(std::move(progress)); }
  std::chrono::milliseconds timeout() const noexcept override { return job_.timeout(); }

 private:
  Job& job_;
};

/// Puts where this member of group data.0 can be reached into the job's store, too.
class ToldContact final : public SeenJob {
 public:
  using SeenJob::SeenJob;
  std::vector<std::string> gather(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                  std::span<const int> members) override {
    if (name == "group/data.0/efa.contact") put("contact/" + std::to_string(rank()), bytes);
    return SeenJob::gather(name, bytes, timeout, members);
  }
};

/// The address of a member of group data.0, as it told the others.
std::string address_of(Job& job, int member) {
  const std::string contact = job.get("contact/" + std::to_string(member), 10s);
  network::WireReader reader(contact);
  EXPECT_EQ(reader.text(), "tcp;ofi_rxm");
  return std::string(reader.text());
}

TEST(Efa, SaysWhichProviderAndDeviceWereTaken) {
  expect_all_fine(run_ranks(make_addresses(2), [](JoinedJob& job) {
    EXPECT_THAT(connect(job).verified_path(), MatchesRegex("libfabric [0-9.]+ tcp.* on lo"));
    job.leave(20s);
  }));
  expect_all_fine(
      run_ranks(make_addresses(1), [](JoinedJob& job) { EXPECT_EQ(connect(job).verified_path(), "none (one member)"); }));
}

TEST(Efa, RefusesAnUnknownDevice) {
  HostOptions options = efa_over_tcp;
  options.device = "nosuch7";
  const auto errors = run_ranks(make_addresses(2), [&](JoinedJob& job) { connect(job, options); });
  EXPECT_THAT(text_of(errors[0]) + text_of(errors[1]), AllOf(HasSubstr("--efa.device is 'nosuch7'"), HasSubstr("lo")));
}

// The stranger knows the address and the layout of the tags, and sends messages with the numbers of those that the members are
// about to send, long before they do: all that it does not know is the secret.
TEST(Efa, WhatStrangersSendIsNotTaken) {
  constexpr std::uint64_t first_lie = 3000, last_lie = 3400;
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> lies = first_lie;
  expect_all_fine(run_ranks(make_addresses(2), [&](JoinedJob& job) {
    ToldContact told(job);
    RingCommunicator group = connect(told);
    std::thread stranger;
    if (job.rank() == 0) {
      stranger = std::thread([&, victim = address_of(job, 1)] {
        Endpoint endpoint(load_libfabric(""), {"tcp", "", 0, true});
        const fi_addr_t to = endpoint.insert(victim);
        const std::string lie(4096, 'x');
        fi_context2 context;
        std::array<Completion, 16> completions;
        while (!done) {
          if (lies < last_lie && endpoint.send(to, lies, lie.data(), 1 + lies % lie.size(), &context)) ++lies;
          endpoint.poll(completions);
          std::this_thread::yield();
        }
      });
    }
    const auto memory = consist::testing::make_memory("cpu", 0);
    // The victim lets strangers in only while it is in a collective.
    float all_told = 0;
    std::uint64_t messages = 1;  // the proof; then at most three each round
    for (const auto give_up = std::chrono::steady_clock::now() + 60s; all_told == 0;) {
      all_told = job.rank() == 0 && (lies == last_lie || std::chrono::steady_clock::now() > give_up) ? 1 : 0;
      group.all_reduce(&all_told, 1, DType::f32, nullptr);
      messages += 3;
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_LT(messages, first_lie) << "the lies came too late to be taken";
    // Over the numbers of the lies: no message is longer than a chunk.
    constexpr std::int64_t chunk = 4096, beyond = chunk * static_cast<std::int64_t>(last_lie);
    while (group.bytes_sent() <= beyond) consist::testing::check_all_reduce(group, *memory, 1'000'000, DType::f32);
    job.barrier("checked", 20s);
    done = true;
    if (stranger.joinable()) stranger.join();
    job.leave(20s);
  }));
  EXPECT_EQ(lies, last_lie);
}

TEST(Efa, GarbageOnItsPortIsNoMessage) {
  expect_all_fine(run_ranks(make_addresses(2), [](JoinedJob& job) {
    ToldContact told(job);
    RingCommunicator group = connect(told);
    const auto memory = consist::testing::make_memory("cpu", 0);
    sockaddr_in address{};
    const std::string bytes = address_of(job, 1 - job.rank());
    ASSERT_EQ(bytes.size(), sizeof(address));
    std::memcpy(&address, bytes.data(), sizeof(address));
    for (int i = 0; i < 20; ++i) {
      const network::Socket socket = network::connect_to("127.0.0.1", ntohs(address.sin_port), network::Clock::now() + 5s);
      const std::string garbage(static_cast<std::size_t>(i) * 100, static_cast<char>(i));
      network::try_send(socket, std::as_bytes(std::span(garbage)));
      consist::testing::check_all_reduce(group, *memory, 5000, DType::f32);
    }
    job.leave(20s);
  }));
}

/// A member whose messages have other tags, as of another job, is not heard.
TEST(Efa, MessagesWithoutTheSecretAreNotReceived) {
  const auto errors = run_ranks(make_addresses(2, 1s), [](JoinedJob& job) {
    auto endpoint = std::make_unique<Endpoint>(load_libfabric(""), EndpointRequest{"tcp", "", 0, true});
    job.put("address/" + std::to_string(job.rank()), endpoint->address());
    std::vector<Partner> partners(2);
    const int other = 1 - job.rank();
    partners[static_cast<std::size_t>(other)] = {endpoint->insert(job.get("address/" + std::to_string(other), 5s)), 1, 1};
    if (job.rank() == 0) partners[1].tag_out = 2;
    FabricLinks links(job, "data.0", job.rank(), {0, 1}, std::move(endpoint), partners, "test");
    char out = 'a', in = '-';
    links.post_send(other, &out, 1);
    if (job.rank() == 0) {
      links.wait_received(1, links.post_receive(1, &in, 1));
      EXPECT_EQ(in, 'a') << "the way back has the right secret";
      while (!job.failed()) links.wait_sent(1, 1), std::this_thread::sleep_for(10ms);
      job.check();
    } else {
      links.wait_received(0, links.post_receive(0, &in, 1));
      ADD_FAILURE() << "received a message with another secret";
    }
  });
  EXPECT_THAT(text_of(errors[1]), HasSubstr("rank 0"));
}

class OtherToken final : public SeenJob {
 public:
  using SeenJob::SeenJob;
  std::string_view token() const noexcept override { return "another token"; }
};

TEST(Efa, AMemberThatDoesNotKnowTheTokenIsRefused) {
  const auto errors = run_ranks(make_addresses(3, 1s), [](JoinedJob& job) {
    OtherToken stranger(job);
    connect(job.rank() == 2 ? static_cast<Job&>(stranger) : job);
    ADD_FAILURE() << "rank " << job.rank() << " connected";
  });
  for (const auto& error : errors) EXPECT_NE(text_of(error), "");
  EXPECT_THAT(text_of(errors[0]), HasSubstr("rank "));
}

}  // namespace
}  // namespace consist::efa
