#include "core/job/job_member.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/wire.h"

namespace consist {
namespace {

using network::Clock;
using network::Deadline;
using network::WireReader;
using network::WireWriter;
using std::chrono::milliseconds;

// The server answers by the deadline it was given; this is for the way there and back.
constexpr milliseconds answer_grace{3000};
constexpr milliseconds blame_patience{4500};
constexpr milliseconds farewell_time{1000};
constexpr milliseconds own_stall{2000};

}  // namespace

MemberJob::MemberJob(JobAddress address, std::string host, network::Socket connection, std::unique_ptr<JobServer> server)
    : address_(std::move(address)),
      host_(std::move(host)),
      server_(std::move(server)),
      heard_(Clock::now()),
      stream_(std::move(connection)),
      next_heartbeat_(heard_),
      last_turn_(heard_) {
  std::tie(wake_, wake_read_) = network::connected_pair();
  thread_ = std::thread([this] { run(); });
}

MemberJob::~MemberJob() {
  set_progress(nullptr);
  fail("it ended the job early, without telling why");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.close();
  thread_.join();
  stream_.close();
  server_.reset();
}

void MemberJob::wait_until_joined() {
  std::unique_lock lock(mutex_);
  const bool joined =
      wait(lock, Clock::now() + address_.time_to_join() + answer_grace, [&] { return refusal_ || !hosts_.empty(); });
  if (refusal_) {
    throw UsageError("rank " + std::to_string(address_.rank) + " cannot join the job: " + *refusal_);
  }
  if (!joined) throw SystemError("rank 0 did not say within the timeout that all ranks have joined");
}

void MemberJob::put(std::string_view key, std::string_view value) {
  if (key.size() > max_key_bytes || value.size() > max_value_bytes) {
    throw Error("Job::put: key '" + std::string(key.substr(0, 64)) + "' with " + std::to_string(value.size()) +
                " bytes of value is too large");
  }
  check();
  send(message(MessageKind::put).text(key).text(value).take());
}

std::string MemberJob::get(std::string_view key, milliseconds timeout) {
  Answer answer = *request(MessageKind::get, key, timeout).answer;
  if (!answer.found) throw SystemError(answer.text);
  return std::move(answer.text);
}

void MemberJob::barrier(std::string_view name, milliseconds timeout) {
  request(MessageKind::barrier, name, timeout);
}

std::vector<std::string> MemberJob::collect(std::string_view name, std::string_view text, milliseconds timeout) {
  if (name.size() > max_key_bytes || text.size() > max_collected_bytes) {
    throw Error("JoinedJob::collect: '" + std::string(name.substr(0, 64)) + "' with " + std::to_string(text.size()) +
                " bytes of text is too large");
  }
  Request done = request(MessageKind::collect, name, timeout, &text);
  if (!done.answer->found) throw SystemError(done.answer->text);
  if (rank() == 0) return std::move(done.collected);
  return {std::move(done.answer->text)};
}

void MemberJob::forget(std::string_view key) {
  send(message(MessageKind::forget).text(key).take());
}

MemberJob::Request MemberJob::request(MessageKind kind, std::string_view key, milliseconds timeout,
                                      const std::string_view* text) {
  timeout = std::clamp(timeout, milliseconds(0), longest_wait);
  std::unique_lock lock(mutex_);
  const std::uint64_t id = next_request_++;
  requests_[id];
  network::WireWriter asked = message(kind);
  asked.integer(id).integer(static_cast<std::int64_t>(timeout.count())).text(key);
  if (text != nullptr) asked.text(*text);
  outbox_.push_back(asked.take());
  network::try_send(wake_, std::as_bytes(std::span("w", 1)));
  const bool done = wait(lock, Clock::now() + timeout + answer_grace, [&] { return requests_[id].answer.has_value(); });
  Request request = std::move(requests_[id]);
  if (!done) request.answer = Answer{false, "rank 0 does not answer a question for '" + std::string(key) + "'"};
  requests_.erase(id);
  return request;
}

template <typename Predicate>
bool MemberJob::wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Predicate done) {
  const bool ended = changed_.wait_until(lock, deadline, [&] { return failure_ || done(); });
  if (ended && !done()) throw PeerError(failure_->rank, failure_->what);
  return ended;
}

