// Strangers at the job's door, for tests: they knock, claim to be a rank, and see whether they are turned away.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "consist/handshake.h"
#include "core/job/job_messages.h"

namespace consist::testing {

using namespace std::chrono_literals;
using network::Clock;
using network::Socket;

inline Socket knock(std::uint16_t port) {
  return network::connect_to("127.0.0.1", port, Clock::now() + 2s);
}

/// True if the other side closes the connection within `limit`; drops the bytes that it sends.
inline bool is_closed_within(const Socket& socket, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (network::wait_for(socket, POLLIN, deadline)) {
    std::byte buffer[256];
    if (network::try_receive(socket, buffer).closed) return true;
  }
  return false;
}

inline std::string claim_of(int rank, int size, int generation = 0) {
  return JoinClaim{generation, rank, size, "evil", "a machine of its own", 0}.text();
}

}  // namespace consist::testing
