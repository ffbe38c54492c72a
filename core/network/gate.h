// The door of a listening socket: admits those who prove that they know the secret, and keeps everybody else from costing more
// than a few bytes and a few seconds.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "core/network/handshake.h"
#include "core/network/socket.h"

namespace consist::network {

/// Who was let in: a connection past its handshake, and who they said they are (bound into their proof).
struct Admitted {
  Socket socket;
  std::string claim;
};

/// Used from one thread. Strangers are closed after handshake_time or at their first wrong byte; at most max_pending are looked
/// at at once, and when more come, the oldest is closed (an honest client of a flooded gate tries again).
class Gate {
 public:
  static constexpr std::chrono::milliseconds handshake_time{5000};
  static constexpr std::size_t max_pending = 128;

  /// `what` names the gate in warnings: "the job's rendezvous".
  Gate(Socket listener, std::string secret, std::string purpose, std::string what);

  /// Appends what to poll for.
  void watch(std::vector<pollfd>& entries) const;
  /// Serves all that is ready, without waiting. Call it after every poll, at least every second.
  std::vector<Admitted> serve();

 private:
  struct Pending {
    Socket socket;
    Deadline deadline;
    std::string received;
    Nonce client;
    Nonce server;
    std::string claim;
    bool challenged = false;
  };
  enum class Verdict { wait, admit, refuse };

  void accept_new();
  Verdict serve_one(Pending& pending);
  Verdict challenge(Pending& pending);
  Verdict check_proof(Pending& pending);
  void refuse(const Pending& pending, const char* why);

  Socket listener_;
  std::string secret_;
  std::string purpose_;
  std::string what_;
  std::deque<Pending> pending_;      // oldest first
  Deadline accept_after_{};          // descriptors ran out: leave the listener alone until then
  bool short_of_resources_ = false;  // said once
  std::vector<std::string> warned_;  // addresses that were complained about already
};

}  // namespace consist::network
