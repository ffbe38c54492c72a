#include "plugins/transports/socket/connect.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "consist/contact.h"
#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/host_transport.h"
#include "consist/wire.h"

namespace consist {
namespace {

using network::Clock;
using network::Contact;
using network::Deadline;
using network::Socket;

/// The addresses of this host that `interface` means: those of an interface, or that one address; empty: all but loopback.
std::vector<network::InterfaceAddress> chosen_addresses(const std::string& interface) {
  std::vector<network::InterfaceAddress> chosen;
  std::string known;
  for (const network::InterfaceAddress& entry : network::interface_addresses()) {
    const bool meant = interface.empty() ? !entry.loopback : entry.interface == interface || entry.address == interface;
    if (meant) chosen.push_back(entry);
    known += (known.empty() ? "" : ", ") + entry.interface + " (" + entry.address + ")";
  }
  if (chosen.empty() && !interface.empty()) {
    throw UsageError("--socket.interface is '" + interface + "', but this host has no such interface or address; it has " +
                     known);
  }
  return chosen;
}

std::vector<std::string> addresses_to_offer(const std::string& interface) {
  std::vector<std::string> addresses;
  for (const network::InterfaceAddress& entry : chosen_addresses(interface)) addresses.push_back(entry.address);
  return addresses;
}

class Connector {
 public:
  Connector(Job& job, const GroupRequest& group, const SocketOptions& options)
      : job_(job), group_(group), options_(options), sockets_(group.ranks.size()) {}

  std::vector<Socket> connect_all() {
    own_.machine = network::machine_identity();
    own_.addresses = addresses_to_offer(options_.interface);
    Socket listener = listen();
    if (!options_.interface.empty()) own_.addresses.resize(1);
    own_.port = network::local_endpoint(listener).port;
    network::Gate gate(std::move(listener), std::string(job_.token()), purpose(group_.index), "transport socket");
    for (const std::string& text : exchange_texts(job_, group_, "socket.contact", own_.encode()))
      contacts_.push_back(Contact::decode(text));
    deadline_ = Clock::now() + job_.timeout();
    // Each member connects to those before it and is connected to by those after it; the first has nobody to wait for, so all
    // come through.
    for (int member = 0; member < group_.index; ++member) socket(member) = connect_one(member);
    accept_rest(gate);
    for (Socket& socket : sockets_) {
      if (socket && options_.buffer_bytes > 0) set_buffers(socket);
    }
    return std::move(sockets_);
  }

 private:
  Socket listen() {
    if (!options_.interface.empty()) return network::listen_on(own_.addresses.front(), 0);
    return network::listen_for(exchange_texts(job_, group_, "socket.machine", own_.machine));
  }

  Socket& socket(int member) { return sockets_[static_cast<std::size_t>(member)]; }
  /// Bound into every proof, so that a connection that reached the wrong listener, or comes from another generation of the job,
  /// is noticed on both ends.
  std::string purpose(int to) const {
    return "socket/" + std::to_string(job_.generation()) + "/" + group_.name + "/to/" + std::to_string(to);
  }
  std::string name(int member) const {
    return "rank " + std::to_string(group_.ranks[static_cast<std::size_t>(member)]) + " (member " + std::to_string(member) +
           " of group '" + group_.name + "')";
  }

  [[noreturn]] void blame(int member, const std::string& what) {
    job_.blame(group_.ranks[static_cast<std::size_t>(member)], what);
    std::terminate();  // the compiler does not know that a virtual function never returns
  }

  Socket connect_one(int member) {
    const Contact& contact = contacts_[static_cast<std::size_t>(member)];
    // One that the user has named is taken on one machine, too.
    const bool as_named = contact.machine == own_.machine && !options_.interface.empty();
    const std::string claim = network::WireWriter().integer(static_cast<std::int32_t>(group_.index)).take();
    const std::string where = purpose(member);
    try {
      return network::connect_and_prove(
          as_named ? contact.addresses : network::ways_to(contact, own_), contact.port,
          {.secret = job_.token(), .purpose = where, .claim = claim, .timeout = job_.timeout()}, deadline_,
          [this] { job_.check(); }, options_.interface.empty() ? std::string() : own_.addresses.front());
    } catch (const SystemError& error) {
      blame(member, "cannot connect to " + name(member) + ": " + error.what());
    }
  }

  void accept_rest(network::Gate& gate) {
    std::vector<pollfd> entries;
    while (true) {
      int missing = -1;
      for (int member = group_.index + 1; member < static_cast<int>(sockets_.size()); ++member) {
        if (!socket(member)) missing = member;
      }
      if (missing < 0) return;
      if (Clock::now() >= deadline_) {
        blame(missing, name(missing) + " did not connect in time");
      }
      job_.check();
      entries.clear();
      gate.watch(entries);
      poll(entries.data(), entries.size(), 50);
      for (network::Admitted& admitted : gate.serve()) {
        network::WireReader reader(admitted.claim);
        const int member = reader.integer<std::int32_t>();
        if (member <= group_.index || member >= static_cast<int>(sockets_.size())) {
          throw ProgramError(name(group_.index) + " was connected to by member " + std::to_string(member));
        }
        socket(member) = std::move(admitted.socket);
      }
    }
  }

  void set_buffers(const Socket& socket) const {
    const int bytes = static_cast<int>(std::min<std::int64_t>(options_.buffer_bytes, 1 << 30));
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }

  Job& job_;
  const GroupRequest& group_;
  const SocketOptions& options_;
  Deadline deadline_;  // to connect, once all have come
  Contact own_;
  std::vector<Contact> contacts_;  // by member
  std::vector<Socket> sockets_;
};

}  // namespace

std::unique_ptr<TcpLinks> connect_members(Job& job, const GroupRequest& group, const SocketOptions& options) {
  std::vector<Socket> sockets(group.ranks.size());
  if (group.ranks.size() > 1) sockets = Connector(job, group, options).connect_all();
  return std::make_unique<TcpLinks>(job, group.name, group.index, group.ranks, std::move(sockets));
}

std::string interface_name(const std::string& interface) {
  return interface.empty() ? interface : chosen_addresses(interface).front().interface;
}

}  // namespace consist
