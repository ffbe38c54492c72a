// The thread of a member: it owns the connection to rank 0 or to the leader of the host and, where this rank leads, those of the
// ranks that it leads.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/wire.h"
#include "core/job/job_member.h"

namespace consist {
namespace {

using network::Clock;
using network::Deadline;
using network::WireReader;
using std::chrono::milliseconds;

constexpr milliseconds move_time{2000};  // of one attempt; shorter than any limit of silence
constexpr milliseconds move_pause{100};
constexpr std::size_t most_reported = 64;  // ranks that a member says it waits for

}  // namespace

void MemberJob::run() {
  try {
    std::vector<pollfd> entries;
    while (true) {
      entries.assign({{wake_.fd(), POLLIN, 0},
                      {stream_.socket().fd(), static_cast<short>(POLLIN | (stream_.has_output() ? POLLOUT : 0)), 0}});
      const std::size_t own = entries.size();
      if (relay_) relay_->watch(entries);
      const Deadline next = lead_ ? std::min(next_move_, next_heartbeat_) : next_heartbeat_;
      poll(entries.data(), entries.size(), network::milliseconds_until(next, heartbeat_interval));
      std::uint64_t drop = 0;
      if (entries[0].revents != 0 && read(wake_.fd(), &drop, sizeof drop) < 0) drop = 0;  // another turn is as well
      if (relay_) relay_->serve(std::span(entries).subspan(own), stream_);
      turn(entries[1].revents != 0);
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    // Empty the outbox, and end the stream so that rank 0 sees an end and not a reset.
    const Deadline deadline = Clock::now() + farewell_time;
    while (stream_.is_open() && stream_.flush() && stream_.has_output() && wait_for(stream_.socket(), POLLOUT, deadline)) {
    }
    stream_.shut_down();
  } catch (const std::exception& error) {
    lose_parent(error.what());
    tell_led();
  }
  if (relay_) relay_->drain(Clock::now() + farewell_time);
}

void MemberJob::turn(bool readable) {
  const Deadline now = Clock::now();
  if (now - last_turn_ > own_stall) {  // this process itself was stopped
    heard_ = now;
    heard_parent_ = now;
  }
  last_turn_ = now;
  if (readable && stream_.is_open()) read_stream();
  if (lead_ && now >= next_move_) move_to_leader();
  if (former_.is_open() && !former_.fill()) former_.close();
  if (now >= next_heartbeat_) beat(now);
  tell_led();
  if (relay_) relay_->flush();
  std::vector<std::string> outbox;
  {
    const std::lock_guard lock(mutex_);
    outbox.swap(outbox_);
  }
  if (!stream_.is_open()) return;
  for (const std::string& body : outbox) stream_.push(body);
  stream_.flush();
}

void MemberJob::read_stream() {
  const bool open = stream_.fill();
  std::string_view body;
  while (stream_.next(body)) {
    heard_parent_ = Clock::now();
    handle(body);
  }
  if (!open) lose_parent("its connection closed without a goodbye");
}

void MemberJob::beat(Deadline now) {
  next_heartbeat_ = now + heartbeat_interval;
  const std::string progress = progress_text();
  stream_.push(message(MessageKind::heartbeat).text(progress).take());
  if (relay_) {
    relay_->pass_heartbeats(stream_);
    if (!relayed_pulse_.empty()) relay_->tell_all(std::exchange(relayed_pulse_, {}));
    relay_->tell_all(message(MessageKind::pulse).integer(static_cast<std::int32_t>(rank())).text(progress).take());
  }
  if (!stream_.is_open() || failed()) return;
  const milliseconds limit = silence_limit(address_.timeout);
  const auto of_parent = std::chrono::duration_cast<milliseconds>(now - heard_parent_.load());
  const auto silent = std::chrono::duration_cast<milliseconds>(now - heard_.load());
  if (of_parent > limit) {
    give_up(parent_, of_parent);
  } else if (silent > limit && of_parent < limit / 2) {  // a leader that is silent passes on nothing of rank 0's
    give_up(0, silent);
  }
}

void MemberJob::handle(std::string_view body) {
  WireReader reader(body);
  const auto kind = static_cast<MessageKind>(reader.integer<std::uint8_t>());
  if (kind != MessageKind::pulse) heard_ = Clock::now();
  switch (kind) {
    case MessageKind::welcome:
      handle_welcome(reader);
      break;
    case MessageKind::refused: {
      const std::lock_guard lock(mutex_);
      refusal_ = std::string(reader.text());
      break;
    }
    case MessageKind::lead: {
      const int leader = reader.integer<std::int32_t>();
      lead_ = Lead{leader, reader.integer<std::uint16_t>()};
      next_move_ = Clock::now();
      return;
    }
    case MessageKind::answer: {
      const auto id = reader.integer<std::uint64_t>();
      const bool found = reader.integer<std::uint8_t>() != 0;
      const std::lock_guard lock(mutex_);
      const auto request = requests_.find(id);
      if (request != requests_.end()) request->second = Answer{found, std::string(reader.text())};
      break;
    }
    case MessageKind::delivered:
      handle_delivered(reader);
      break;
    case MessageKind::report_please:
      answer_inquiry();
      return;
    case MessageKind::pulse: {
      const int of = reader.integer<std::int32_t>();
      if (of == 0) heard_ = Clock::now();
      const std::lock_guard lock(mutex_);
      if (of == 0 || of == parent_) progress_of_[of] = reader.text();
      return;
    }
    case MessageKind::failed: {
      const int culprit = reader.integer<std::int32_t>();
      set_failure(culprit, std::string(reader.text()));
      return;
    }
    case MessageKind::left: {
      const std::lock_guard lock(mutex_);
      left_ = true;
      break;
    }
    case MessageKind::relayed:
      handle_relayed(reader);
      return;
    default:
      throw DataError("rank 0 sent a message of an unknown kind");
  }
  changed_.notify_all();
}

void MemberJob::handle_welcome(WireReader& reader) {
  std::vector<std::string> hosts;
  for (auto left = reader.integer<std::uint32_t>(); left > 0; --left) hosts.emplace_back(reader.text());
  std::vector<std::uint32_t> host_of;
  for (int rank = 0; rank < size(); ++rank) {
    host_of.push_back(reader.integer<std::uint32_t>());
    if (host_of.back() >= hosts.size()) throw DataError("rank 0 tells a host that it does not name");
  }
  const std::lock_guard lock(mutex_);
  if (joined_) throw DataError("rank 0 tells twice that all ranks have joined");
  for (int rank = 0; rank < size(); ++rank) {
    if (host_of[static_cast<std::size_t>(rank)] == host_of[static_cast<std::size_t>(address_.rank)]) host_ranks_.push_back(rank);
  }
  hosts_ = std::move(hosts);
  host_of_ = std::move(host_of);
  joined_ = true;
}

void MemberJob::handle_relayed(WireReader& reader) {
  const std::vector<int> ranks = read_ranks(reader);
  const std::string_view body = reader.rest();
  if (!relay_ || body.empty() || static_cast<MessageKind>(body[0]) == MessageKind::relayed)
    throw DataError("rank 0 sent something to be passed on that cannot be");
  if (static_cast<MessageKind>(body[0]) == MessageKind::pulse) {
    relayed_pulse_ = body;  // to be passed on with this rank's own: so they wake the others once
  } else if (ranks.empty()) {
    relay_->tell_all(body);
  } else {
    relay_->tell(ranks, body);
  }
  if (ranks.empty() || std::find(ranks.begin(), ranks.end(), rank()) != ranks.end()) handle(body);
}

void MemberJob::handle_delivered(WireReader& reader) {
  const int from = reader.integer<std::int32_t>();
  const std::string_view name = reader.text();
  const bool last = reader.integer<std::uint8_t>() != 0;
  if (from == rank()) return;  // what this rank gives to all comes back to it, too
  const std::lock_guard lock(mutex_);
  inbox_.add(name, from, reader.text(), last);
}

void MemberJob::answer_inquiry() {
  std::vector<int> awaited;
  {
    const std::lock_guard lock(mutex_);
    for (const Awaited& wait : awaited_) {
      const std::vector<int> ranks = missing(wait);
      awaited.insert(awaited.end(), ranks.begin(), ranks.end());
    }
  }
  awaited.resize(std::min(awaited.size(), most_reported));
  network::WireWriter report = message(MessageKind::report);
  report.text(progress_text());
  write_ranks(report, awaited);
  stream_.push(report.take());
}

void MemberJob::move_to_leader() {
  const Deadline attempt = Clock::now() + move_time;
  std::string reason;
  for (const char* loopback : {"127.0.0.1", "::1"}) {
    try {
      network::Socket socket = network::connect_to(loopback, lead_->port, attempt);
      network::prove_to_server(socket, address_.token, purpose_of_leader(lead_->rank), claim_at_leader(rank(), generation()),
                               attempt);
      former_ = std::exchange(stream_, FrameStream(std::move(socket), generation()));
      former_.push(message(MessageKind::moved).take());
      while (former_.flush() && former_.has_output() && wait_for(former_.socket(), POLLOUT, attempt)) {
      }
      former_.shut_down();
      parent_ = lead_->rank;
      heard_parent_ = Clock::now();
      next_heartbeat_ = heard_parent_;  // by which the leader knows that its answer came
      lead_.reset();
      return;
    } catch (const SystemError& error) {
      reason += (reason.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  next_move_ = Clock::now() + move_pause;
  if (!std::exchange(move_failed_, true)) {
    log::warn("rank " + std::to_string(rank()) + " cannot reach rank " + std::to_string(lead_->rank) +
              ", which leads the ranks of this host, by loopback, and goes on trying: " + reason);
  }
}

/// The ranks that this one leads learn from it that the job has failed, also where rank 0 cannot say it any more.
void MemberJob::tell_led() {
  if (!relay_ || told_led_ || !failed()) return;
  told_led_ = true;
  const std::lock_guard lock(mutex_);
  relay_->tell_all(message(MessageKind::failed).integer(static_cast<std::int32_t>(failure_->rank)).text(failure_->what).take());
}

void MemberJob::lose_parent(const std::string& how) {
  stream_.close();
  const int parent = parent_;
  std::string name, progress;
  {
    const std::lock_guard lock(mutex_);
    if (left_ || refusal_) return;
    name = name_of(parent);
    progress = progress_of_[parent];
  }
  set_failure(parent, name + " died (" + how + ")" + (progress.empty() ? "" : ", last heartbeat at " + progress));
}

/// The silent rank may only have been stopped. Once it goes on, this message is the first that it reads, so that it does not take
/// this rank, which has ended meanwhile, for the one that failed.
void MemberJob::give_up(int silent_rank, milliseconds silent) {
  std::string name, progress;
  {
    const std::lock_guard lock(mutex_);
    if (left_ || refusal_ || failure_) return;
    name = name_of(silent_rank);
    progress = progress_of_[silent_rank];
  }
  send(message(MessageKind::gave_up)
           .integer(static_cast<std::int32_t>(silent_rank))
           .integer(static_cast<std::int64_t>(silent.count()))
           .take());
  set_failure(silent_rank, name + " has given no sign of life for " + seconds_text(silent) +
                               (progress.empty() ? "" : ", last heartbeat at " + progress));
}

}  // namespace consist
