// Any bytes on a trusted connection of a job, as rank 0's server hears them and as a rank hears the server: both come to an end,
// and say so with an Error. The first byte chooses who listens and whether what follows is put into frames.
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "consist/error.h"
#include "consist/socket.h"
#include "core/job/job_member.h"
#include "core/job/job_server.h"

namespace {

using namespace consist;

/// Frames of generation 0 and of up to 255 bytes, whose lengths are bytes of the input.
std::string framed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const auto length =
        std::min<std::uint32_t>(static_cast<unsigned char>(bytes[0]), static_cast<std::uint32_t>(bytes.size() - 1));
    out += network::WireWriter().integer(length).integer(std::uint32_t{0}).take();
    out += bytes.substr(1, length);
    bytes.remove_prefix(1 + length);
  }
  return out;
}

/// A connection of which one end has been sent everything already. What a socket does not take is left away.
std::pair<network::Socket, network::Socket> connection(std::string_view sent) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  std::pair<network::Socket, network::Socket> sockets{network::Socket(ends[0]), network::Socket(ends[1])};
  if (!sent.empty() && send(ends[1], sent.data(), sent.size(), MSG_NOSIGNAL) < 0) std::abort();
  shutdown(ends[1], SHUT_WR);
  return sockets;
}

void serve(std::string_view sent, int size) {
  auto [own, other] = connection(sent);
  JobServer server({.listener = network::listen_on("127.0.0.1", 0),
                    .own = std::move(own),
                    .own_host = "here",
                    .size = size,
                    .token = "0123456789abcdef0123456789abcdef",
                    .timeout = std::chrono::milliseconds(50)});
  // Until the server has read all of it and hung up, or has nothing more to say.
  char buffer[4096];
  timeval patience{.tv_sec = 0, .tv_usec = 20'000};
  setsockopt(other.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  for (int turns = 0; turns < 20; ++turns) {
    const ssize_t count = recv(other.fd(), buffer, sizeof buffer, 0);
    if (count == 0) break;
    if (count < 0) usleep(200);
  }
}

void listen(std::string_view sent) {
  auto [own, other] = connection(sent);
  JobAddress address;
  address.rank = address.local_rank = 1;
  address.size = address.local_size = 2;
  address.timeout = std::chrono::milliseconds(50);
  try {
    MemberJob job(address, "here", std::move(own), nullptr, network::listen_on("127.0.0.1", 0));
    job.wait_until_joined();
    job.put("key", "value");
    job.gather("name", "bytes", address.timeout, {});
    job.check();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string sent = (data[0] & 1U) != 0 ? std::string(bytes) : framed(bytes);
  if ((data[0] & 2U) != 0) {
    listen(sent);
  } else {
    serve(sent, 1 + (data[0] >> 2U) % 3);
  }
  return 0;
}
