// Leaders of hosts: ranks that are killed or stopped as processes of their own, ranks of another generation, and strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <latch>
#include <thread>

#include "consist/error.h"
#include "core/job/relay.h"
#include "tests/job/in_process.h"
#include "tests/job/strangers.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using network::Clock;
using ::testing::AllOf;
using testing::claim_of;
using ::testing::HasSubstr;
using testing::is_closed_within;
using testing::knock;
using testing::make_addresses;
using testing::make_addresses_on_hosts;
using testing::run_ranks;
using testing::spread;
using testing::test_token;
using testing::text_of;

/// A job whose ranks are processes. Each joins, says so, waits until the job fails, and tells whom it blames and why.
class Processes {
 public:
  explicit Processes(const std::vector<JobAddress>& addresses) {
    for (const JobAddress& address : addresses) {
      int ends[2];
      if (pipe(ends) != 0) throw SystemError("no pipe");
      const pid_t pid = fork();
      if (pid == 0) run(address, ends[1]);
      close(ends[1]);
      ranks_.push_back({pid, ends[0], {}});
    }
    close(addresses[0].listen_fd);
    for (Rank& rank : ranks_) read_line(rank);  // it has joined
  }
  ~Processes() {
    for (Rank& rank : ranks_) {
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
      close(rank.out);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void signal(int rank, int number) { kill(ranks_[static_cast<std::size_t>(rank)].pid, number); }
  /// "RANK text" that a rank ended with.
  std::string verdict(int rank) { return read_line(ranks_[static_cast<std::size_t>(rank)]); }

 private:
  struct Rank {
    pid_t pid;
    int out;
    std::string read;
  };

  [[noreturn]] static void run(const JobAddress& address, int out) {
    std::string verdict = "no failure";
    try {
      const std::unique_ptr<JoinedJob> job = join_job(address);
      if (write(out, "joined\n", 7) != 7) _exit(1);
      while (!job->failed()) std::this_thread::sleep_for(5ms);
      job->check();
    } catch (const PeerError& error) {
      verdict = std::to_string(error.rank()) + " " + error.what();
    } catch (const std::exception& error) {
      verdict = error.what();
    }
    verdict += "\n";
    _exit(write(out, verdict.data(), verdict.size()) < 0 ? 1 : 0);
  }
  static std::string read_line(Rank& rank) {
    std::string line;
    for (char byte = 0; read(rank.out, &byte, 1) == 1 && byte != '\n';) line += byte;
    return line;
  }

  std::vector<Rank> ranks_;
};

constexpr int led_ranks = 7;

/// Expects that all others of a job on hosts of two, three and two ranks name the one that is killed or stopped.
void expect_named(int victim, int signal, const char* how) {
  SCOPED_TRACE("rank " + std::to_string(victim) + ", signal " + std::to_string(signal));
  auto addresses = make_addresses(led_ranks, 1s);
  spread(addresses, {0, 0, 1, 1, 1, 2, 2});
  Processes processes(addresses);
  std::this_thread::sleep_for(300ms);
  processes.signal(victim, signal);
  for (int rank = 0; rank < led_ranks; ++rank) {
    if (rank == victim) continue;
    EXPECT_THAT(
        processes.verdict(rank),
        AllOf(::testing::StartsWith(std::to_string(victim) + " rank " + std::to_string(victim) + " on host"), HasSubstr(how)))
        << "what rank " << rank << " says";
  }
}

TEST(Leader, AKilledRankIsNamedByAll) {
  for (const int victim : {0, 1, 2, 4, 5}) expect_named(victim, SIGKILL, "died (its connection closed without a goodbye)");
}

TEST(Leader, AStoppedLeaderIsNamedAndNotThoseThatItLeads) {
  expect_named(2, SIGSTOP, "has given no sign of life");
}

TEST(Leader, AStoppedRankThatIsLedIsNamed) {
  expect_named(3, SIGSTOP, "has given no sign of life");
}

TEST(Leader, AStoppedRankZeroIsNamedByThoseThatAreLed) {
  expect_named(0, SIGSTOP, "has given no sign of life");
}

TEST(Leader, LateLeadersAndLateRanksJoin) {
  auto addresses = make_addresses_on_hosts(6, 3);
  std::vector<std::exception_ptr> errors(addresses.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::this_thread::sleep_for(rank == 3   ? 900ms
                                  : rank == 5 ? 1200ms
                                              : std::chrono::milliseconds(50 * rank));  // rank 3 leads 4 and 5
      try {
        const auto job = join_job(addresses[rank]);
        EXPECT_EQ(job->all_gather("ranks", std::to_string(rank), 20s), (std::vector<std::string>{"0", "1", "2", "3", "4", "5"}));
        job->leave(20s);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "");
}

// Ranks of one machine in network namespaces of their own, say: local ranks whose leader is elsewhere.
TEST(Leader, RanksOfAMachineWithoutALeaderStayWithRankZero) {
  auto addresses = make_addresses_on_hosts(6, 3);
  addresses[4].machine = addresses[5].machine = "another";
  for (const auto& error : run_ranks(addresses, [](JoinedJob& job) {
         EXPECT_EQ(job.reduce("ranks", {1}, ReduceOp::sum, 20s).front(), 6);
         EXPECT_EQ(job.host_ranks().size(), job.rank() < 3 ? 3U : job.rank() == 3 ? 1U : 2U);
         job.leave(20s);
       }))
    EXPECT_EQ(text_of(error), "");
}

TEST(Leader, NonsenseOfARankThatIsLedEndsThatRankAndNotItsLeader) {
  auto addresses = make_addresses_on_hosts(4, 2);
  const std::uint16_t port = addresses[0].master_port;
  addresses.pop_back();
  std::latch joined(3);
  std::thread rank3([&] {
    FrameStream stream(knock(port));
    const std::string claim = JoinClaim{0, 3, 4, "evil", "host 1", 0}.text();
    network::prove_to_server(stream.socket(), test_token, job_purpose, claim, Clock::now() + 5s);
    stream.push(message(MessageKind::heartbeat).text("").take());
    stream.flush();
    std::string_view body;
    int leader = 0;
    std::uint16_t leaders_port = 0;
    while (leader == 0 && network::wait_for(stream.socket(), POLLIN, Clock::now() + 5s) && stream.fill()) {
      while (stream.next(body)) {
        network::WireReader reader(body);
        if (static_cast<MessageKind>(reader.integer<std::uint8_t>()) != MessageKind::lead) continue;
        leader = reader.integer<std::int32_t>();
        leaders_port = reader.integer<std::uint16_t>();
      }
    }
    EXPECT_EQ(leader, 2);
    FrameStream led(knock(leaders_port));
    network::prove_to_server(led.socket(), test_token, purpose_of_leader(2), claim_at_leader(3, 0), Clock::now() + 5s);
    led.push(message(MessageKind::heartbeat).text("").take());
    led.flush();
    stream.push(message(MessageKind::moved).take());
    stream.flush();
    joined.wait();  // a rank that comes after the job has failed finds nobody to join
    led.push("\x01garbage");
    led.flush();
    EXPECT_TRUE(is_closed_within(led.socket(), 10s));
  });
  const auto errors = run_ranks(addresses, [&](JoinedJob& job) {
    joined.count_down();
    job.barrier("never", 10s);
  });
  rank3.join();
  for (const auto& error : errors) {
    EXPECT_EQ(testing::blamed(error), 3);
    EXPECT_THAT(text_of(error), HasSubstr("it sent something that is no message of the job"));
  }
}

TEST(Generation, AMemberOfAnotherOneIsRefused) {
  auto addresses = make_addresses(3, 2s);
  for (JobAddress& address : addresses) address.generation = 4;
  addresses[2].generation = 3;
  const auto errors = run_ranks(addresses, [](JoinedJob&) { ADD_FAILURE() << "the job is not complete"; });
  EXPECT_THAT(text_of(errors[2]),
              HasSubstr("cannot join the job: it belongs to generation 3 of the job, whose ranks are in generation 4"));
  EXPECT_THAT(text_of(errors[0]), HasSubstr("rank 2 of 3 did not join"));
}

TEST(Generation, IsTheSameForAllWhoJoined) {
  auto addresses = make_addresses_on_hosts(4, 2);
  for (JobAddress& address : addresses) address.generation = 9;
  for (const auto& error : run_ranks(addresses, [](JoinedJob& job) {
         EXPECT_EQ(job.generation(), 9);
         EXPECT_EQ(job.reduce("ranks", {1}, ReduceOp::sum, 20s).front(), 4);
         job.leave(20s);
       }))
    EXPECT_EQ(text_of(error), "");
}

// As of a process that was cut off while the job went on with others.
TEST(Generation, AMessageOfAnotherOneIsRefused) {
  auto addresses = make_addresses(2);
  for (JobAddress& address : addresses) address.generation = 1;
  const std::uint16_t port = addresses[0].master_port;
  addresses.pop_back();
  std::thread rank1([&] {
    network::Socket socket = knock(port);
    network::prove_to_server(socket, test_token, job_purpose, claim_of(1, 2, 1), Clock::now() + 5s);
    FrameStream stale(std::move(socket), 0);
    stale.push(message(MessageKind::put).text("key").text("of the past").take());
    stale.flush();
    EXPECT_TRUE(is_closed_within(stale.socket(), 5s));
  });
  const auto errors = run_ranks(addresses, [](JoinedJob& job) { job.get("key", 10s); });
  rank1.join();
  EXPECT_THAT(text_of(errors[0]), HasSubstr("a message of generation 0 of the job, which is in generation 1"));
}

TEST(Generation, ALeaderRefusesAnotherOne) {
  network::Socket listener = network::listen_on("127.0.0.1", 0);
  const std::uint16_t port = network::local_endpoint(listener).port;
  std::atomic<bool> stop{false};
  std::thread leader([&] {
    Relay relay(std::move(listener), test_token, 2, 5);
    FrameStream up;
    while (!stop) {
      std::vector<pollfd> entries;
      relay.watch(entries);
      poll(entries.data(), entries.size(), 20);
      relay.serve(entries, up);
    }
    EXPECT_FALSE(up.has_output()) << "rank 0 hears nothing of it";
  });
  network::Socket socket = knock(port);
  network::prove_to_server(socket, test_token, purpose_of_leader(2), claim_at_leader(3, 4), Clock::now() + 5s);
  FrameStream stream(std::move(socket), 4);
  std::string_view body;
  while (network::wait_for(stream.socket(), POLLIN, Clock::now() + 5s) && stream.fill() && !stream.next(body)) {
  }
  ASSERT_FALSE(body.empty());
  EXPECT_EQ(static_cast<MessageKind>(body[0]), MessageKind::refused);
  EXPECT_THAT(std::string(body), HasSubstr("generation 4 of the job, whose ranks are in generation 5"));
  stop = true;
  leader.join();
}

}  // namespace
}  // namespace consist
