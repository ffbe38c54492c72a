#include "launch/start/roll_call.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "consist/contact.h"
#include "consist/error.h"

namespace consist::launch {
namespace {

using network::Clock;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* purpose = "roll call";
constexpr milliseconds between_beats{1'000};
// A host without power sends nothing more, and no end of its connection either.
constexpr milliseconds longest_silence{8'000};
// Node 0 is silent while it waits for the ends of ranks.
constexpr milliseconds longest_silence_of_node_0{180'000};
constexpr milliseconds between_tries{500};
constexpr milliseconds time_to_tell{2'000};
constexpr std::size_t most_bytes = 1'000'000;  // of a message
constexpr char beat = '.', end_of_message = '\n';

void tell(const network::Socket& socket, const json& message) {
  try {
    network::send_all(socket, message.dump() + end_of_message, Clock::now() + time_to_tell);
  } catch (const SystemError&) {
    return;  // it is gone, which shows
  }
}

network::Socket listen(const MeetingPlace& place) {
  return network::listen_on(network::is_loopback(place.host) ? place.host : "", place.port);
}

/// Somebody has asked for the end of a wait.
struct Stopped {};

/// A connection to node 0.
class Visit {
 public:
  Visit(const MeetingPlace& place, const std::function<bool()>& stopped, network::Deadline deadline) : stopped_(stopped) {
    const std::string claim = json{{"node", place.node}, {"nodes", place.nodes}}.dump();
    socket_ = network::connect_and_prove({place.host}, place.port,
                                         {.secret = place.token, .purpose = purpose, .claim = claim, .timeout = milliseconds(5'000)},
                                         deadline, [this] {
                                           if (stopped_()) throw Stopped{};
                                         });
  }

  /// Returns what node 0 says; nothing if the connection has ended.
  std::optional<json> hear() {
    std::string message;
    auto heard = Clock::now();
    while (Clock::now() - heard < longest_silence_of_node_0) {
      if (stopped_()) throw Stopped{};
      network::wait_for(socket_, POLLIN, Clock::now() + milliseconds(100));
      std::array<std::byte, 4096> piece{};
      const network::Moved moved = network::try_receive(socket_, piece);
      for (std::size_t i = 0; i < moved.bytes; ++i) {
        heard = Clock::now();
        const char byte = static_cast<char>(piece[i]);
        if (byte == beat && message.empty()) {
          const std::byte echo{static_cast<unsigned char>(beat)};
          network::try_send(socket_, std::span(&echo, 1));
        } else if (byte == end_of_message) {
          return json::parse(message, nullptr, false);
        } else {
          message += byte;
        }
      }
      if (moved.closed || message.size() > most_bytes) break;
    }
    return std::nullopt;
  }

 private:
  const std::function<bool()>& stopped_;
  network::Socket socket_;
};

}  // namespace

RollCall::RollCall(MeetingPlace place)
    : place_(std::move(place)), gate_(listen(place_), place_.token, purpose, "the launchers' meeting place") {}

RollCall::~RollCall() {
  for (const Guest& guest : guests_) tell(guest.socket, {{"over", "the job has ended without this node"}});
}

void RollCall::watch(std::vector<pollfd>& entries) const {
  gate_.watch(entries);
  for (const Guest& guest : guests_) entries.push_back({guest.socket.fd(), POLLIN, 0});
}

void RollCall::serve() {
  for (network::Admitted& admitted : gate_.serve()) admit(std::move(admitted));
  std::erase_if(guests_, [this](Guest& guest) { return !is_there(guest); });
}

bool RollCall::is_there(Guest& guest) const {
  std::array<std::byte, 256> piece{};
  const network::Moved moved = network::try_receive(guest.socket, piece);
  const auto now = Clock::now();
  if (moved.closed) return false;
  if (moved.bytes > 0) guest.heard = now;
  if (now >= guest.next_beat) {
    // After a time in which nobody called serve(), the guest has one beat's time to answer.
    if (now - guest.next_beat > longest_silence / 2) guest.heard = now;
    guest.next_beat = now + between_beats;
    const std::byte one{static_cast<unsigned char>(beat)};
    network::try_send(guest.socket, std::span(&one, 1));
  }
  return now - guest.heard < longest_silence;
}

void RollCall::admit(network::Admitted admitted) {
  const json claim = json::parse(admitted.claim, nullptr, false);
  if (!claim.is_object() || !claim.contains("node") || !claim.contains("nodes")) return;
  const int node = claim["node"].get<int>(), nodes = claim["nodes"].get<int>();
  if (nodes != place_.nodes || node < 1 || node >= nodes)
    return tell(admitted.socket, {{"refused", "node 0 was started with --nnodes " + std::to_string(place_.nodes) + ", node " +
                                                  std::to_string(node) + " with --nnodes " + std::to_string(nodes)}});
  const auto same = std::ranges::find(guests_, node, &Guest::node);
  if (same != guests_.end()) {
    tell(same->socket, {{"over", "another launcher has come as node " + std::to_string(node)}});
    guests_.erase(same);
  }
  guests_.push_back({node, std::move(admitted.socket), Clock::now(), Clock::now()});
}

std::vector<int> RollCall::present() const {
  std::vector<int> nodes{0};
  for (const Guest& guest : guests_) nodes.push_back(guest.node);
  std::ranges::sort(nodes);
  return nodes;
}

void RollCall::dismiss(const Crew& crew) {
  std::erase_if(guests_, [&](const Guest& guest) {
    if (std::ranges::find(crew.nodes, guest.node) == crew.nodes.end()) return false;
    tell(guest.socket, {{"crew", crew.nodes}, {"port", crew.port}});
    return true;
  });
}

std::optional<Crew> answer_roll_call(const MeetingPlace& place, const std::function<bool()>& stopped, milliseconds patience) {
  auto deadline = Clock::now() + patience;
  try {
    for (bool first = true;; first = false) {
      if (!first) std::this_thread::sleep_for(between_tries);
      Visit visit(place, stopped, deadline);
      const std::optional<json> said = visit.hear();
      deadline = Clock::now() + patience;
      if (!said || !said->is_object()) continue;  // the connection has ended
      if (said->contains("over")) throw NotNeeded{said->at("over").get<std::string>()};
      if (said->contains("refused")) throw UsageError(said->at("refused").get<std::string>());
      if (said->contains("crew")) return Crew{said->at("crew").get<std::vector<int>>(), said->at("port").get<std::uint16_t>()};
    }
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

}  // namespace consist::launch
