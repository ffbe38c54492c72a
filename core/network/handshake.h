// Proof of a shared secret over a fresh connection, in both directions, without the secret ever on the wire.
//
//     client → server   magic, client nonce, claim (who I say I am)
//     server → client   magic, server nonce
//     client → server   HMAC-SHA256(secret, "client", purpose, nonces, claim)
//     server → client   HMAC-SHA256(secret, "server", purpose, nonces, claim)      only after the client's proof was right
//
// This keeps out whoever does not know the secret. What follows on the connection is neither encrypted nor signed: a network in
// which others can alter packets between the ranks needs protection below (WireGuard, IPsec).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/network/socket.h"

namespace consist::network {

inline constexpr std::size_t nonce_bytes = 32;
inline constexpr std::size_t proof_bytes = 32;
inline constexpr std::size_t max_claim_bytes = 512;
inline constexpr std::string_view handshake_magic = "CONSIST1";

using Nonce = std::array<char, nonce_bytes>;

enum class Side { client, server };

/// Random bytes of the system. Throws SystemError.
Nonce make_nonce();

/// `bytes` random bytes as twice as many hexadecimal digits.
std::string random_hex(std::size_t bytes);

/// The proof that `side` sends: proof_bytes bytes.
std::string make_proof(std::string_view secret, Side side, std::string_view purpose, const Nonce& client, const Nonce& server,
                       std::string_view claim);

/// Compares in constant time.
bool proofs_equal(std::string_view a, std::string_view b) noexcept;

/// The client's side on a connected socket. Throws SystemError saying what went wrong: closed, timed out, not a Consist job, or a
/// server that does not know the secret.
void prove_to_server(const Socket& socket, std::string_view secret, std::string_view purpose, std::string_view claim,
                     Deadline deadline);

/// Writes or reads exactly these bytes. Throws SystemError.
void send_all(const Socket& socket, std::string_view bytes, Deadline deadline);
std::string receive_exactly(const Socket& socket, std::size_t count, Deadline deadline);

}  // namespace consist::network
