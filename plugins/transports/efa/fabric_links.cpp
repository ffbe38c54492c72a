#include "plugins/transports/efa/fabric_links.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"

namespace consist::efa {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Period at which a wait that receives nothing checks whether the job has failed.
constexpr milliseconds failure_poll{50};
// Time that a finished member waits for the others' last acknowledgements.
constexpr milliseconds goodbye_time{2000};
// Over TCP, libfabric's layer ofi_rxm (1.17) sends what is larger than its buffers of 16 KiB by a rendezvous, and crashes in
// fi_trecv if the connection closes in the middle of one: then a rank that died would take its neighbours with it.
constexpr std::size_t largest_over_tcp = (std::size_t{16} << 10U) - 256;

}  // namespace

FabricLinks::FabricLinks(Job& job, std::string group, int index, std::vector<int> ranks, std::unique_ptr<Endpoint> endpoint,
                         std::vector<Partner> partners, std::string path)
    : job_(job),
      group_(std::move(group)),
      index_(index),
      ranks_(std::move(ranks)),
      endpoint_(std::move(endpoint)),
      path_(std::move(path)) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    peers_.push_back(static_cast<int>(i) == index_ ? nullptr : std::make_unique<Peer>());
    if (!peers_.back()) continue;
    peers_.back()->member = static_cast<int>(i);
    peers_.back()->partner = partners.at(i);
  }
}

FabricLinks::~FabricLinks() {
  if (!endpoint_ || broken_ || job_.failed() || std::uncaught_exceptions() > 0) return;
  try {
    say_goodbye();
  } catch (const std::exception& error) {
    log::debug("group '" + group_ + "' did not end in order: " + error.what());
  }
}

template <typename Work>
void FabricLinks::closing_on_failure(Work work) {
  try {
    work();
  } catch (...) {
    endpoint_.reset();
    throw;
  }
}

void FabricLinks::abandon() noexcept {
  broken_ = true;
  endpoint_.reset();
}

std::size_t FabricLinks::best_largest_message() const noexcept {
  return endpoint_ && endpoint_->provider().starts_with("tcp") ? largest_over_tcp : PointToPoint::best_largest_message();
}

void FabricLinks::require_open() const {
  if (endpoint_) return;
  job_.check();
  throw SystemError("group '" + group_ + "' has failed before");
}

FabricLinks::Peer& FabricLinks::peer(int member) {
  if (member < 0 || member >= size() || member == index_) {
    throw ProgramError("member " + std::to_string(index_) + " of group '" + group_ + "' has no connection to member " +
                       std::to_string(member) + " of " + std::to_string(size()));
  }
  return *peers_[static_cast<std::size_t>(member)];
}

PointToPoint::Ticket FabricLinks::post(Peer& peer, Pending& pending, bool sending, std::byte* data, std::size_t bytes) {
  if (pending.posted - pending.finished >= max_posted) {
    throw ProgramError("more than " + std::to_string(max_posted) + " unfinished messages to one member of group '" + group_ +
                       "'");
  }
  require_open();
  pending.at(pending.posted) = {{}, &peer, data, bytes, sending, false, pending.posted + 1};
  ++pending.posted;
  closing_on_failure([&] { submit(peer, pending); });
  return pending.posted;
}

PointToPoint::Ticket FabricLinks::post_send(int to, const void* data, std::size_t bytes) {
  Peer& other = peer(to);
  return post(other, other.out, true, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes);
}

PointToPoint::Ticket FabricLinks::post_receive(int from, void* data, std::size_t bytes) {
  Peer& other = peer(from);
  return post(other, other.in, false, static_cast<std::byte*>(data), bytes);
}

void FabricLinks::wait_sent(int to, Ticket ticket) {
  closing_on_failure([&] { wait(to, peer(to).out, ticket); });
}
void FabricLinks::wait_received(int from, Ticket ticket) {
  closing_on_failure([&] { wait(from, peer(from).in, ticket); });
}

