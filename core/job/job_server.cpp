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

// A turn of the loop that comes this late means that this process itself was stopped: nobody else's silence counts then.
constexpr milliseconds own_stall{2000};
constexpr milliseconds drain_time{1000};

/// A time that a member asks for.
milliseconds read_timeout(WireReader& reader) {
  return milliseconds(std::clamp<std::int64_t>(reader.integer<std::int64_t>(), 0, milliseconds(longest_wait).count()));
}

}  // namespace

JobServer::JobServer(Setup setup)
    : size_(setup.size),
      timeout_(setup.timeout),
      join_timeout_(setup.join_timeout),
      join_progress_(setup.join_progress),
      gate_(std::move(setup.listener), std::move(setup.token), std::string(job_purpose), "the job's rendezvous"),
      members_(static_cast<std::size_t>(setup.size)),
      join_deadline_(Clock::now() + setup.join_timeout),
      next_join_progress_(Clock::now() + setup.join_progress),
      last_turn_(Clock::now()) {
  std::tie(wake_, wake_read_) = network::connected_pair();
  Member& own = members_[0];
  own.stream = FrameStream(std::move(setup.own));
  own.host = std::move(setup.own_host);
  own.joined = true;
  own.heard = Clock::now();
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

void JobServer::admit(network::Admitted admitted) {
  FrameStream stream(std::move(admitted.socket));
  int rank = -1;
  int size = 0;
  std::string host;
  try {
    WireReader reader(admitted.claim);
    rank = reader.integer<std::int32_t>();
    size = reader.integer<std::int32_t>();
    host = reader.text().substr(0, max_host_bytes);
  } catch (const DataError&) {
    return;  // knows the token but not the protocol: another version, which sees its connection closed
  }
  std::string reason;
  if (size != size_) {
    reason = "it was started for a job of " + std::to_string(size) + " ranks, but rank 0 for one of " + std::to_string(size_);
  } else if (rank <= 0 || rank >= size_) {
    reason = "its rank must be between 1 and " + std::to_string(size_ - 1);
  } else if (members_[static_cast<std::size_t>(rank)].joined) {
    reason = name(rank) + " has joined already: two processes were started with the same rank";
  }
  if (!reason.empty()) {
    stream.push(message(MessageKind::refused).text(reason).take());
    stream.flush();
    refused_.push_back(std::move(stream));
    return;
  }
  Member& member = members_[static_cast<std::size_t>(rank)];
  member.stream = std::move(stream);
  member.host = std::move(host);
  member.joined = true;
  member.heard = Clock::now();
  if (failure_) {
    send(rank, message(MessageKind::failed).integer(static_cast<std::int32_t>(failure_->rank)).text(failure_->what).take());
  } else if (std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.joined; })) {
    all_joined();
  }
}

void JobServer::all_joined() {
  complete_ = true;
  WireWriter welcome = message(MessageKind::welcome);
  for (const Member& member : members_) welcome.text(member.host);
  send_all(welcome.take());
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
      handle(rank, body);
    }
  } catch (const Error& error) {  // whatever a member sends ends that member, and not the server
    open = false;
    problem = std::string("it sent something that is no message of the job: ") + error.what();
  }
  if (open) return;
  member.stream.close();
  if (!left_) fail(rank, name(rank) + " died (" + problem + ")" + last_heartbeat_of(rank));
}

void JobServer::handle(int rank, std::string_view body) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  WireReader reader(body);
  switch (static_cast<MessageKind>(reader.integer<std::uint8_t>())) {
    case MessageKind::put: {
      const std::string_view key = reader.text();
      handle_put(key, reader.text());
      break;
    }
    case MessageKind::get:
    case MessageKind::barrier:
    case MessageKind::collect: {
      const auto kind = static_cast<MessageKind>(body[0]);
      const auto request = reader.integer<std::uint64_t>();
      const milliseconds timeout = read_timeout(reader);
      std::string key(reader.text());
      if (key.size() > max_key_bytes) throw DataError("a key of " + std::to_string(key.size()) + " bytes");
      if (kind != MessageKind::get) enter(rank, key, kind == MessageKind::collect ? reader.text() : std::string_view());
      waiting_.push_back({rank, request, Clock::now() + timeout, std::move(key), kind});
      break;
    }
    case MessageKind::forget:
      if (const auto found = store_.find(reader.text()); found != store_.end()) {
        store_bytes_ -= found->first.size() + found->second.size();
        store_.erase(found);
      }
      break;
    case MessageKind::heartbeat:
      member.progress = reader.text().substr(0, max_progress_bytes);
      // Should rank 0 die, then this is what the others know of it.
      if (rank == 0) send_all(message(MessageKind::pulse).text(member.progress).take());
      break;
    case MessageKind::report:
      member.progress = reader.text().substr(0, max_progress_bytes);
      member.reported = true;
      break;
    case MessageKind::blame: {
      const int peer = reader.integer<std::int32_t>();
      start_inquiry(rank, peer, reader.text().substr(0, max_progress_bytes));
      break;
    }
    case MessageKind::fail:
      fail(rank, name(rank) + " failed: " + std::string(reader.text().substr(0, max_reason_bytes)) + last_at(rank));
      break;
    case MessageKind::gave_up:
      fail(0, name(0) + " was stopped, or is cut off from the others: " + name(rank) + " heard nothing of it for " +
                  seconds_text(read_timeout(reader)) + " and has ended" + last_heartbeat_of(0));
      break;
    case MessageKind::leave: {
      member.leaving = true;
      const Time deadline = Clock::now() + read_timeout(reader);
      leave_deadline_ = std::min(leave_deadline_, deadline);
      if (std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.leaving; })) all_left();
      break;
    }
    default:
      throw DataError("a message of an unknown kind");
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

