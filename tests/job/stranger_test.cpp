// Strangers at the job's door: without the token nobody joins, and nobody keeps those who have it from joining or working.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <limits>
#include <random>
#include <thread>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/wire.h"
#include "core/job/job_messages.h"
#include "tests/job/in_process.h"
#include "tests/job/strangers.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using network::Clock;
using network::Gate;
using network::Socket;
using testing::claim_of;
using ::testing::HasSubstr;
using testing::is_closed_within;
using testing::knock;
using testing::make_addresses;
using testing::run_ranks;
using testing::test_token;
using testing::text_of;

/// Everything at once, against a job that is forming and then working.
TEST(Stranger, NeitherJoinsNorDisturbsAJob) {
  auto addresses = make_addresses(3);
  const std::uint16_t port = addresses[0].master_port;
  std::atomic<bool> stop{false};
  std::atomic<int> joined{0};
  std::vector<std::thread> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      std::vector<Socket> held;
      while (!stop) {
        try {
          Socket socket = knock(port);
          if (i == 0) {
            std::string garbage(random() % 2000, '\0');
            for (char& c : garbage) c = static_cast<char>(random());
            network::try_send(socket, std::as_bytes(std::span(garbage)));
          } else if (i == 1) {
            try {
              network::prove_to_server(socket, "not the token of this job at all", job_purpose, claim_of(1, 3),
                                       Clock::now() + 1s);
              ++joined;
            } catch (const SystemError&) {
            }
          }
          held.push_back(std::move(socket));
          if (held.size() > 100) held.clear();
        } catch (const SystemError&) {
        }
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  std::this_thread::sleep_for(100ms);
  const auto errors = run_ranks(addresses, [](JoinedJob& job) {
    for (int i = 0; i < 200; ++i) {
      const std::string key = "k" + std::to_string(i);
      if (job.rank() == i % 3) job.put(key, key);
      EXPECT_EQ(job.get(key, 10s), key);
    }
    job.barrier("end", 10s);
    job.leave(10s);
  });
  stop = true;
  for (auto& thread : strangers) thread.join();
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "");
  EXPECT_EQ(joined, 0);
}

TEST(Stranger, ARankWithAWrongTokenIsTurnedAway) {
  auto addresses = make_addresses(2, 800ms);
  addresses[1].token = "fedcba9876543210fedcba9876543210";
  const auto errors = run_ranks(addresses, [](JoinedJob&) { ADD_FAILURE() << "the job is not complete"; });
  EXPECT_THAT(text_of(errors[0]), HasSubstr("rank 1 of 2 did not join"));
  EXPECT_THAT(text_of(errors[1]), HasSubstr("with the same token?"));
  for (const auto& error : errors) EXPECT_EQ(text_of(error).find(test_token), std::string::npos);
}

// A listener that does not know the token must not be taken for rank 0.
TEST(Stranger, ARankDoesNotTrustAnImpostor) {
  Socket listener = network::listen_on("127.0.0.1", 0);
  auto addresses = make_addresses(2, 700ms);
  close(addresses[0].listen_fd);
  addresses[1].master_port = network::local_endpoint(listener).port;
  std::atomic<bool> stop{false};
  std::thread impostor([&] {
    std::vector<Socket> held;
    while (!stop) {
      int error = 0;
      Socket socket = network::accept_from(listener, error);
      if (!socket) {
        std::this_thread::sleep_for(5ms);
        continue;
      }
      const std::string lies =
          std::string(network::handshake_magic) + std::string(network::nonce_bytes + network::proof_bytes, 'x');
      network::try_send(socket, std::as_bytes(std::span(lies)));
      held.push_back(std::move(socket));
    }
  });
  try {
    join_job(addresses[1]);
    ADD_FAILURE() << "joined an impostor";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not know the job's token"));
  }
  stop = true;
  impostor.join();
}

/// Rank 0 of a job of two waits at a barrier while the other, played by the test, says `messages` and closes its connection. What
/// rank 0 then throws.
std::string rank_zeros_error(const std::vector<std::string>& messages) {
  auto addresses = make_addresses(2);
  const std::uint16_t port = addresses[0].master_port;
  addresses.resize(1);
  std::thread other([&] {
    FrameStream stream(knock(port));
    network::prove_to_server(stream.socket(), test_token, std::string(job_purpose), claim_of(1, 2), Clock::now() + 5s);
    for (const std::string& body : messages) {
      stream.push(body);
      while (stream.flush() && stream.has_output()) std::this_thread::sleep_for(1ms);
    }
    stream.shut_down();
    is_closed_within(stream.socket(), 5s);
  });
  const auto errors = run_ranks(addresses, [](JoinedJob& job) { job.barrier("never", 10s); });
  other.join();
  return text_of(errors[0]);
}

