#include "consist/handshake.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "consist/log.h"

namespace consist::network {
namespace {

constexpr std::size_t hello_bytes = handshake_magic.size() + nonce_bytes + sizeof(std::uint16_t);
constexpr std::size_t max_accepts_per_turn = 64;  // so that a flood cannot keep the caller from its own connections
constexpr std::size_t max_warnings = 16;
constexpr std::chrono::milliseconds pause_without_descriptors{100};

/// Writes at once or not at all: the few bytes of a handshake always fit into an empty send buffer.
bool send_now(const Socket& socket, const std::string& bytes) {
  return try_send(socket, std::as_bytes(std::span(bytes))).bytes == bytes.size();
}

}  // namespace

Gate::Gate(Socket listener, std::string secret, std::string purpose, std::string what, std::size_t max_pending)
    : listener_(std::move(listener)),
      secret_(std::move(secret)),
      purpose_(std::move(purpose)),
      what_(std::move(what)),
      max_pending_(max_pending) {}

void Gate::watch(std::vector<pollfd>& entries) const {
  if (Clock::now() >= accept_after_) entries.push_back({listener_.fd(), POLLIN, 0});
  for (const Pending& pending : pending_) entries.push_back({pending.socket.fd(), POLLIN, 0});
}

std::vector<Admitted> Gate::serve() {
  accept_new();
  std::vector<Admitted> admitted;
  const Deadline now = Clock::now();
  std::erase_if(pending_, [&](Pending& pending) {
    Verdict verdict = serve_one(pending);
    if (verdict == Verdict::wait && now >= pending.deadline) {
      refuse(pending, "no complete handshake in time");
      verdict = Verdict::refuse;
    }
    if (verdict == Verdict::admit) admitted.push_back({std::move(pending.socket), std::move(pending.claim)});
    return verdict != Verdict::wait;
  });
  return admitted;
}

void Gate::accept_new() {
  if (Clock::now() < accept_after_) return;
  for (std::size_t i = 0; i < max_accepts_per_turn; ++i) {
    int error = 0;
    Socket socket = accept_from(listener_, error);
    if (!socket) {
      if (error != 0) {
        // Give back what strangers hold, and do not spin on a listener that stays readable.
        if (!std::exchange(short_of_resources_, true)) log::warn(what_ + " cannot take a connection: " + describe_error(error));
        if (!pending_.empty()) pending_.pop_front();
        accept_after_ = Clock::now() + pause_without_descriptors;
      }
      return;
    }
    if (pending_.size() >= max_pending_) {
      refuse(pending_.front(), "too many unfinished handshakes");
      pending_.pop_front();
    }
    Pending pending;
    pending.socket = std::move(socket);
    pending.deadline = Clock::now() + handshake_time;
    pending_.push_back(std::move(pending));
  }
}

Gate::Verdict Gate::serve_one(Pending& pending) {
  while (true) {
    std::size_t want = proof_bytes;
    if (!pending.challenged) {
      want = hello_bytes;
      if (pending.received.size() >= hello_bytes) {
        std::uint16_t claim_bytes = 0;
        std::memcpy(&claim_bytes, pending.received.data() + hello_bytes - sizeof(claim_bytes), sizeof(claim_bytes));
        want += claim_bytes;
      }
    }
    if (pending.received.size() < want) {
      // Never more than the handshake's next field: what comes after it belongs to the owner of the admitted socket.
      char buffer[hello_bytes + max_claim_bytes];
      const std::size_t room = std::min(want - pending.received.size(), sizeof(buffer));
      const Moved moved = try_receive(pending.socket, std::as_writable_bytes(std::span(buffer)).first(room));
      if (moved.closed) return Verdict::refuse;  // gave up by itself: nothing to complain about
      if (moved.bytes == 0) return Verdict::wait;
      pending.received.append(buffer, moved.bytes);
      const std::size_t compared = std::min(pending.received.size(), handshake_magic.size());
      if (!pending.challenged && pending.received.compare(0, compared, handshake_magic.substr(0, compared)) != 0) {
        refuse(pending, "not the greeting of a Consist rank");
        return Verdict::refuse;
      }
      if (!pending.challenged && pending.received.size() == hello_bytes) {
        std::uint16_t claim_bytes = 0;
        std::memcpy(&claim_bytes, pending.received.data() + hello_bytes - sizeof(claim_bytes), sizeof(claim_bytes));
        if (claim_bytes > max_claim_bytes) {
          refuse(pending, "a greeting of absurd length");
          return Verdict::refuse;
        }
      }
      continue;
    }
    if (pending.challenged) return check_proof(pending);
    const Verdict verdict = challenge(pending);
    if (verdict != Verdict::wait) return verdict;
  }
}

Gate::Verdict Gate::challenge(Pending& pending) {
  std::copy_n(pending.received.data() + handshake_magic.size(), nonce_bytes, pending.client.data());
  pending.claim = pending.received.substr(hello_bytes);
  pending.received.clear();
  pending.server = make_nonce();
  pending.challenged = true;
  const std::string answer = std::string(handshake_magic) + std::string(pending.server.data(), pending.server.size());
  return send_now(pending.socket, answer) ? Verdict::wait : Verdict::refuse;
}

Gate::Verdict Gate::check_proof(Pending& pending) {
  const std::string expected = make_proof(secret_, Side::client, purpose_, pending.client, pending.server, pending.claim);
  if (!proofs_equal(pending.received, expected)) {
    refuse(pending, "it does not know the job's token, or wants something else");
    return Verdict::refuse;
  }
  const std::string proof = make_proof(secret_, Side::server, purpose_, pending.client, pending.server, pending.claim);
  return send_now(pending.socket, proof) ? Verdict::admit : Verdict::refuse;
}

void Gate::refuse(const Pending& pending, const char* why) {
  const std::string from = remote_endpoint(pending.socket).address;
  if (warned_.size() >= max_warnings || std::find(warned_.begin(), warned_.end(), from) != warned_.end()) return;
  warned_.push_back(from);
  log::warn(what_ + " turned away a connection from " + (from.empty() ? "an unknown address" : from) + ": " + why +
            " (said once per address)");
}

}  // namespace consist::network
