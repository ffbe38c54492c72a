#include "core/job/job_server.h"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/wire.h"
#include "core/job/job.h"

namespace consist {
namespace {

using network::Clock;
using network::WireReader;
using network::WireWriter;
using std::chrono::milliseconds;

/// A time that a member asks for.
milliseconds read_timeout(WireReader& reader) {
  return milliseconds(std::clamp<std::int64_t>(reader.integer<std::int64_t>(), 0, milliseconds(longest_wait).count()));
}

}  // namespace

JobServer::JobServer(Setup setup)
    : size_(setup.size),
      generation_(setup.generation),
      timeout_(setup.timeout),
      join_timeout_(setup.join_timeout),
      join_progress_(setup.join_progress),
      gate_(std::move(setup.listener), std::move(setup.token), std::string(job_purpose), "the job's rendezvous",
            std::max(network::Gate::default_max_pending, static_cast<std::size_t>(setup.size))),
      members_(static_cast<std::size_t>(setup.size)),
      join_deadline_(Clock::now() + setup.join_timeout),
      next_join_progress_(Clock::now() + setup.join_progress),
      last_turn_(Clock::now()) {
  std::tie(wake_, wake_read_) = network::connected_pair();
  Member& own = members_[0];
  own.stream = FrameStream(std::move(setup.own), generation_);
  own.host = std::move(setup.own_host);
  own.machine = number_of_machine(setup.own_machine);
  leaders_[static_cast<std::size_t>(own.machine)] = 0;  // which serves the ranks of its host itself
  own.joined = own.spoke = true;
  own.heard = Clock::now();
  settle();  // of a job of one rank, nobody else is awaited
  thread_ = std::thread([this] { run(); });
}

JobServer::~JobServer() {
  wake_.close();
  thread_.join();
}

void JobServer::run() {
  try {
    std::vector<pollfd> entries;
    std::vector<int> polled, readable;  // ranks
    while (true) {
      entries.clear();
      polled.clear();
      entries.push_back({wake_read_.fd(), POLLIN, 0});
      gate_.watch(entries);
      const std::size_t first = entries.size();
      for (int rank = 0; rank < size_; ++rank) {
        const FrameStream& stream = members_[static_cast<std::size_t>(rank)].stream;
        if (!stream.is_open()) continue;
        entries.push_back({stream.socket().fd(), static_cast<short>(POLLIN | (stream.has_output() ? POLLOUT : 0)), 0});
        polled.push_back(rank);
      }
      poll(entries.data(), entries.size(), 100);
      if (entries[0].revents != 0) break;
      readable.clear();
      for (std::size_t i = 0; i < polled.size(); ++i) {
        if (entries[first + i].revents != 0) readable.push_back(polled[i]);
      }
      turn(readable);
    }
    drain();
  } catch (const std::exception& error) {
    // Closes all connections, by which the other ranks know.
    log::error(std::string("the job's server ends by an error: ") + error.what());
    for (Member& member : members_) member.stream.close();
  }
}

void JobServer::turn(const std::vector<int>& readable) {
  for (network::Admitted& admitted : gate_.serve()) admit(std::move(admitted));
  for (const int rank : readable) {
    if (members_[static_cast<std::size_t>(rank)].stream.is_open()) serve_member(rank);
  }
  std::erase_if(refused_, [](FrameStream& stream) { return !stream.flush() || !stream.has_output(); });
  const Time now = Clock::now();
  if (now - last_turn_ > own_stall) {
    for (Member& member : members_) member.heard = now;
    if (inquiry_) inquiry_->started = now;
  }
  last_turn_ = now;
  serve_waiting(now);
  check_time(now);
  for (Member& member : members_) {
    // A failed write shows again as the end of the stream on the next turn.
    if (member.stream.is_open()) member.stream.flush();
  }
}

void JobServer::serve_member(int rank) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  bool open = true;
  std::string problem = "its connection closed without a goodbye";
  try {
    open = member.stream.fill();
    std::string_view body;
    while (member.stream.next(body)) {
      member.heard = Clock::now();
      if (!std::exchange(member.spoke, true)) settle();
      handle(rank, body);
    }
  } catch (const Error& error) {  // whatever a member sends ends that member, and not the server
    open = false;
    member.spoke = true;
    problem = std::string("it sent something that is no message of the job: ") + error.what();
  }
  if (!open) lose(rank, problem);
}

