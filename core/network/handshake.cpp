#include "consist/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <poll.h>

#include <algorithm>
#include <vector>

#include "consist/error.h"
#include "consist/wire.h"

namespace consist::network {

Nonce make_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1) {
    throw SystemError("the system's random number generator failed");
  }
  return nonce;
}

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  if (RAND_bytes(raw.data(), static_cast<int>(raw.size())) != 1) {
    throw SystemError("the system's random number generator failed");
  }
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : raw) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string make_proof(std::string_view secret, Side side, std::string_view purpose, const Nonce& client, const Nonce& server,
                       std::string_view claim) {
  // Every field is counted, so that no two different sets of fields make the same message.
  const std::string message = WireWriter()
                                  .text(side == Side::client ? "client" : "server")
                                  .text(purpose)
                                  .text({client.data(), client.size()})
                                  .text({server.data(), server.size()})
                                  .text(claim)
                                  .take();
  std::string proof(proof_bytes, '\0');
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(message.data()),
           message.size(), reinterpret_cast<unsigned char*>(proof.data()), &length) == nullptr ||
      length != proof_bytes) {
    throw SystemError("libcrypto cannot compute an HMAC-SHA256");
  }
  return proof;
}

bool proofs_equal(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void send_all(const Socket& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const Moved moved = try_send(socket, std::as_bytes(std::span(bytes)));
    if (moved.closed) throw SystemError("the other side went away: " + describe_error(moved.error));
    bytes.remove_prefix(moved.bytes);
    if (moved.bytes == 0 && !wait_for(socket, POLLOUT, deadline)) throw SystemError("the other side does not read");
  }
}

std::string receive_exactly(const Socket& socket, std::size_t count, Deadline deadline) {
  std::string bytes(count, '\0');
  std::size_t have = 0;
  while (have < count) {
    const Moved moved = try_receive(socket, std::as_writable_bytes(std::span(bytes)).subspan(have));
    if (moved.closed) throw SystemError("the other side went away: " + describe_error(moved.error));
    have += moved.bytes;
    if (moved.bytes == 0 && !wait_for(socket, POLLIN, deadline)) throw SystemError("the other side does not answer");
  }
  return bytes;
}

void prove_to_server(const Socket& socket, std::string_view secret, std::string_view purpose, std::string_view claim,
                     Deadline deadline) {
  if (claim.size() > max_claim_bytes)
    throw Error("a handshake's claim is longer than " + std::to_string(max_claim_bytes) + " bytes");
  const Nonce client = make_nonce();
  const std::string hello = std::string(handshake_magic) + std::string(client.data(), client.size()) +
                            WireWriter().integer(static_cast<std::uint16_t>(claim.size())).take() + std::string(claim);
  send_all(socket, hello, deadline);
  const std::string answer = receive_exactly(socket, handshake_magic.size() + nonce_bytes, deadline);
  if (!answer.starts_with(handshake_magic)) throw SystemError("what listens there is not a Consist job of this version");
  Nonce server;
  std::copy_n(answer.data() + handshake_magic.size(), nonce_bytes, server.data());
  send_all(socket, make_proof(secret, Side::client, purpose, client, server, claim), deadline);
  const std::string proof = receive_exactly(socket, proof_bytes, deadline);
  if (!proofs_equal(proof, make_proof(secret, Side::server, purpose, client, server, claim))) {
    throw SystemError("what listens there does not know the job's token");
  }
}

}  // namespace consist::network
