// The gate in front of a listening socket: who proves to know the token is admitted, all others are turned away in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/wire.h"
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
using testing::test_token;

/// A gate that is served by a thread; counts whom it admits.
class ServedGate {
 public:
  ServedGate() {
    Socket listener = network::listen_on("127.0.0.1", 0);
    port = network::local_endpoint(listener).port;
    thread_ = std::thread([this, listener = std::move(listener)]() mutable {
      Gate gate(std::move(listener), test_token, "test", "the test's gate");
      std::vector<Socket> inside;
      while (!stop_) {
        std::vector<pollfd> entries;
        gate.watch(entries);
        most_watched = std::max(most_watched.load(), entries.size());
        poll(entries.data(), entries.size(), 10);
        for (auto& admitted : gate.serve()) {
          inside.push_back(std::move(admitted.socket));
          ++this->admitted;
        }
      }
    });
  }
  ~ServedGate() {
    stop_ = true;
    thread_.join();
  }
  /// True if the gate comes to admit exactly `count`; its thread counts a moment after it has answered.
  bool admits(int count) const {
    for (int i = 0; i < 500 && admitted < count; ++i) std::this_thread::sleep_for(10ms);
    return admitted == count;
  }

  std::uint16_t port = 0;
  std::atomic<int> admitted{0};
  std::atomic<std::size_t> most_watched{0};

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(Gate, AdmitsWhoKnowsTheToken) {
  ServedGate gate;
  const Socket socket = knock(gate.port);
  network::prove_to_server(socket, test_token, "test", "me", Clock::now() + 5s);
  EXPECT_FALSE(is_closed_within(socket, 100ms));
  EXPECT_TRUE(gate.admits(1));
}

TEST(Gate, RefusesAWrongTokenOrPurpose) {
  ServedGate gate;
  EXPECT_THROW(network::prove_to_server(knock(gate.port), "another token of 32 characters..", "test", "", Clock::now() + 5s),
               SystemError);
  EXPECT_THROW(network::prove_to_server(knock(gate.port), test_token, "other", "", Clock::now() + 5s), SystemError);
  EXPECT_EQ(gate.admitted, 0);
}

TEST(Gate, ClosesOnGarbageAtOnce) {
  ServedGate gate;
  for (const std::string& garbage : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100'000, '\xff'),
                                     std::string("C\0", 2), std::string("CONSIST2")}) {
    const Socket socket = knock(gate.port);
    network::try_send(socket, std::as_bytes(std::span(garbage)));
    EXPECT_TRUE(is_closed_within(socket, 1s)) << garbage.substr(0, 20);
  }
  EXPECT_EQ(gate.admitted, 0);
}

TEST(Gate, ClosesOnAClaimOfAbsurdLength) {
  ServedGate gate;
  const Socket socket = knock(gate.port);
  const std::string hello = std::string(network::handshake_magic) + std::string(network::nonce_bytes, 'n') + "\xff\xff";
  network::try_send(socket, std::as_bytes(std::span(hello)));
  EXPECT_TRUE(is_closed_within(socket, 1s));
}

TEST(Gate, ClosesWhoHoldsTheConnection) {
  ServedGate gate;
  const Socket silent = knock(gate.port);
  const Socket slow = knock(gate.port);
  network::try_send(slow, std::as_bytes(std::span("CONS", 4)));
  EXPECT_TRUE(is_closed_within(silent, Gate::handshake_time + 2s));
  EXPECT_TRUE(is_closed_within(slow, 1s));
}

