#include "core/job/job_member.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/wire.h"

namespace consist {
namespace {

using network::Clock;
using network::Deadline;
using network::WireWriter;
using std::chrono::milliseconds;

// The server answers by the deadline it was given; this is for the way there and back.
constexpr milliseconds answer_grace{3000};
constexpr milliseconds blame_patience{4500};

network::Socket make_wake() {
  network::Socket wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) throw SystemError("cannot make an eventfd: " + network::describe_error(errno));
  return wake;
}

}  // namespace

MemberJob::MemberJob(JobAddress address, std::string host, network::Socket connection, std::unique_ptr<JobServer> server,
                     network::Socket leader)
    : address_(std::move(address)),
      host_(std::move(host)),
      server_(std::move(server)),
      heard_(Clock::now()),
      heard_parent_(heard_.load()),
      stream_(std::move(connection), address_.generation),
      next_heartbeat_(heard_),
      last_turn_(heard_),
      wake_(make_wake()) {
  if (leader) relay_.emplace(std::move(leader), address_.token, address_.rank, address_.generation);
  thread_ = std::thread([this] { run(); });
}

MemberJob::~MemberJob() {
  set_progress(nullptr);
  fail("it ended the job early, without telling why");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  stream_.close();
  server_.reset();
}

void MemberJob::wait_until_joined() {
  std::unique_lock lock(mutex_);
  const bool joined = wait(lock, Clock::now() + address_.time_to_join() + answer_grace, [&] { return refusal_ || joined_; });
  if (refusal_) {
    throw UsageError("rank " + std::to_string(address_.rank) + " cannot join the job: " + *refusal_);
  }
  if (!joined) throw PeerError(0, "rank 0 did not say within the timeout that all ranks have joined");
}

void MemberJob::check_call(std::string_view name, std::span<const int> members) const {
  check();
  if (name.size() > max_key_bytes) {
    throw Error("the name of a collective of the job has " + std::to_string(name.size()) + " bytes, more than " +
                std::to_string(max_key_bytes) + ": '" + std::string(name.substr(0, 64)) + "...'");
  }
  if (members.empty()) return;
  for (const int member : members) {
    if (member < 0 || member >= size()) {
      throw Error("rank " + std::to_string(member) + " cannot come to '" + std::string(name) + "': the job has " +
                  std::to_string(size()) + " ranks");
    }
  }
  if (std::find(members.begin(), members.end(), rank()) == members.end())
    throw Error("rank " + std::to_string(rank()) + " is no member of '" + std::string(name) + "' and takes part in it");
}

std::vector<std::string> MemberJob::gather(std::string_view name, std::string_view bytes, milliseconds timeout,
                                           std::span<const int> members) {
  check_call(name, members);
  std::vector<int> others(members.begin(), members.end());
  if (members.empty()) {
    others.resize(static_cast<std::size_t>(size()));
    std::iota(others.begin(), others.end(), 0);
  }
  const int first = others.front();
  if (rank() != first) {
    give(name, bytes, {&first, 1});
    return {};
  }
  others.erase(others.begin());
  std::vector<std::string> texts = take(name, others, timeout);
  texts.insert(texts.begin(), std::string(bytes));
  return texts;
}

std::string MemberJob::broadcast(std::string_view name, std::string_view bytes, milliseconds timeout,
                                 std::span<const int> members) {
  check_call(name, members);
  const int first = members.empty() ? 0 : members.front();
  if (rank() != first) return std::move(take(name, {&first, 1}, timeout).front());
  if (members.size() != 1) give(name, bytes, members.empty() ? members : members.subspan(1));
  return std::string(bytes);
}

/// To these ranks; none: to all others.
void MemberJob::give(std::string_view name, std::string_view bytes, std::span<const int> to) {
  {
    const std::lock_guard lock(mutex_);
    std::size_t at = 0;
    do {
      const std::string_view part = bytes.substr(at, part_bytes);
      at += part.size();
      WireWriter writer = message(MessageKind::deliver);
      write_ranks(writer, to);
      outbox_.push_back(writer.text(name).integer(static_cast<std::uint8_t>(at == bytes.size())).text(part).take());
    } while (at < bytes.size());
  }
  wake();
}

std::vector<int> MemberJob::missing(const Awaited& wait) const {
  std::vector<int> ranks;
  for (std::size_t i = wait.next; i < wait.from.size(); ++i) {
    if (!inbox_.has(wait.name, wait.from[i])) ranks.push_back(wait.from[i]);
  }
  return ranks;
}

