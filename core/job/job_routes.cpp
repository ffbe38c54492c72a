// The part of the job's server that admits the ranks and finds the way to each: its own connection, or that of its host's leader.
#include <algorithm>
#include <utility>

#include "consist/error.h"
#include "consist/wire.h"
#include "core/job/job_server.h"
#include "core/job/relay.h"

namespace consist {

using network::Clock;
using network::WireReader;
using network::WireWriter;

std::string JobServer::reason_to_refuse(const JoinClaim& claim) const {
  if (claim.generation != generation_) return other_generation(claim.generation, generation_);
  if (claim.size != size_) {
    return "it was started for a job of " + std::to_string(claim.size) + " ranks, but rank 0 for one of " + std::to_string(size_);
  }
  if (claim.rank <= 0 || claim.rank >= size_) return "its rank must be between 1 and " + std::to_string(size_ - 1);
  const Member& member = members_[static_cast<std::size_t>(claim.rank)];
  if (member.joined && member.spoke)
    return name(claim.rank) + " has joined already: two processes were started with the same rank";
  return {};
}

void JobServer::admit(network::Admitted admitted) {
  JoinClaim claim;
  try {
    claim = JoinClaim::from(admitted.claim);
  } catch (const DataError&) {
    return;  // knows the token but not the protocol: another version, which sees its connection closed
  }
  FrameStream stream(std::move(admitted.socket), claim.generation);
  if (const std::string reason = reason_to_refuse(claim); !reason.empty()) {
    stream.push(message(MessageKind::refused).text(reason).take());
    stream.flush();
    refused_.push_back(std::move(stream));
    return;
  }
  Member& member = members_[static_cast<std::size_t>(claim.rank)];
  member = Member{};
  member.stream = std::move(stream);
  member.host = std::move(claim.host);
  member.machine = number_of_machine(claim.machine);
  member.port = claim.port;
  member.joined = true;
  member.heard = Clock::now();
  if (failure_) {
    send(claim.rank, message(MessageKind::failed).integer(static_cast<std::int32_t>(failure_->rank)).text(failure_->what).take());
    return;
  }
  find_leader(claim.rank);
  settle();
}

int JobServer::number_of_machine(const std::string& machine) {
  const auto [found, added] = machines_.try_emplace(machine, static_cast<int>(machines_.size()));
  if (added) leaders_.push_back(-1);
  return found->second;
}

/// The first rank of a machine that can take in others is its leader. A rank of a machine without one stays as it is connected.
void JobServer::find_leader(int rank) {
  const Member& member = members_[static_cast<std::size_t>(rank)];
  int& leader = leaders_[static_cast<std::size_t>(member.machine)];
  if (leader >= 0) {
    if (leader > 0 && member.port == 0) lead(rank, leader);
    return;
  }
  if (member.port == 0) return;
  leader = rank;
  for (int other = 1; other < size_; ++other) {
    const Member& local = members_[static_cast<std::size_t>(other)];
    if (local.joined && local.machine == member.machine && local.port == 0 && local.leader < 0) lead(other, rank);
  }
}

void JobServer::lead(int rank, int leader) {
  members_[static_cast<std::size_t>(rank)].leader = leader;
  send(rank, message(MessageKind::lead)
                 .integer(static_cast<std::int32_t>(leader))
                 .integer(members_[static_cast<std::size_t>(leader)].port)
                 .take());
}

/// Tells all when all have joined, know it, and those who are led have gone on through their leaders.
void JobServer::settle() {
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](const Member& m) { return m.joined && m.spoke && (m.leader < 0 || m.arrived); });
  if (all && !complete_ && !failure_) all_joined();
}

