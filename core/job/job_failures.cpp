// The part of the job's server that finds out which rank has failed.
#include <algorithm>

#include "consist/log.h"
#include "core/job/job_server.h"

namespace consist {
namespace {

using network::Clock;
using std::chrono::milliseconds;

// News of a death travels with the closing of sockets, all within milliseconds; the server waits this long before it decides by
// positions whom a broken connection is to be blamed on.
constexpr milliseconds min_inquiry{1000};
// And this long for the ranks' reports, after which the silent one is to blame.
constexpr milliseconds max_inquiry{2500};

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
  return text;
}

}  // namespace

void JobServer::check_time(Time now) {
  if (failure_ || left_) return;
  if (!complete_ && now >= std::min(join_deadline_, next_join_progress_)) {
    const std::vector<int> missing = missing_ranks();
    const std::string who = list_ranks(missing) + " of " + std::to_string(size_);
    if (now >= join_deadline_)
      return fail(missing[0], who + " did not join within " + seconds_text(join_timeout_) +
                                  ": are all of them started, with the same token, and can they reach rank 0?");
    const auto left = std::chrono::duration_cast<milliseconds>(join_deadline_ - now);
    log::info(who + " have not joined yet; rank 0 waits for them another " + seconds_text(left));
    next_join_progress_ = now + join_progress_;
  }
  for (int rank = 0; rank < size_; ++rank) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    if (awaited(member) && now - member.heard > silence_limit(timeout_)) {
      const auto silent = std::chrono::duration_cast<milliseconds>(now - member.heard);
      return fail(rank, name(rank) + " has given no sign of life for " + seconds_text(silent) + last_heartbeat_of(rank));
    }
  }
  if (now >= leave_deadline_) {
    const int culprit = furthest_behind([&](int rank) { return !members_[static_cast<std::size_t>(rank)].leaving; });
    return fail(culprit,
                name(culprit) + " is still busy when the others wait for it at the end of the job" + last_heartbeat_of(culprit));
  }
  conclude_inquiry(now);
}

std::vector<int> JobServer::missing_ranks() const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (!members_[static_cast<std::size_t>(rank)].joined) missing.push_back(rank);
  }
  return missing;
}

void JobServer::start_inquiry(int by, int peer, std::string_view what) {
  if (failure_ || inquiry_) return;
  inquiry_ = Inquiry{by, peer, std::string(what), Clock::now()};
  for (Member& member : members_) member.reported = false;
  send_all(message(MessageKind::report_please).take());
}

void JobServer::conclude_inquiry(Time now) {
  if (!inquiry_ || now - inquiry_->started < min_inquiry) return;
  const std::string told = " (" + name(inquiry_->by) + last_at(inquiry_->by) + ": " + inquiry_->what + ")";
  const int silent = furthest_behind([&](int rank) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    return awaited(member) && !member.reported;
  });
  if (silent >= 0) {
    if (now - inquiry_->started < max_inquiry) return;
    const auto since = std::chrono::duration_cast<milliseconds>(now - members_[static_cast<std::size_t>(silent)].heard);
    return fail(silent, name(silent) + " does not answer, last heard of " + seconds_text(since) + " ago" +
                            last_heartbeat_of(silent) + told);
  }
  int culprit = furthest_behind([&](int rank) { return awaited(members_[static_cast<std::size_t>(rank)]); });
  const int peer = inquiry_->peer;
  if (peer >= 0 && peer < size_) {
    // Among equals, and where positions are unknown, the transport's own suspicion decides.
    const auto of_peer = parse_progress(members_[static_cast<std::size_t>(peer)].progress);
    const auto of_culprit = culprit < 0 ? std::nullopt : parse_progress(members_[static_cast<std::size_t>(culprit)].progress);
    const bool gone = members_[static_cast<std::size_t>(peer)].leaving;
    if (gone || !of_peer || !of_culprit || *of_peer <= *of_culprit) culprit = peer;
  }
  if (culprit < 0) culprit = 0;
  const bool leaving = members_[static_cast<std::size_t>(culprit)].leaving;
  fail(culprit,
       name(culprit) + (leaving ? " has ended its work while others still need it" : " is stuck") + last_at(culprit) + told);
}

void JobServer::fail(int rank, const std::string& what) {
  if (failure_ || left_) return;
  failure_ = Failure{rank, what};
  inquiry_.reset();
  send_all(message(MessageKind::failed).integer(static_cast<std::int32_t>(rank)).text(what).take());
}

int JobServer::furthest_behind(const std::function<bool(int)>& counts) const {
  int result = -1;
  Progress least;
  for (int rank = 0; rank < size_; ++rank) {
    if (!counts(rank)) continue;
    // A rank that never told its position has not begun.
    const Progress progress = parse_progress(members_[static_cast<std::size_t>(rank)].progress).value_or(Progress{-1, -1});
    if (result < 0 || progress < least) {
      result = rank;
      least = progress;
    }
  }
  return result;
}

}  // namespace consist