void MemberJob::check() const {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  throw PeerError(failure_->rank, failure_->what);
}

void MemberJob::blame(int peer, std::string_view what) {
  send(message(MessageKind::blame).integer(static_cast<std::int32_t>(peer)).text(what.substr(0, max_progress_bytes)).take());
  std::unique_lock lock(mutex_);
  wait(lock, Clock::now() + blame_patience, [] { return false; });
  // Rank 0 tells every heartbeat_interval where it is. If it was silent all the time, then it is what everything waits for.
  const auto silent = std::chrono::duration_cast<milliseconds>(Clock::now() - heard_.load());
  if (silent > blame_patience - 2 * heartbeat_interval) {
    lock.unlock();
    give_up_server(silent);
    check();
    lock.lock();
  }
  const std::string host =
      peer >= 0 && static_cast<std::size_t>(peer) < hosts_.size() ? hosts_[static_cast<std::size_t>(peer)] : "";
  lock.unlock();
  const std::string text =
      name_rank(peer, host) + " does not take part any more: " + std::string(what) + " (rank 0 gave no answer)";
  set_failure(peer, text);
  throw PeerError(peer, text);
}

void MemberJob::set_progress(std::function<std::string()> progress) {
  // Kept when the function goes, so that a rank that fails is known by where it was.
  progress_text();
  {
    const std::lock_guard lock(progress_mutex_);
    progress_ = std::move(progress);
  }
  // A rank that dies early shall be known by where it was, too.
  send(message(MessageKind::heartbeat).text(progress_text()).take());
}

void MemberJob::leave(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  timeout = std::clamp(timeout, milliseconds(0), longest_wait);
  outbox_.push_back(message(MessageKind::leave).integer(static_cast<std::int64_t>(timeout.count())).take());
  network::try_send(wake_, std::as_bytes(std::span("w", 1)));
  if (!wait(lock, Clock::now() + timeout + answer_grace, [&] { return left_; })) {
    throw PeerError(0, name_rank(0, hosts_.empty() ? "" : hosts_[0]) + " does not answer at the end of the job");
  }
}

void MemberJob::fail(std::string_view reason) noexcept {
  try {
    const std::string progress =
        progress_text();  // so that the others are told where it failed, not where its last heartbeat came
    std::unique_lock lock(mutex_);
    if (left_ || failure_ || refusal_) return;
    outbox_.push_back(message(MessageKind::heartbeat).text(progress).take());
    outbox_.push_back(message(MessageKind::fail).text(reason.substr(0, max_reason_bytes)).take());
    network::try_send(wake_, std::as_bytes(std::span("w", 1)));
    // The server tells everybody, this rank included: then the news has been sent.
    changed_.wait_until(lock, Clock::now() + farewell_time, [&] { return failure_.has_value() || left_; });
  } catch (const std::exception& error) {
    log::error(std::string("cannot tell the other ranks why this one ends: ") + error.what());
  }
}

void MemberJob::send(std::string body) {
  {
    const std::lock_guard lock(mutex_);
    outbox_.push_back(std::move(body));
  }
  // A full pipe of wake-ups is one that has not been heard yet.
  network::try_send(wake_, std::as_bytes(std::span("w", 1)));
}