void JobServer::enter(int rank, const std::string& name, std::string_view text) {
  if (text.size() > max_collected_bytes) throw DataError("a text of " + std::to_string(text.size()) + " bytes to collect");
  const auto size = static_cast<std::size_t>(size_), index = static_cast<std::size_t>(rank);
  Meeting& meeting =
      meetings_.try_emplace(name, Meeting{std::vector<bool>(size), std::vector<std::string>(size), size_}).first->second;
  if (meeting.entered[index]) throw DataError("it came to '" + name + "' twice");
  take_store_bytes(text.size());
  meeting.entered[index] = true;
  meeting.texts[index] = text;
  --meeting.missing;
}

void JobServer::answer(int rank, std::uint64_t request, bool found, std::string_view text) {
  send(rank, message(MessageKind::answer).integer(request).integer(static_cast<std::uint8_t>(found)).text(text).take());
}

void JobServer::serve_waiting(Time now) {
  if (failure_) return;  // the news of it has ended every wait
  std::erase_if(waiting_, [&](const Waiting& wait) { return !failure_ && serve(wait, now); });
  // Where all have come, all have been answered.
  std::erase_if(meetings_, [&](const auto& entry) {
    if (entry.second.missing > 0) return false;
    for (const std::string& text : entry.second.texts) store_bytes_ -= text.size();
    return true;
  });
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
    answer_meeting(wait, meeting);
    return true;
  }
  if (now < wait.deadline) return false;
  const int culprit = furthest_behind([&](int rank) { return !meeting.entered[static_cast<std::size_t>(rank)]; });
  fail(culprit, name(culprit) + " has not reached the barrier '" + wait.name + "' in time" + last_heartbeat_of(culprit));
  return true;
}

void JobServer::answer_meeting(const Waiting& wait, const Meeting& meeting) {
  if (wait.kind == MessageKind::collect && wait.rank == 0) {
    for (const std::string& text : meeting.texts)
      send(0, message(MessageKind::collected).integer(wait.request).text(text).take());
  }
  answer(wait.rank, wait.request, true, meeting.texts[0]);
}

void JobServer::all_left() {
  if (failure_) return;
  left_ = true;
  send_all(message(MessageKind::left).take());
}

void JobServer::send(int rank, const std::string& body) {
  FrameStream& stream = members_[static_cast<std::size_t>(rank)].stream;
  if (stream.is_open()) stream.push(body);
}

void JobServer::send_all(const std::string& body) {
  for (int rank = 0; rank < size_; ++rank) send(rank, body);
}

void JobServer::drain() {
  const Time deadline = Clock::now() + drain_time;
  // The last message of rank 0, such as why it failed, is still to be read.
  if (members_[0].stream.is_open()) serve_member(0);
  if (!failure_ && !left_) fail(0, name(0) + " ended the job early" + last_heartbeat_of(0));
  bool busy = true;
  while (busy && Clock::now() < deadline) {
    busy = false;
    for (Member& member : members_) {
      FrameStream& stream = member.stream;
      if (!stream.is_open()) continue;
      if (!stream.flush()) {
        stream.close();
      } else if (stream.has_output()) {
        busy = true;
      } else {
        // The end of the stream after the last message; closed when the other side ends too, for closing a socket with unread
        // input would reset the connection and could take the last message with it.
        stream.shut_down();
        if (stream.fill())
          busy = true;
        else
          stream.close();
      }
    }
    if (busy) poll(nullptr, 0, 5);
  }
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