bool FabricLinks::submit(Peer& peer, Pending& pending) {
  const Ticket before = pending.submitted;
  while (pending.submitted < pending.posted) {
    Operation& operation = pending.at(pending.submitted);
    const std::uint64_t number = pending.submitted & ((std::uint64_t{1} << number_bits) - 1);
    const std::uint64_t tag = (operation.sending ? peer.partner.tag_out : peer.partner.tag_in) << number_bits | number;
    const bool taken = operation.sending
                           ? endpoint_->send(peer.partner.address, tag, operation.data, operation.bytes, &operation.context)
                           : endpoint_->receive(peer.partner.address, tag, operation.data, operation.bytes, &operation.context);
    if (!taken) break;
    if (operation.sending) bytes_sent_ += static_cast<std::int64_t>(operation.bytes);
    ++pending.submitted;
  }
  return pending.submitted != before;
}

void FabricLinks::settle(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const Completion& completion = completions_[i];
    if (completion.context == nullptr) continue;
    // The context is the operation's first member.
    auto& operation = *static_cast<Operation*>(completion.context);
    Peer& other = *operation.peer;
    if (!completion.error.empty()) broken(other.member, completion.error);
    operation.done = true;
    other.moved += operation.bytes + 1;
    Pending& pending = operation.sending ? other.out : other.in;
    // Said when it is waited for: an earlier message may tell what it is about.
    if (!operation.sending && completion.bytes != operation.bytes && (pending.wrong == 0 || operation.ticket < pending.wrong)) {
      pending.wrong = operation.ticket;
      pending.wrong_bytes = completion.bytes;
    }
    while (pending.finished < pending.submitted && pending.at(pending.finished).done) ++pending.finished;
  }
}

bool FabricLinks::pump() {
  bool moved = false;
  for (const auto& other : peers_) {
    if (!other) continue;
    if (other->in.submitted < other->in.posted) moved |= submit(*other, other->in);
    if (other->out.submitted < other->out.posted) moved |= submit(*other, other->out);
  }
  std::size_t count = 0;
  while ((count = endpoint_->poll(completions_)) > 0) {
    settle(count);
    moved = true;
  }
  return moved;
}

void FabricLinks::wait(int member, Pending& pending, Ticket ticket) {
  wait_finished(member, pending, ticket);
  if (pending.wrong == 0 || pending.wrong > ticket) return;
  broken(member, "a message of " + std::to_string(pending.wrong_bytes) +
                     " bytes came where another size is expected; do the ranks' programs and options agree?");
}

void FabricLinks::wait_finished(int member, const Pending& pending, Ticket ticket) {
  if (pending.finished >= ticket) return;
  require_open();
  const Peer& other = peer(member);
  auto alive = Clock::now();
  std::uint64_t moved = other.moved;
  while (true) {
    const bool progress = pump();
    if (pending.finished >= ticket) return;
    if (progress) continue;
    if (job_.failed()) job_.check();
    settle(endpoint_->wait(completions_, std::min(failure_poll, job_.timeout())));
    const auto now = Clock::now();
    if (other.moved != moved) {
      moved = other.moved;
      alive = now;
    } else if (now - alive > job_.timeout()) {
      broken(member, "no message moved for " + std::to_string(job_.timeout().count()) + " ms");
    }
  }
}

/// libfabric moves nothing unless it is called, acknowledgements included, and drops what is under way when it is closed: a
/// member that left at once after its last receive could leave the sender waiting. A byte from everybody says that all before has
/// arrived.
void FabricLinks::say_goodbye() {
  goodbyes_.resize(peers_.size() + 1);
  for (const auto& other : peers_) {
    if (!other) continue;
    if (other->out.posted - other->out.finished >= max_posted || other->in.posted - other->in.finished >= max_posted) return;
    post(*other, other->in, false, &goodbyes_[static_cast<std::size_t>(other->member)], 1);
    post_send(other->member, &goodbyes_.back(), 1);
  }
  const auto give_up = Clock::now() + std::min(goodbye_time, job_.timeout());
  const auto open = [](const auto& other) {
    return other && (other->out.finished < other->out.posted || other->in.finished < other->in.posted);
  };
  while (std::any_of(peers_.begin(), peers_.end(), open) && !job_.failed() && Clock::now() < give_up) {
    if (!pump()) settle(endpoint_->wait(completions_, failure_poll));
  }
}

void FabricLinks::broken(int member, const std::string& how) {
  broken_ = true;
  const int rank = ranks_[static_cast<std::size_t>(member)];
  job_.blame(rank, "connection to rank " + std::to_string(rank) + " in group '" + group_ + "': " + how);
  std::terminate();  // the compiler does not know that a virtual function never returns
}

}  // namespace consist::efa
