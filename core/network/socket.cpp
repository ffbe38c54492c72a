#include "consist/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "consist/error.h"
#include "core/base/system_error.h"

namespace consist::network {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw SystemError(what + ": " + describe_error(error));
}

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

void resolve(const std::string& host, std::uint16_t port, bool passive, AddressList& list) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  const int status = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list.first);
  if (status != 0) {
    throw SystemError("cannot resolve the host name '" + host +
                      "': " + (status == EAI_SYSTEM ? describe_error(errno) : std::string(gai_strerror(status))));
  }
}

Endpoint endpoint_of(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    return {text, ntohs(address.sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    // An IPv4 peer of a socket that listens on both families.
    if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
      inet_ntop(AF_INET, address.sin6_addr.s6_addr + 12, text, sizeof(text));
    } else {
      inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    }
    return {text, ntohs(address.sin6_port)};
  }
  return {};
}

void set_no_delay(int fd) {
  const int on = 1;
  // Fails on a local socket, which has no such delay.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/// Starts and finishes one connection attempt; the errno, or 0 and the socket in `out`.
int try_connect(const addrinfo& address, const std::string& from, Deadline deadline, Socket& out) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  if (!from.empty()) {
    AddressList local;
    resolve(from, 0, true, local);
    if (local.first->ai_family != address.ai_family) return EAFNOSUPPORT;
    if (bind(socket.fd(), local.first->ai_addr, local.first->ai_addrlen) != 0) return errno;
  }
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  set_no_delay(socket.fd());
  out = std::move(socket);
  return 0;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Socket::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string Endpoint::text() const {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

Socket listen_on(const std::string& host, std::uint16_t port) {
  const std::string what =
      "cannot listen on " + (host.empty() ? std::string("all addresses") : host) + " port " + std::to_string(port);
  AddressList list;
  resolve(host, port, true, list);
  // With no host, IPv6 first: such a socket takes both families.
  std::vector<const addrinfo*> order;
  for (const addrinfo* a = list.first; a != nullptr; a = a->ai_next) order.push_back(a);
  if (host.empty()) {
    std::stable_partition(order.begin(), order.end(), [](const addrinfo* a) { return a->ai_family == AF_INET6; });
  }
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address : order) {
    Socket socket(::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    if (!socket) {
      error = errno;
      continue;
    }
    setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->ai_family == AF_INET6 && host.empty()) {
      setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(socket.fd(), address->ai_addr, address->ai_addrlen) == 0 && listen(socket.fd(), SOMAXCONN) == 0) return socket;
    error = errno;
  }
  fail(what, error);
}

Socket connect_to(const std::string& host, std::uint16_t port, Deadline deadline, const std::string& from) {
  AddressList list;
  resolve(host, port, false, list);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = list.first; address != nullptr; address = address->ai_next) {
    Socket socket;
    error = try_connect(*address, from, deadline, socket);
    if (error == 0) return socket;
  }
  fail("cannot connect to " + host + " port " + std::to_string(port) + (from.empty() ? "" : " from " + from), error);
}

std::pair<Socket, Socket> connected_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) fail("cannot make a socket pair", errno);
  return {Socket(fds[0]), Socket(fds[1])};
}

Socket accept_from(const Socket& listener, int& error) {
  error = 0;
  const int fd = accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    set_no_delay(fd);
    return Socket(fd);
  }
  // A connection that was reset before it was accepted is none; only a lack of resources concerns the caller.
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) error = errno;
  return {};
}

Endpoint local_endpoint(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    fail("cannot ask for the local address of a socket", errno);
  }
  return endpoint_of(storage);
}

Endpoint remote_endpoint(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return endpoint_of(storage);
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) fail("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    // A link-local address means nothing on another machine.
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) continue;
    result.push_back({entry->ifa_name, endpoint_of(storage).address, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return result;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

Moved try_send(const Socket& socket, std::span<const std::byte> bytes) noexcept {
  while (true) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return {static_cast<std::size_t>(sent), false, 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {0, true, errno};
  }
}

Moved try_receive(const Socket& socket, std::span<std::byte> bytes) noexcept {
  while (true) {
    const ssize_t received = ::recv(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) return {static_cast<std::size_t>(received), false, 0};
    if (received == 0) return {0, !bytes.empty(), 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {0, true, errno};
  }
}

Moved try_send(const Socket& socket, std::span<const iovec> pieces) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  while (true) {
    const ssize_t sent = ::sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return {static_cast<std::size_t>(sent), false, 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {0, true, errno};
  }
}

Moved try_receive(const Socket& socket, std::span<const iovec> pieces) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  while (true) {
    const ssize_t received = ::recvmsg(socket.fd(), &message, MSG_DONTWAIT);
    if (received > 0) return {static_cast<std::size_t>(received), false, 0};
    if (received == 0) return {0, !pieces.empty(), 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {0, true, errno};
  }
}

bool wait_for(const Socket& socket, short events, Deadline deadline) {
  pollfd entry{socket.fd(), events, 0};
  while (true) {
    const int ready = poll(&entry, 1, milliseconds_until(deadline, std::chrono::seconds(60)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("cannot wait for a socket", errno);
    if (Clock::now() >= deadline) return false;
  }
}

int milliseconds_until(Deadline deadline, std::chrono::milliseconds limit) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), limit).count());
}

std::string describe_error(int error) {
  return error == 0 ? "connection closed" : system_error_text(error);
}

}  // namespace consist::network