void MemberJob::run() {
  try {
    while (true) {
      std::array<pollfd, 2> entries{
          {{wake_read_.fd(), POLLIN, 0},
           {stream_.socket().fd(), static_cast<short>(POLLIN | (stream_.has_output() ? POLLOUT : 0)), 0}}};
      poll(entries.data(), entries.size(), network::milliseconds_until(next_heartbeat_, heartbeat_interval));
      std::array<std::byte, 64> drop;
      network::try_receive(wake_read_, drop);
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
    lose_server(error.what());
  }
}

void MemberJob::turn(bool readable) {
  const Deadline now = Clock::now();
  if (now - last_turn_ > own_stall) heard_ = now;  // this process itself was stopped
  last_turn_ = now;
  if (readable && stream_.is_open()) {
    const bool open = stream_.fill();
    std::string_view body;
    while (stream_.next(body)) {
      heard_ = Clock::now();
      handle(body);
    }
    if (!open) lose_server("its connection closed without a goodbye");
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + heartbeat_interval;
    stream_.push(message(MessageKind::heartbeat).text(progress_text()).take());
    const auto silent = std::chrono::duration_cast<milliseconds>(now - heard_.load());
    if (stream_.is_open() && silent > silence_limit(address_.timeout) && !failed()) give_up_server(silent);
  }
  std::vector<std::string> outbox;
  {
    const std::lock_guard lock(mutex_);
    outbox.swap(outbox_);
  }
  if (!stream_.is_open()) return;
  for (const std::string& body : outbox) stream_.push(body);
  stream_.flush();
}

void MemberJob::handle(std::string_view body) {
  WireReader reader(body);
  switch (static_cast<MessageKind>(reader.integer<std::uint8_t>())) {
    case MessageKind::welcome: {
      std::vector<std::string> hosts;
      while (!reader.at_end()) hosts.emplace_back(reader.text());
      const std::lock_guard lock(mutex_);
      hosts_ = std::move(hosts);
      break;
    }
    case MessageKind::refused: {
      const std::lock_guard lock(mutex_);
      refusal_ = std::string(reader.text());
      break;
    }
    case MessageKind::answer: {
      const auto id = reader.integer<std::uint64_t>();
      const bool found = reader.integer<std::uint8_t>() != 0;
      const std::lock_guard lock(mutex_);
      const auto request = requests_.find(id);
      if (request != requests_.end()) request->second.answer = Answer{found, std::string(reader.text())};
      break;
    }
    case MessageKind::collected: {
      const auto id = reader.integer<std::uint64_t>();
      const std::lock_guard lock(mutex_);
      const auto request = requests_.find(id);
      if (request != requests_.end()) request->second.collected.emplace_back(reader.text());
      return;
    }
    case MessageKind::report_please:
      stream_.push(message(MessageKind::report).text(progress_text()).take());
      return;
    case MessageKind::pulse: {
      const std::lock_guard lock(mutex_);
      server_progress_ = reader.text();
      return;
    }
    case MessageKind::failed: {
      const int rank = reader.integer<std::int32_t>();
      set_failure(rank, std::string(reader.text()));
      return;
    }
    case MessageKind::left: {
      const std::lock_guard lock(mutex_);
      left_ = true;
      break;
    }
    default:
      throw DataError("rank 0 sent a message of an unknown kind");
  }
  changed_.notify_all();
}

void MemberJob::lose_server(const std::string& how) {
  stream_.close();
  std::string host, progress;
  {
    const std::lock_guard lock(mutex_);
    if (left_ || refusal_) return;
    if (!hosts_.empty()) host = hosts_[0];
    progress = server_progress_;
  }
  set_failure(0, name_rank(0, host) + " died (" + how + ")" + (progress.empty() ? "" : ", last heartbeat at " + progress));
}

/// Rank 0 may only have been stopped. Once it goes on, this message is the first that it reads, so that it does not take this
/// rank, which has ended meanwhile, for the one that failed.
void MemberJob::give_up_server(milliseconds silent) {
  std::string host, progress;
  {
    const std::lock_guard lock(mutex_);
    if (left_ || refusal_ || failure_) return;
    if (!hosts_.empty()) host = hosts_[0];
    progress = server_progress_;
  }
  send(message(MessageKind::gave_up).integer(static_cast<std::int64_t>(silent.count())).take());
  set_failure(0, name_rank(0, host) + " has given no sign of life for " + seconds_text(silent) +
                     (progress.empty() ? "" : ", last heartbeat at " + progress));
}

void MemberJob::set_failure(int rank, std::string what) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Failure{rank, std::move(what)};
    failed_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

std::string MemberJob::progress_text() {
  const std::lock_guard lock(progress_mutex_);
  if (!progress_) return last_progress_;
  try {
    last_progress_ = progress_().substr(0, max_progress_bytes);
  } catch (const std::exception& error) {
    last_progress_ = std::string("unknown: ") + error.what();
  }
  return last_progress_;
}

}  // namespace consist
