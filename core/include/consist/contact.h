// The place where a process of a job listens, as it tells the others of the job, and connecting to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/socket.h"

namespace consist::network {

struct CONSIST_API Contact {
  std::string machine;  ///< machine_identity(): equal for processes that share a network stack
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  ///< numeric

  /// As a message to other ranks; the inverse throws DataError.
  std::string encode() const;
  static Contact decode(std::string_view bytes);
};

/// The contact of a listening socket, with all addresses of this machine but loopback's. Throws SystemError.
CONSIST_API Contact contact_of(const Socket& listener);

/// Listens on a free port for processes on these machines (Contact::machine): on loopback where all of them are this one, so that
/// no other machine sees the port. Throws SystemError.
CONSIST_API Socket listen_for(const std::vector<std::string>& machines);

/// The addresses by which a process of contact `here` may reach `there`: loopback on one machine, else those of `there` that
/// `here` lacks. An address that both have, such as that of a container bridge, would lead back.
CONSIST_API std::vector<std::string> ways_to(const Contact& there, const Contact& here);

/// The words of the client in the handshake (prove_to_server).
struct Introduction {
  std::string_view secret, purpose, claim;
  std::chrono::milliseconds timeout{};  ///< for the answer
};

/// Connects to the port by one of the addresses, tried in turn until the deadline, and proves itself. `check` is called before
/// each try; what it throws ends the tries. `from`: as connect_to(). Throws SystemError with the last reason at the deadline, and
/// at once without addresses.
CONSIST_API Socket connect_and_prove(const std::vector<std::string>& addresses, std::uint16_t port,
                                     const Introduction& introduction, Deadline deadline, const std::function<void()>& check,
                                     const std::string& from = {});

}  // namespace consist::network