void JobServer::lose(int rank, const std::string& problem) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  member.stream.close();
  if (!member.spoke && !complete_ && !failure_) {
    int& leader = leaders_[static_cast<std::size_t>(member.machine)];
    if (leader == rank) leader = -1;
    member = Member{};
  } else if (!left_ && !member.arrived) {
    fail(rank, name(rank) + " died (" + problem + ")" + last_heartbeat_of(rank));
  }
}

void JobServer::handle(int rank, std::string_view body) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  WireReader reader(body);
  const auto kind = static_cast<MessageKind>(reader.integer<std::uint8_t>());
  switch (kind) {
    case MessageKind::put: {
      const std::string_view key = reader.text();
      handle_put(key, reader.text());
      break;
    }
    case MessageKind::get:
    case MessageKind::barrier:
      handle_request(rank, kind, reader);
      break;
    case MessageKind::deliver:
      handle_deliver(rank, reader);
      break;
    case MessageKind::heartbeat:
      member.progress = reader.text().substr(0, max_progress_bytes);
      // Should rank 0 die, then this is what the others know of it.
      if (rank == 0) send_all(message(MessageKind::pulse).integer(std::int32_t{0}).text(member.progress).take());
      break;
    case MessageKind::report:
      member.progress = reader.text().substr(0, max_progress_bytes);
      member.awaited = read_ranks(reader);
      member.reported = true;
      break;
    case MessageKind::blame: {
      const int peer = reader.integer<std::int32_t>();
      start_inquiry({rank, {peer}, false, std::string(reader.text().substr(0, max_progress_bytes)), Clock::now()});
      break;
    }
    case MessageKind::missed: {
      std::vector<int> missing = read_ranks(reader);
      start_inquiry({rank, std::move(missing), true, std::string(reader.text().substr(0, 2 * max_key_bytes)), Clock::now()});
      break;
    }
    case MessageKind::fail:
      fail(rank, name(rank) + " failed: " + std::string(reader.text().substr(0, max_reason_bytes)) + last_at(rank));
      break;
    case MessageKind::gave_up: {
      const int silent = reader.integer<std::int32_t>();
      if (silent < 0 || silent >= size_) throw DataError("it gave up a rank that there is not");
      fail(silent, name(silent) + " was stopped, or is cut off from the others: " + name(rank) + " heard nothing of it for " +
                       seconds_text(read_timeout(reader)) + " and has ended" + last_heartbeat_of(silent));
      break;
    }
    case MessageKind::leave: {
      member.leaving = true;
      const Time deadline = Clock::now() + read_timeout(reader);
      leave_deadline_ = std::min(leave_deadline_, deadline);
      if (std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.leaving; })) all_left();
      break;
    }
    default:
      handle_of_leader(rank, kind, reader);
  }
}

void JobServer::handle_request(int rank, MessageKind kind, WireReader& reader) {
  const auto request = reader.integer<std::uint64_t>();
  const milliseconds timeout = read_timeout(reader);
  std::string key(reader.text());
  if (key.size() > max_key_bytes) throw DataError("a key of " + std::to_string(key.size()) + " bytes");
  if (kind == MessageKind::barrier) enter(rank, key);
  waiting_.push_back({rank, request, Clock::now() + timeout, std::move(key), kind});
}

/// Passed on at once: rank 0 keeps nothing of what others give one another.
void JobServer::handle_deliver(int rank, WireReader& reader) {
  const std::vector<int> to = read_ranks(reader);
  const std::string_view name = reader.text();
  if (name.size() > max_key_bytes) throw DataError("a name of " + std::to_string(name.size()) + " bytes");
  const auto last = reader.integer<std::uint8_t>();
  const std::string body = message(MessageKind::delivered)
                               .integer(static_cast<std::int32_t>(rank))
                               .text(name)
                               .integer(last)
                               .text(reader.text())
                               .take();
  if (to.empty()) {
    send_all(body);
  } else {
    send(to, body);
  }
}

