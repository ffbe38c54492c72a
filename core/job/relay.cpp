#include "core/job/relay.h"

#include <algorithm>
#include <utility>

#include "consist/error.h"
#include "consist/wire.h"

namespace consist {
namespace {

using network::WireReader;
using network::WireWriter;

std::string upwards(int rank, std::string_view body) {
  return message(MessageKind::relayed).integer(static_cast<std::int32_t>(rank)).bytes(body).take();
}

}  // namespace

std::string claim_at_leader(int rank, int generation) {
  return WireWriter().integer(static_cast<std::int32_t>(generation)).integer(static_cast<std::int32_t>(rank)).take();
}

std::string other_generation(int there, int here) {
  return "it belongs to generation " + std::to_string(there) + " of the job, whose ranks are in generation " +
         std::to_string(here) + ": it was started for a membership that has ended, or for another one";
}

Relay::Relay(network::Socket listener, std::string token, int leader, int generation)
    : leader_(leader),
      generation_(generation),
      gate_(std::move(listener), std::move(token), purpose_of_leader(leader), "the leader of this host's ranks") {}

void Relay::watch(std::vector<pollfd>& entries) {
  watched_.clear();
  for (const auto& [rank, led] : led_) {
    entries.push_back({led.stream.socket().fd(), static_cast<short>(POLLIN | (led.stream.has_output() ? POLLOUT : 0)), 0});
    watched_.push_back(rank);
  }
  gate_.watch(entries);
}

void Relay::serve(std::span<const pollfd> entries, FrameStream& up) {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const auto found = led_.find(watched_[i]);
    if (entries[i].revents == 0 || found == led_.end()) continue;
    serve_led(found->first, found->second, up);
    if (!found->second.stream.is_open()) led_.erase(found);
  }
  for (network::Admitted& admitted : gate_.serve()) admit(std::move(admitted));
  std::erase_if(refused_, [](FrameStream& stream) { return !stream.flush() || !stream.has_output(); });
}

void Relay::admit(network::Admitted admitted) {
  int generation = 0, rank = -1;
  try {
    WireReader reader(admitted.claim);
    generation = reader.integer<std::int32_t>();
    rank = reader.integer<std::int32_t>();
  } catch (const DataError&) {
    return;  // knows the token but not the protocol: another version, which sees its connection closed
  }
  FrameStream stream(std::move(admitted.socket), generation);
  const auto before = led_.find(rank);
  if (generation != generation_ || (before != led_.end() && before->second.spoke)) {
    const std::string reason = generation != generation_
                                   ? other_generation(generation, generation_)
                                   : name_rank(rank, "") + " has come to its leader already: two processes were started with it";
    stream.push(message(MessageKind::refused).text(reason).take());
    stream.flush();
    refused_.push_back(std::move(stream));
    return;
  }
  Led& led = led_[rank];
  led = Led{};
  led.stream = std::move(stream);
}

void Relay::serve_led(int rank, Led& led, FrameStream& up) {
  bool open = true;
  std::string how = "its connection closed without a goodbye";
  try {
    open = led.stream.fill();
    std::string_view body;
    while (led.stream.next(body)) {
      if (!std::exchange(led.spoke, true)) up.push(message(MessageKind::arrived).integer(static_cast<std::int32_t>(rank)).take());
      if (body.size() > max_message_bytes) throw DataError("a message of " + std::to_string(body.size()) + " bytes");
      if (static_cast<MessageKind>(body[0]) == MessageKind::heartbeat) {
        led.heartbeat = body;  // of which rank 0 gets one a host and interval
        continue;
      }
      pass_heartbeat(rank, led, up);
      up.push(upwards(rank, body));
    }
  } catch (const DataError& error) {
    open = false;
    how = std::string("it sent something that is no message of the job: ") + error.what();
  }
  if (open) return;
  pass_heartbeat(rank, led, up);
  up.push(message(MessageKind::gone).integer(static_cast<std::int32_t>(rank)).text(how).take());
  led.stream.close();
}

void Relay::pass_heartbeat(int rank, Led& led, FrameStream& up) {
  if (!led.heartbeat.empty()) up.push(upwards(rank, std::exchange(led.heartbeat, {})));
}

void Relay::pass_heartbeats(FrameStream& up) {
  for (auto& [rank, led] : led_) pass_heartbeat(rank, led, up);
}

void Relay::tell(std::span<const int> ranks, std::string_view body) {
  for (const int rank : ranks) {
    if (const auto found = led_.find(rank); found != led_.end()) found->second.stream.push(body);
  }
}

void Relay::tell_all(std::string_view body) {
  for (auto& [rank, led] : led_) led.stream.push(body);
}

void Relay::flush() {
  // A failed write shows again as the end of the stream on the next turn.
  for (auto& [rank, led] : led_) led.stream.flush();
}

void Relay::drain(network::Deadline deadline) {
  std::vector<FrameStream*> streams;
  for (auto& [rank, led] : led_) streams.push_back(&led.stream);
  consist::drain(streams, deadline);
}

}  // namespace consist
