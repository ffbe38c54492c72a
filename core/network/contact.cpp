#include "consist/contact.h"

#include <algorithm>
#include <thread>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/wire.h"

namespace consist::network {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds attempt_time{4000};
constexpr milliseconds pause_between_rounds{50};

}  // namespace

std::string Contact::encode() const {
  WireWriter writer;
  writer.text(machine).integer(port).integer(static_cast<std::uint16_t>(addresses.size()));
  for (const std::string& address : addresses) writer.text(address);
  return writer.take();
}

Contact Contact::decode(std::string_view bytes) {
  WireReader reader(bytes);
  Contact contact;
  contact.machine = reader.text();
  contact.port = reader.integer<std::uint16_t>();
  const auto count = reader.integer<std::uint16_t>();
  for (int i = 0; i < count; ++i) contact.addresses.emplace_back(reader.text());
  return contact;
}

Contact contact_of(const Socket& listener) {
  Contact contact{machine_identity(), local_endpoint(listener).port, {}};
  for (const InterfaceAddress& entry : interface_addresses()) {
    if (!entry.loopback) contact.addresses.push_back(entry.address);
  }
  return contact;
}

Socket listen_for(const std::vector<std::string>& machines) {
  const std::string own = machine_identity();
  if (!std::ranges::all_of(machines, [&](const std::string& machine) { return machine == own; })) return listen_on("", 0);
  try {
    return listen_on("127.0.0.1", 0);
  } catch (const SystemError&) {
    return listen_on("::1", 0);  // a machine of IPv6 alone
  }
}

std::vector<std::string> ways_to(const Contact& there, const Contact& here) {
  if (there.machine == here.machine) return {"127.0.0.1", "::1"};
  std::vector<std::string> ways = there.addresses;
  std::erase_if(ways,
                [&](const std::string& address) { return std::ranges::find(here.addresses, address) != here.addresses.end(); });
  return ways;
}

Socket connect_and_prove(const std::vector<std::string>& addresses, std::uint16_t port, const Introduction& introduction,
                         Deadline deadline, const std::function<void()>& check, const std::string& from) {
  std::string reason = "it offers no address";
  while (!addresses.empty() && Clock::now() < deadline) {
    for (const std::string& address : addresses) {
      check();
      try {
        Socket socket = connect_to(address, port, std::min(deadline, Clock::now() + attempt_time), from);
        prove_to_server(socket, introduction.secret, introduction.purpose, introduction.claim,
                        std::min(deadline, Clock::now() + introduction.timeout));
        return socket;
      } catch (const SystemError& error) {
        reason = error.what();
      }
    }
    std::this_thread::sleep_for(pause_between_rounds);
  }
  throw SystemError(reason);
}

}  // namespace consist::network
