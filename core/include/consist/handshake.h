// Proof of a shared secret over a fresh connection, in both directions, without the secret ever on the wire.
//
//     client → server   magic, client nonce, claim (the identity that the client states)
//     server → client   magic, server nonce
//     client → server   HMAC-SHA256(secret, "client", purpose, nonces, claim)
//     server → client   HMAC-SHA256(secret, "server", purpose, nonces, claim)      only after the client's proof was right
//
// A process that does not know the secret is refused. Later bytes on the connection are neither encrypted nor signed: a network
// in which others can alter packets between the ranks needs protection below (WireGuard, IPsec).
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/socket.h"

namespace consist::network {

inline constexpr std::size_t nonce_bytes = 32;
inline constexpr std::size_t proof_bytes = 32;
inline constexpr std::size_t max_claim_bytes = 512;
inline constexpr std::string_view handshake_magic = "CONSIST1";

using Nonce = std::array<char, nonce_bytes>;

enum class Side { client, server };

/// Random bytes of the system. Throws SystemError.
CONSIST_API Nonce make_nonce();

/// `bytes` random bytes as twice as many hexadecimal digits.
CONSIST_API std::string random_hex(std::size_t bytes);

/// The proof that `side` sends: proof_bytes bytes.
CONSIST_API std::string make_proof(std::string_view secret, Side side, std::string_view purpose, const Nonce& client,
                                   const Nonce& server, std::string_view claim);

/// Compares in constant time.
CONSIST_API bool proofs_equal(std::string_view a, std::string_view b) noexcept;

/// The client's side on a connected socket. Throws SystemError saying what went wrong: closed, timed out, not a Consist job, or a
/// server that does not know the secret.
CONSIST_API void prove_to_server(const Socket& socket, std::string_view secret, std::string_view purpose, std::string_view claim,
                     Deadline deadline);

/// Writes or reads exactly these bytes. Throws SystemError.
CONSIST_API void send_all(const Socket& socket, std::string_view bytes, Deadline deadline);
CONSIST_API std::string receive_exactly(const Socket& socket, std::size_t count, Deadline deadline);

/// An admitted peer: a connection past its handshake, and the identity that it claimed (part of its proof).
struct Admitted {
  Socket socket;
  std::string claim;
};

/// Authenticates connections to a listening socket. THREADS: one. A connection is closed after handshake_time or at its first
/// wrong byte. At most `max_pending` are open at a time: when more come, the oldest is closed (a client of the job then tries
/// again).
class CONSIST_API Gate {
 public:
  static constexpr std::chrono::milliseconds handshake_time{5000};
  static constexpr std::size_t default_max_pending = 128;

  /// `what` names the gate in warnings: "the job's rendezvous".
  Gate(Socket listener, std::string secret, std::string purpose, std::string what, std::size_t max_pending = default_max_pending);

  /// Appends the entries to poll for.
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
  std::size_t max_pending_;
  std::deque<Pending> pending_;      // oldest first
  Deadline accept_after_{};          // descriptors ran out: leave the listener alone until then
  bool short_of_resources_ = false;  // said once
  std::vector<std::string> warned_;  // addresses that were complained about already
};

/// The name of this machine; "unknown" if the system gives none.
CONSIST_API std::string host_name();

/// The boot of this machine and the network namespace of this process: processes with equal texts reach one another by loopback.
/// A text that no other process has if this is not known.
CONSIST_API std::string machine_identity();

}  // namespace consist::network
