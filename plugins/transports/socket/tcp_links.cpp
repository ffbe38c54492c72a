#include "plugins/transports/socket/tcp_links.h"

#include <algorithm>
#include <exception>
#include <set>
#include <span>
#include <utility>

#include "consist/error.h"

namespace consist {
namespace {

using network::Clock;
using std::chrono::milliseconds;

// Period at which a wait that receives nothing checks whether the job has failed.
constexpr milliseconds failure_poll{50};

// A smaller message, such as the head of a call, goes together with the one behind it: who posts it posts more or waits soon.
constexpr std::size_t sent_at_once = 64;

}  // namespace

TcpLinks::TcpLinks(Job& job, std::string group, int index, std::vector<int> ranks, std::vector<network::Socket> sockets)
    : job_(job), group_(std::move(group)), index_(index), ranks_(std::move(ranks)), connections_(ranks_.size()) {
  for (std::size_t i = 0; i < connections_.size(); ++i) connections_[i].socket = std::move(sockets.at(i));
  path_ = describe_path();
  polled_.reserve(connections_.size());
}

TcpLinks::Connection& TcpLinks::connection(int member) {
  if (member < 0 || member >= size() || member == index_) {
    throw ProgramError("member " + std::to_string(index_) + " of group '" + group_ + "' has no connection to member " +
                       std::to_string(member) + " of " + std::to_string(size()));
  }
  return connections_[static_cast<std::size_t>(member)];
}

template <typename Byte>
PointToPoint::Ticket TcpLinks::post(Pending<Byte>& pending, Byte* data, std::size_t bytes) {
  if (pending.posted - pending.finished >= max_posted) {
    throw ProgramError("more than " + std::to_string(max_posted) + " unfinished messages to one member of group '" + group_ +
                       "'");
  }
  require_open();
  pending.at(pending.posted) = {data, bytes};
  ++pending.posted;
  pending.drop_finished();
  return pending.posted;
}

PointToPoint::Ticket TcpLinks::post_send(int to, const void* data, std::size_t bytes) {
  Connection& peer = connection(to);
  peer.held_back |= peer.out.empty();
  const Ticket ticket = post(peer.out, static_cast<const std::byte*>(data), bytes);
  // Gets the bytes on their way while the caller does something else.
  if (peer.held_back && bytes >= sent_at_once) pump_out(to, peer);
  return ticket;
}

PointToPoint::Ticket TcpLinks::post_receive(int from, void* data, std::size_t bytes) {
  Connection& peer = connection(from);
  return post(peer.in, static_cast<std::byte*>(data), bytes);
}

void TcpLinks::wait_sent(int to, Ticket ticket) {
  wait(to, connection(to).out, ticket);
}
void TcpLinks::wait_received(int from, Ticket ticket) {
  wait(from, connection(from).in, ticket);
}

template <typename Byte>
void TcpLinks::wait(int member, const Pending<Byte>& pending, Ticket ticket) {
  if (pending.finished >= ticket) return;
  const Connection& peer = connection(member);
  auto alive = Clock::now();
  std::uint64_t moved = peer.moved;
  while (true) {
    const bool progress = pump();
    if (pending.finished >= ticket) return;
    if (progress) continue;
    if (job_.failed()) job_.check();
    block();
    const auto now = Clock::now();
    if (peer.moved != moved) {
      moved = peer.moved;
      alive = now;
    } else if (now - alive > job_.timeout()) {
      broken(member, "no byte moved for " + std::to_string(job_.timeout().count()) + " ms");
    }
  }
}

bool TcpLinks::pump() {
  bool moved = false;
  for (int member = 0; member < size(); ++member) {
    Connection& peer = connections_[static_cast<std::size_t>(member)];
    if (!peer.in.empty()) moved |= pump_in(member, peer);
    if (!peer.out.empty()) moved |= pump_out(member, peer);
  }
  return moved;
}

bool TcpLinks::pump_out(int member, Connection& peer) {
  std::array<iovec, at_once> pieces;
  const network::Moved moved = network::try_send(peer.socket, std::span<const iovec>(pieces.data(), peer.out.pieces(pieces)));
  peer.held_back = false;
  bytes_sent_ += static_cast<std::int64_t>(moved.bytes);
  return advance(member, peer, peer.out, moved);
}

bool TcpLinks::pump_in(int member, Connection& peer) {
  std::array<iovec, at_once> pieces;
  const network::Moved moved = network::try_receive(peer.socket, std::span<const iovec>(pieces.data(), peer.in.pieces(pieces)));
  return advance(member, peer, peer.in, moved);
}

template <typename Byte>
bool TcpLinks::advance(int member, Connection& peer, Pending<Byte>& pending, const network::Moved& moved) {
  if (moved.closed) broken(member, network::describe_error(moved.error));
  pending.count_moved(moved.bytes);
  peer.moved += moved.bytes;
  return moved.bytes > 0;
}

void TcpLinks::block() {
  polled_.clear();
  for (const Connection& peer : connections_) {
    const int events = (peer.in.empty() ? 0 : POLLIN) | (peer.out.empty() ? 0 : POLLOUT);
    if (events != 0) polled_.push_back({peer.socket.fd(), static_cast<short>(events), 0});
  }
  poll(polled_.data(), polled_.size(), static_cast<int>(std::min(failure_poll, job_.timeout()).count()));
}

void TcpLinks::require_open() const {
  if (abandoned_) throw SystemError("group '" + group_ + "' has failed before");
}

void TcpLinks::abandon() noexcept {
  abandoned_ = true;
  for (Connection& peer : connections_) {
    peer.in.finished = peer.in.posted;
    peer.out.finished = peer.out.posted;
  }
}

void TcpLinks::broken(int member, const std::string& how) {
  const int rank = ranks_[static_cast<std::size_t>(member)];
  job_.blame(rank, "connection to rank " + std::to_string(rank) + " in group '" + group_ + "': " + how);
  std::terminate();  // the compiler does not know that a virtual function never returns
}

std::string TcpLinks::describe_path() const {
  const std::vector<network::InterfaceAddress> own = network::interface_addresses();
  const auto find = [&](const std::string& address) {
    return std::find_if(own.begin(), own.end(), [&](const auto& entry) { return entry.address == address; });
  };
  const auto loopback = std::find_if(own.begin(), own.end(), [](const auto& entry) { return entry.loopback; });
  std::set<std::string> paths;
  for (const Connection& peer : connections_) {
    if (!peer.socket) continue;
    const std::string local = network::local_endpoint(peer.socket).address;
    const std::string remote = network::remote_endpoint(peer.socket).address;
    // Packets between two addresses of one machine take its loopback interface, whichever interface the addresses belong to.
    const auto interface = find(remote) != own.end() && loopback != own.end() ? loopback : find(local);
    paths.insert("tcp " + local + " on " + (interface == own.end() ? "an unknown interface" : interface->interface));
  }
  std::string text;
  for (const std::string& path : paths) text += (text.empty() ? "" : ", ") + path;
  return text.empty() ? "none (one member)" : text;
}

}  // namespace consist
