#include "launch/start/generation.h"

#include <poll.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "consist/socket.h"
#include "launch/cli/exit_status.h"
#include "launch/start/stop_signals.h"

namespace consist::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_after_sigterm{5000};
// Ranks that make the same mistake each say so themselves, about at once.
constexpr milliseconds time_to_fail_alike{300};
// Ranks that are replaced have nothing to save: they may say what they found, and close the archive.
constexpr milliseconds time_before_replacement{2000};
constexpr milliseconds time_between_looks{1000};  // for more nodes

}  // namespace

int Generation::run() {
  while (ranks_.any_running()) {
    wait_for_news();
    for (int signal; (signal = signals_.next()) != 0;) {
      if (signal != SIGCHLD) pass_on(signal);
    }
    ranks_.pass_output_on();
    for (const RankGroup::End& end : ranks_.reap()) note_end(end);
    escalate();
    look_for_nodes();
  }
  ranks_.pass_output_on();
  return status_ == 0 && paused_ ? exit_paused : status_;
}

/// Asks the ranks for a pause where more nodes could go on.
void Generation::look_for_nodes() {
  if (growing_ == nullptr || !growing_->may_grow() || board_->pause_requested() || status_ != 0 || stopping()) return;
  std::fprintf(stderr, "consist launch: more nodes have come; the ranks end after this step, and all begin anew\n");
  board_->request_pause();
}

RankFailure Generation::failure(const RankBoard& board) const {
  RankFailure failure;
  RankBoard::End said = board.end_of(static_cast<int>(failed_rank_));
  failure.rank = static_cast<int>(first_rank_ + failed_rank_);
  failure.status = status_;
  if (status_ == exit_peer_failed) {  // all that ended by themselves say that another one hangs
    failure.status = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankBoard::End end = board.end_of(static_cast<int>(rank));
      if (end.blamed < 0) continue;
      failure.rank = end.blamed;
      said = end;
      break;
    }
    // Of another machine's rank, the step is that of the one that waited.
    const RankBoard::End own = board.end_of(failure.rank - static_cast<int>(first_rank_));
    if (own.step > 0) said.step = own.step;
  }
  failure.step = said.step;
  failure.why = said.why;
  return failure;
}

void Generation::wait_for_news() const {
  std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
  ranks_.add_outputs(entries);
  if (growing_ != nullptr) growing_->watch(entries);
  const milliseconds longest = growing_ != nullptr ? time_between_looks : milliseconds(60'000);
  const int wait = network::milliseconds_until(deadline_ ? *deadline_ : Clock::time_point::max(), longest);
  poll(entries.data(), entries.size(), wait);
}

void Generation::note_end(const RankGroup::End& end) {
  if (end.by_signal && !killing_) {
    const int signal = end.status - 128;
    std::fprintf(stderr, "consist launch: rank %zu (process %d) was ended by signal %d (%s)\n", first_rank_ + end.rank,
                 ranks_.pid(end.rank), signal, strsignal(signal));
  }
  if (end.status == 0) return;
  if (end.status == exit_paused) {
    if (!std::exchange(paused_, true) && !deadline_) deadline_ = Clock::now() + options_.grace_after_signal;
    return;
  }
  // After a signal, ranks end with a status of their own choice, and others may still be saving. Before the job has formed no
  // other process notices the end of one, and there is no work to save.
  if (status_ == 0 && (signals_seen_ == 0 || !end.joined)) {
    formed_ = end.joined;
    const milliseconds grace = replaced_ ? time_before_replacement : options_.grace_after_failure;
    deadline_ = Clock::now() + (formed_ ? grace : time_to_fail_alike);
    if (replaced_) next_ = SIGKILL;
    first_failed_ = end.rank;
  }
  if (killing_ && replaced_ && !stopping()) return;  // no end of its own
  if (status_ == 0 || status_ == exit_peer_failed) {
    status_ = end.status;
    failed_rank_ = end.rank;
  }
}

/// The first signal goes to the ranks as it came, for their orderly end; a repeated signal asks for haste, except that of a
/// terminal that is gone.
void Generation::pass_on(int signal) {
  const auto now = Clock::now();
  if (signals_seen_ > 0 && (signal == SIGHUP || now - first_signal_ < same_wish)) return;
  if (signals_seen_ == 0) first_signal_ = now;
  ++signals_seen_;
  if (signals_seen_ == 1) {
    ranks_.send_to_all(signal);
    deadline_ = Clock::now() + options_.grace_after_signal;
  } else {
    next_ = signals_seen_ == 2 ? SIGTERM : SIGKILL;
    deadline_ = Clock::now();
  }
}

void Generation::escalate() {
  if (!deadline_ || Clock::now() < *deadline_ || !ranks_.any_running()) return;
  if (!formed_ && !killing_) {
    std::fprintf(stderr, "consist launch: rank %zu ended before all ranks had joined the job; ending the others\n",
                 first_failed_);
  }
  for (std::size_t rank = 0; rank < ranks_.size() && formed_; ++rank) {
    if (ranks_.running(rank)) {
      std::fprintf(stderr, "consist launch: rank %zu does not end by itself; sending it %s\n", first_rank_ + rank,
                   next_ == SIGTERM ? "SIGTERM" : "SIGKILL");
    }
  }
  killing_ = true;
  ranks_.send_to_all(next_);
  ranks_.send_to_all(SIGCONT);  // a rank that was stopped could not act on anything but SIGKILL
  next_ = SIGKILL;
  deadline_ = Clock::now() + time_after_sigterm;
}

}  // namespace consist::launch
