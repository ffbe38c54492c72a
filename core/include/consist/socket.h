// TCP sockets: ownership, addresses, and connections whose every wait is bounded.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consist/export.h"

namespace consist::network {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// Owns a file descriptor. Movable. THREADS: one at a time.
class CONSIST_API Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void close() noexcept;
  /// Gives the descriptor up to the caller.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// A numeric IP address and a port.
struct CONSIST_API Endpoint {
  std::string address;
  std::uint16_t port = 0;
  std::string text() const;  ///< "10.0.0.1:29500", "[fe80::1]:29500"
};

/// An address of this machine, with the interface that carries it.
struct InterfaceAddress {
  std::string interface;  ///< "lo", "eth0"
  std::string address;    ///< numeric
  bool loopback = false;
};

/// The result of a non-blocking read or write. `closed`: the connection has ended, `error` says how; bytes may have moved before.
struct Moved {
  std::size_t bytes = 0;  ///< 0 and not closed: it would have had to wait
  bool closed = false;
  int error = 0;  ///< errno; 0 for an orderly end
};

/// Listens on a numeric or named local address ("" for all of this machine's, IPv6 included where there is any), non-blocking and
/// close-on-exec. Port 0 takes a free one. Throws SystemError naming address, port and reason.
CONSIST_API Socket listen_on(const std::string& host, std::uint16_t port);

/// Connects, non-blocking, close-on-exec, without Nagle's delay; `from` binds to a local address first ("" does not).
/// Names are resolved by the system, whose own time limit applies. Throws SystemError when refused or at the deadline.
CONSIST_API Socket connect_to(const std::string& host, std::uint16_t port, Deadline deadline, const std::string& from = {});

/// A connected pair within this process, non-blocking. Throws SystemError.
CONSIST_API std::pair<Socket, Socket> connected_pair();

/// The next pending connection of a listening socket, set up as connect_to does; an empty Socket if there is none (`error` is
/// then 0) or accepting failed for want of resources (`error` is the errno).
CONSIST_API Socket accept_from(const Socket& listener, int& error);

CONSIST_API Endpoint local_endpoint(const Socket& socket);   ///< throws SystemError
CONSIST_API Endpoint remote_endpoint(const Socket& socket);  ///< empty address when it is not connected any more

/// The addresses of all interfaces that are up. Throws SystemError.
CONSIST_API std::vector<InterfaceAddress> interface_addresses();

/// True if a name or numeric address means the loopback interface ("localhost", "127.0.0.1", "::1").
CONSIST_API bool is_loopback(const std::string& host);

/// Send or receive as many bytes as can be moved without waiting.
CONSIST_API Moved try_send(const Socket& socket, std::span<const std::byte> bytes) noexcept;
CONSIST_API Moved try_receive(const Socket& socket, std::span<std::byte> bytes) noexcept;
/// The same with several ranges of memory, one after the other, by one system call.
CONSIST_API Moved try_send(const Socket& socket, std::span<const iovec> pieces) noexcept;
CONSIST_API Moved try_receive(const Socket& socket, std::span<const iovec> pieces) noexcept;

/// Waits until the socket is ready for `events` (of poll) or the deadline has passed; false: passed.
CONSIST_API bool wait_for(const Socket& socket, short events, Deadline deadline);

/// Milliseconds left, for poll: never negative, rounded up, at most `limit`.
CONSIST_API int milliseconds_until(Deadline deadline, std::chrono::milliseconds limit);

/// The text of an errno, or "connection closed" for 0.
CONSIST_API std::string describe_error(int error);

}  // namespace consist::network