void JobServer::all_joined() {
  complete_ = true;
  std::map<std::pair<int, std::string>, std::uint32_t> numbers;  // of hosts: pods of one machine have names of their own
  std::vector<std::string> hosts;
  std::vector<std::uint32_t> host_of;
  for (const Member& member : members_) {
    const auto [found, added] = numbers.try_emplace({member.machine, member.host}, static_cast<std::uint32_t>(hosts.size()));
    if (added) hosts.push_back(member.host);
    host_of.push_back(found->second);
  }
  WireWriter welcome = message(MessageKind::welcome);
  welcome.integer(static_cast<std::uint32_t>(hosts.size()));
  for (const std::string& host : hosts) welcome.text(host);
  for (const std::uint32_t host : host_of) welcome.integer(host);
  send_all(welcome.take());
}

void JobServer::handle_of_leader(int leader, MessageKind kind, WireReader& reader) {
  Member& sender = members_[static_cast<std::size_t>(leader)];
  if (kind == MessageKind::moved && sender.leader >= 0) {  // before or after its leader says so
    sender.arrived = members_[static_cast<std::size_t>(sender.leader)].leads = true;
    sender.stream.close();
    settle();
    return;
  }
  if (kind != MessageKind::relayed && kind != MessageKind::arrived && kind != MessageKind::gone)
    throw DataError("a message of an unknown kind");
  const int rank = reader.integer<std::int32_t>();
  if (rank <= 0 || rank >= size_ || members_[static_cast<std::size_t>(rank)].leader != leader)
    throw DataError("it speaks for rank " + std::to_string(rank) + ", which it does not lead");
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (kind == MessageKind::relayed) {
    handle_relayed(leader, rank, reader.rest());
  } else if (kind == MessageKind::arrived) {
    member.arrived = sender.leads = true;
    member.gone = false;
    member.heard = Clock::now();
    if (failure_)
      send(rank, message(MessageKind::failed).integer(static_cast<std::int32_t>(failure_->rank)).text(failure_->what).take());
    settle();
  } else if (member.arrived) {
    member.gone = true;
    if (!left_)
      fail(rank,
           name(rank) + " died (" + std::string(reader.text().substr(0, max_progress_bytes)) + ")" + last_heartbeat_of(rank));
  }
}

/// A message of a rank that is led: whatever is wrong with it ends that rank, and not its leader.
void JobServer::handle_relayed(int leader, int rank, std::string_view body) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (member.gone) return;
  member.heard = members_[static_cast<std::size_t>(leader)].heard;
  try {
    handle(rank, body);
  } catch (const Error& error) {
    member.gone = true;
    fail(rank,
         name(rank) + " died (it sent something that is no message of the job: " + error.what() + ")" + last_heartbeat_of(rank));
  }
}

bool JobServer::connected(const Member& member) const {
  if (!member.arrived) return member.stream.is_open();
  return !member.gone && members_[static_cast<std::size_t>(member.leader)].stream.is_open();
}

bool JobServer::hidden(const Member& member, Time now) const {
  return member.arrived && now - members_[static_cast<std::size_t>(member.leader)].heard > silence_limit(timeout_) / 2;
}

void JobServer::send(int rank, const std::string& body) {
  send(std::span(&rank, 1), body);
}

void JobServer::send(std::span<const int> ranks, const std::string& body) {
  std::map<int, std::vector<int>> by_leader;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size_) continue;
    Member& member = members_[static_cast<std::size_t>(rank)];
    if (member.arrived) {
      by_leader[member.leader].push_back(rank);
    } else if (member.stream.is_open()) {
      member.stream.push(body);
    }
  }
  for (const auto& [leader, led] : by_leader) {
    FrameStream& stream = members_[static_cast<std::size_t>(leader)].stream;
    if (!stream.is_open()) continue;
    WireWriter relayed = message(MessageKind::relayed);
    write_ranks(relayed, led);
    stream.push(relayed.bytes(body).take());
  }
}

void JobServer::send_all(const std::string& body) {
  WireWriter relayed = message(MessageKind::relayed);
  write_ranks(relayed, {});
  const std::string to_leader = relayed.bytes(body).take();
  for (Member& member : members_) {
    if (member.stream.is_open()) member.stream.push(member.leads ? to_leader : body);
  }
}

}  // namespace consist