// An answer of the server to one stranger is of no use to another connection: every proof is bound to both nonces and the side.
TEST(Gate, AProofCannotBeReplayedOrReflected) {
  ServedGate gate;
  const Socket honest = knock(gate.port);
  const network::Nonce client = network::make_nonce();
  const std::string claim = "me";
  const std::string hello = std::string(network::handshake_magic) + std::string(client.data(), client.size()) +
                            network::WireWriter().integer(static_cast<std::uint16_t>(claim.size())).take() + claim;
  network::send_all(honest, hello, Clock::now() + 1s);
  const std::string answer = network::receive_exactly(honest, 8 + network::nonce_bytes, Clock::now() + 1s);
  network::Nonce server;
  std::copy_n(answer.data() + 8, server.size(), server.data());
  const std::string proof = network::make_proof(test_token, network::Side::client, "test", client, server, claim);
  network::send_all(honest, proof, Clock::now() + 1s);
  const std::string back = network::receive_exactly(honest, network::proof_bytes, Clock::now() + 1s);
  EXPECT_TRUE(gate.admits(1));
  for (const std::string& replayed : {proof, back}) {
    const Socket thief = knock(gate.port);
    network::send_all(thief, hello, Clock::now() + 1s);
    network::receive_exactly(thief, 8 + network::nonce_bytes, Clock::now() + 1s);
    network::send_all(thief, replayed, Clock::now() + 1s);
    EXPECT_TRUE(is_closed_within(thief, 1s));
  }
  EXPECT_EQ(gate.admitted, 1);
}

// Who changes the claim on its way has no proof for what the gate then reads.
TEST(Gate, AProofHoldsForItsClaimAlone) {
  ServedGate gate;
  const Socket changed = knock(gate.port);
  const network::Nonce client = network::make_nonce();
  const std::string hello = std::string(network::handshake_magic) + std::string(client.data(), client.size()) +
                            network::WireWriter().integer(std::uint16_t{3}).take() + "you";
  network::send_all(changed, hello, Clock::now() + 1s);
  const std::string answer = network::receive_exactly(changed, 8 + network::nonce_bytes, Clock::now() + 1s);
  network::Nonce server;
  std::copy_n(answer.data() + 8, server.size(), server.data());
  network::send_all(changed, network::make_proof(test_token, network::Side::client, "test", client, server, "me!"),
                    Clock::now() + 1s);
  EXPECT_TRUE(is_closed_within(changed, 1s));
  EXPECT_EQ(gate.admitted, 0);
}

// A server without the token has one proof to show: the client's own.
TEST(Gate, AClientsProofIsNoneOfTheServer) {
  const Socket listener = network::listen_on("127.0.0.1", 0);
  std::thread echo([&] {
    network::wait_for(listener, POLLIN, Clock::now() + 5s);
    int error = 0;
    const Socket socket = network::accept_from(listener, error);
    const std::size_t hello = network::handshake_magic.size() + network::nonce_bytes + sizeof(std::uint16_t) + 2;
    network::receive_exactly(socket, hello, Clock::now() + 5s);
    network::send_all(socket, std::string(network::handshake_magic) + std::string(network::nonce_bytes, 'n'), Clock::now() + 5s);
    network::send_all(socket, network::receive_exactly(socket, network::proof_bytes, Clock::now() + 5s), Clock::now() + 5s);
    is_closed_within(socket, 5s);
  });
  try {
    network::prove_to_server(knock(network::local_endpoint(listener).port), test_token, "test", "me", Clock::now() + 5s);
    ADD_FAILURE() << "the client believes its own proof";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not know the job's token"));
  }
  echo.join();
}

TEST(Gate, AFloodIsBoundedAndDoesNotKeepOthersOut) {
  ServedGate gate;
  std::atomic<bool> stop{false};
  std::vector<std::thread> flood;
  for (int i = 0; i < 3; ++i) {
    flood.emplace_back([&] {
      std::vector<Socket> held;
      while (!stop) {
        try {
          held.push_back(knock(gate.port));
        } catch (const SystemError&) {
        }
        if (held.size() > 150) held.erase(held.begin());
      }
    });
  }
  std::this_thread::sleep_for(300ms);
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    bool in = false;
    while (!in && Clock::now() - start < 10s) {
      try {
        network::prove_to_server(knock(gate.port), test_token, "test", "", Clock::now() + 2s);
        in = true;
      } catch (const SystemError&) {
      }
    }
    EXPECT_TRUE(in);
  }
  stop = true;
  for (auto& thread : flood) thread.join();
  EXPECT_LE(gate.most_watched, Gate::default_max_pending + 1);
}

}  // namespace
}  // namespace consist