void JobServer::handle_put(std::string_view key, std::string_view value) {
  if (key.size() > max_key_bytes) throw DataError("a key of " + std::to_string(key.size()) + " bytes");
  if (value.size() > max_value_bytes) throw DataError("a value of " + std::to_string(value.size()) + " bytes");
  const auto found = store_.find(key);
  if (found != store_.end()) store_bytes_ -= found->first.size() + found->second.size();
  take_store_bytes(key.size() + value.size());
  store_.insert_or_assign(std::string(key), std::string(value));
}

void JobServer::take_store_bytes(std::size_t bytes) {
  if (store_bytes_ + bytes > max_store_bytes)
    throw DataError("more than " + std::to_string(max_store_bytes) + " bytes in the job's store");
  store_bytes_ += bytes;
}

void JobServer::enter(int rank, const std::string& name) {
  const auto size = static_cast<std::size_t>(size_), index = static_cast<std::size_t>(rank);
  Meeting& meeting = meetings_.try_emplace(name, Meeting{std::vector<bool>(size), size_}).first->second;
  if (meeting.entered[index]) throw DataError("it came to '" + name + "' twice");
  meeting.entered[index] = true;
  --meeting.missing;
}

void JobServer::answer(int rank, std::uint64_t request, bool found, std::string_view text) {
  send(rank, message(MessageKind::answer).integer(request).integer(static_cast<std::uint8_t>(found)).text(text).take());
}

void JobServer::serve_waiting(Time now) {
  if (failure_) return;  // the news of it has ended every wait
  std::erase_if(waiting_, [&](const Waiting& wait) { return !failure_ && serve(wait, now); });
  // Where all have come, all have been answered.
  std::erase_if(meetings_, [](const auto& entry) { return entry.second.missing == 0; });
}

/// Serves the wait. True if it is over.
bool JobServer::serve(const Waiting& wait, Time now) {
  if (wait.kind == MessageKind::get) {
    const auto found = store_.find(wait.name);
    if (found == store_.end() && now < wait.deadline) return false;
    answer(wait.rank, wait.request, found != store_.end(),
           found != store_.end() ? found->second : "no rank has put the key '" + wait.name + "' in time");
    return true;
  }
  const Meeting& meeting = meetings_.at(wait.name);
  if (meeting.missing == 0) {
    answer(wait.rank, wait.request, true, {});
    return true;
  }
  if (now < wait.deadline) return false;
  const int culprit = furthest_behind([&](int rank) { return !meeting.entered[static_cast<std::size_t>(rank)]; });
  fail(culprit, name(culprit) + " has not reached the barrier '" + wait.name + "' in time" + last_heartbeat_of(culprit));
  return true;
}

void JobServer::all_left() {
  if (failure_) return;
  left_ = true;
  send_all(message(MessageKind::left).take());
}

void JobServer::drain() {
  // The last message of rank 0, such as why it failed, is still to be read.
  if (members_[0].stream.is_open()) serve_member(0);
  if (!failure_ && !left_) fail(0, name(0) + " ended the job early" + last_heartbeat_of(0));
  std::vector<FrameStream*> streams;
  for (Member& member : members_) streams.push_back(&member.stream);
  consist::drain(streams, Clock::now() + farewell_time);
}

std::string JobServer::name(int rank) const {
  return name_rank(rank, members_[static_cast<std::size_t>(rank)].host);
}

std::string JobServer::last_at(int rank) const {
  const std::string& progress = members_[static_cast<std::size_t>(rank)].progress;
  return progress.empty() ? "" : ", last at " + progress;
}

std::string JobServer::last_heartbeat_of(int rank) const {
  const std::string& progress = members_[static_cast<std::size_t>(rank)].progress;
  return progress.empty() ? "" : ", last heartbeat at " + progress;
}

}  // namespace consist