TEST(Member, AMessageOfAnyLengthDoesNotStopTheServer) {
  const std::string longest(max_message_bytes - 16, 'x');
  for (const MessageKind kind : {MessageKind::heartbeat, MessageKind::report, MessageKind::fail, MessageKind::missed}) {
    const std::string error = rank_zeros_error({message(kind).text(longest).take()});
    EXPECT_THAT(error.substr(0, 200), HasSubstr("rank 1 on host evil")) << static_cast<int>(kind);
  }
  EXPECT_THAT(rank_zeros_error({message(MessageKind::put).text("key").text(longest).take()}), HasSubstr("a value of 41"));
}

TEST(Member, AnyTimeoutIsUnderstood) {
  for (const std::int64_t timeout : {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    const std::string error =
        rank_zeros_error({message(MessageKind::get).integer(std::uint64_t{1}).integer(timeout).text("key").take(),
                          message(MessageKind::leave).integer(timeout).take()});
    EXPECT_THAT(error, HasSubstr("rank ")) << timeout;
  }
}

// A rank 0 that was stopped and goes on finds the others gone; that is no reason to record that they died.
TEST(Member, WhoGaveUpOnRankZeroIsNotTheOneThatFailed) {
  const std::string error =
      rank_zeros_error({message(MessageKind::gave_up).integer(std::int32_t{0}).integer(std::int64_t{6200}).take()});
  EXPECT_THAT(error, HasSubstr("was stopped, or is cut off from the others: rank 1 on host evil heard nothing of it for 6.2 s"));
  EXPECT_THAT(error, ::testing::StartsWith("rank 0"));
}

// A rank 0 that lives but does not answer, and then one that says nothing at all: neither is waited for longer than it is said.
TEST(Member, IsNotKeptByARankZeroThatDoesNotAnswerOrFallsSilent) {
  Socket listener = network::listen_on("127.0.0.1", 0);
  auto addresses = make_addresses(2, 1s);
  close(addresses[0].listen_fd);
  addresses[1].master_port = network::local_endpoint(listener).port;
  std::atomic<bool> silent{false}, stop{false};
  std::thread rank_zero([&] {
    Gate gate(std::move(listener), test_token, std::string(job_purpose), "the test's rank 0");
    FrameStream stream;
    while (!stop) {
      std::vector<pollfd> entries;
      gate.watch(entries);
      poll(entries.data(), entries.size(), 50);
      for (auto& admitted : gate.serve()) {
        stream = FrameStream(std::move(admitted.socket));
        network::WireWriter welcome = message(MessageKind::welcome);
        stream.push(welcome.integer(std::uint32_t{1}).text("here").integer(std::uint32_t{0}).integer(std::uint32_t{0}).take());
      }
      if (!stream.is_open() || silent) continue;
      stream.push(message(MessageKind::pulse).integer(std::int32_t{0}).text("").take());
      stream.flush();
      stream.fill();
    }
  });
  {
    const std::unique_ptr<JoinedJob> job = join_job(addresses[1]);
    auto start = Clock::now();
    try {
      job->get("key", 2s);
      ADD_FAILURE() << "an answer";
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 does not answer"));
    }
    EXPECT_GE(Clock::now() - start, 5s) << "three seconds of grace: rank 0 itself says that the time is over";
    EXPECT_LT(Clock::now() - start, 6500ms);
    silent = true;
    start = Clock::now();
    while (!job->failed() && Clock::now() - start < 20s) std::this_thread::sleep_for(10ms);
    EXPECT_LT(Clock::now() - start, silence_limit(1s) + 2s);
    EXPECT_GE(Clock::now() - start, silence_limit(1s) - 1s);
  }
  stop = true;
  rank_zero.join();
}

// Someone who has the token but speaks nonsense is a failed rank, not a crash.
TEST(Stranger, NonsenseFromARankEndsTheJobInGoodOrder) {
  auto addresses = make_addresses(2);
  const std::uint16_t port = addresses[0].master_port;
  addresses.pop_back();
  std::thread rank1([&] {
    const Socket socket = knock(port);
    network::prove_to_server(socket, test_token, job_purpose, claim_of(1, 2), Clock::now() + 5s);
    FrameStream stream(network::Socket(dup(socket.fd())));
    stream.push("\x01garbage");
    stream.flush();
    EXPECT_TRUE(is_closed_within(socket, 5s));
  });
  const auto errors = run_ranks(addresses, [](JoinedJob& job) { job.barrier("never", 10s); });
  rank1.join();
  EXPECT_THAT(text_of(errors[0]), HasSubstr("it sent something that is no message of the job"));
}

}  // namespace
}  // namespace consist