std::vector<std::string> MemberJob::take(std::string_view name, std::span<const int> from, milliseconds timeout) {
  timeout = std::clamp(timeout, milliseconds(0), longest_wait);
  std::unique_lock lock(mutex_);
  const auto waits = awaited_.insert(awaited_.end(), {name, from});
  const auto all_came = [&] {
    while (waits->next < from.size() && inbox_.has(name, from[waits->next])) ++waits->next;
    return waits->next == from.size();
  };
  try {
    if (!wait(lock, Clock::now() + timeout, all_came)) {
      const std::vector<int> ranks = missing(*waits);
      const std::string what = list_ranks(ranks) + (ranks.size() == 1 ? " has" : " have") + " not come to '" + std::string(name) +
                               "' within " + seconds_text(timeout);
      WireWriter writer = message(MessageKind::missed);
      write_ranks(writer, ranks);
      lock.unlock();
      await_verdict(ranks.front(), writer.text(what).take(), what);  // meanwhile it still waits, for those who ask what it does
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    awaited_.erase(waits);
    throw;
  }
  awaited_.erase(waits);
  std::vector<std::string> texts;
  for (const int rank : from) texts.push_back(inbox_.take(name, rank));
  return texts;
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
  Answer answer = request(MessageKind::get, key, timeout);
  if (!answer.found) throw SystemError(answer.text);
  return std::move(answer.text);
}

void MemberJob::barrier(std::string_view name, milliseconds timeout) {
  request(MessageKind::barrier, name, timeout);
}

MemberJob::Answer MemberJob::request(MessageKind kind, std::string_view key, milliseconds timeout) {
  timeout = std::clamp(timeout, milliseconds(0), longest_wait);
  std::unique_lock lock(mutex_);
  const std::uint64_t id = next_request_++;
  requests_[id];
  outbox_.push_back(message(kind).integer(id).integer(static_cast<std::int64_t>(timeout.count())).text(key).take());
  wake();
  const bool done = wait(lock, Clock::now() + timeout + answer_grace, [&] { return requests_[id].has_value(); });
  Answer answer{false, "rank 0 does not answer a question for '" + std::string(key) + "'"};
  if (done) answer = std::move(*requests_[id]);
  requests_.erase(id);
  return answer;
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
  await_verdict(
      peer, message(MessageKind::blame).integer(static_cast<std::int32_t>(peer)).text(what.substr(0, max_progress_bytes)).take(),
      what);
}

void MemberJob::await_verdict(int peer, std::string message, std::string_view what) {
  send(std::move(message));
  std::unique_lock lock(mutex_);
  wait(lock, Clock::now() + blame_patience, [] { return false; });
  // Rank 0 tells every heartbeat_interval where it is, and so does a leader. If one was silent all the time, then it is what
  // everything waits for; a leader that is silent passes on nothing of rank 0's.
  const auto now = Clock::now();
  const auto silent = std::chrono::duration_cast<milliseconds>(now - heard_.load());
  if (silent > blame_patience - 2 * heartbeat_interval) {
    lock.unlock();
    const auto of_parent = std::chrono::duration_cast<milliseconds>(now - heard_parent_.load());
    const bool by_leader = of_parent > blame_patience / 2;
    give_up(by_leader ? parent_.load() : 0, by_leader ? of_parent : silent);
    check();
    lock.lock();
  }
  const std::string text = name_of(peer) + " does not take part any more: " + std::string(what) + " (rank 0 gave no answer)";
  lock.unlock();
  set_failure(peer, text);
  throw PeerError(peer, text);
}

std::string MemberJob::name_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return name_rank(rank, rank >= 0 && index < host_of_.size() ? hosts_[host_of_[index]] : "");
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
  wake();
  if (!wait(lock, Clock::now() + timeout + answer_grace, [&] { return left_; }))
    throw PeerError(0, name_of(0) + " does not answer at the end of the job");
}

void MemberJob::fail(std::string_view reason) noexcept {
  try {
    const std::string progress =
        progress_text();  // so that the others are told where it failed, not where its last heartbeat came
    std::unique_lock lock(mutex_);
    if (left_ || failure_ || refusal_) return;
    outbox_.push_back(message(MessageKind::heartbeat).text(progress).take());
    outbox_.push_back(message(MessageKind::fail).text(reason.substr(0, max_reason_bytes)).take());
    wake();
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
  wake();
}

void MemberJob::wake() const noexcept {
  const std::uint64_t one = 1;
  // A counter that is full is a wake-up that has not been heard yet.
  [[maybe_unused]] const ssize_t written = write(wake_.fd(), &one, sizeof one);
}

void MemberJob::set_failure(int rank, std::string what) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Failure{rank, std::move(what)};
    failed_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
  wake();  // the ranks that this one leads are to be told
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
