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
  if (check_silence(now)) return;
  if (now >= leave_deadline_) {
    const int culprit = furthest_behind([&](int rank) { return !members_[static_cast<std::size_t>(rank)].leaving; });
    return fail(culprit,
                name(culprit) + " is still busy when the others wait for it at the end of the job" + last_heartbeat_of(culprit));
  }
  conclude_inquiry(now);
}

bool JobServer::check_silence(Time now) {
  for (int rank = 0; rank < size_; ++rank) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    if (!awaited(member) || now - member.heard <= silence_limit(timeout_)) continue;
    const int silent = hidden(member, now) ? member.leader : rank;
    const auto since = std::chrono::duration_cast<milliseconds>(now - members_[static_cast<std::size_t>(silent)].heard);
    fail(silent, name(silent) + " has given no sign of life for " + seconds_text(since) + last_heartbeat_of(silent));
    return true;
  }
  return false;
}

std::vector<int> JobServer::missing_ranks() const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    if (!member.joined || !member.spoke || (member.leader >= 0 && !member.arrived)) missing.push_back(rank);
  }
  return missing;
}

void JobServer::start_inquiry(Inquiry inquiry) {
  if (failure_ || inquiry_) return;
  std::erase_if(inquiry.suspects, [&](int rank) { return rank < 0 || rank >= size_; });
  inquiry_ = std::move(inquiry);
  for (Member& member : members_) {
    member.reported = false;
    member.awaited.clear();
  }
  send_all(message(MessageKind::report_please).take());
}

void JobServer::conclude_inquiry(Time now) {
  if (!inquiry_ || now - inquiry_->started < min_inquiry) return;
  const std::string told = " (" + name(inquiry_->by) + last_at(inquiry_->by) + ": " + inquiry_->what + ")";
  const int silent = furthest_behind([&](int rank) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    // Where a leader is silent, nothing is heard of those that it leads.
    const bool by_leader = member.arrived && !members_[static_cast<std::size_t>(member.leader)].reported;
    return awaited(member) && !member.reported && !by_leader;
  });
  if (silent >= 0) {
    if (now - inquiry_->started < max_inquiry) return;
    const auto since = std::chrono::duration_cast<milliseconds>(now - members_[static_cast<std::size_t>(silent)].heard);
    return fail(silent, name(silent) + " does not answer, last heard of " + seconds_text(since) + " ago" +
                            last_heartbeat_of(silent) + told);
  }
  const int suspect = inquiry_->collective         ? culprit_of_collective()
                      : inquiry_->suspects.empty() ? -1
                                                   : inquiry_->suspects.front();
  const int culprit = culprit_or_furthest_behind(suspect);
  const bool leaving = members_[static_cast<std::size_t>(culprit)].leaving;
  const char* how = inquiry_->collective ? " is what the others wait for" : " is stuck";
  fail(culprit, name(culprit) + (leaving ? " has ended its work while others still need it" : how) + last_at(culprit) + told);
}

/// Among equals, and where positions are unknown, the suspicion decides.
int JobServer::culprit_or_furthest_behind(int suspect) const {
  const int furthest = furthest_behind([&](int rank) { return awaited(members_[static_cast<std::size_t>(rank)]); });
  if (suspect < 0) return std::max(furthest, 0);
  const auto of_suspect = parse_progress(members_[static_cast<std::size_t>(suspect)].progress);
  const auto of_furthest = furthest < 0 ? std::nullopt : parse_progress(members_[static_cast<std::size_t>(furthest)].progress);
  const bool gone = members_[static_cast<std::size_t>(suspect)].leaving;
  return gone || !of_suspect || !of_furthest || *of_suspect <= *of_furthest ? suspect : furthest;
}

/// A rank that has not come may itself wait for others, elsewhere: of all that are waited for so, who waits for nobody is to
/// blame.
int JobServer::culprit_of_collective() const {
  std::vector<bool> reached(members_.size()), waits(members_.size());
  std::vector<int> ranks = inquiry_->suspects;
  for (std::size_t i = 0; i < ranks.size(); ++i) {  // which grows
    const auto rank = static_cast<std::size_t>(ranks[i]);
    if (ranks[i] < 0 || ranks[i] >= size_ || reached[rank]) continue;
    reached[rank] = true;
    const std::vector<int> awaited = awaited_by(ranks[i]);
    waits[rank] = !awaited.empty();
    ranks.insert(ranks.end(), awaited.begin(), awaited.end());
  }
  const int culprit = furthest_behind(
      [&](int rank) { return reached[static_cast<std::size_t>(rank)] && !waits[static_cast<std::size_t>(rank)]; });
  if (culprit >= 0) return culprit;
  return furthest_behind([&](int rank) { return reached[static_cast<std::size_t>(rank)]; });
}

/// The ranks that this one waits for in a collective or at a barrier.
std::vector<int> JobServer::awaited_by(int rank) const {
  std::vector<int> ranks = members_[static_cast<std::size_t>(rank)].awaited;
  for (const Waiting& wait : waiting_) {
    if (wait.rank != rank || wait.kind != MessageKind::barrier) continue;
    const std::vector<bool>& entered = meetings_.at(wait.name).entered;
    for (int other = 0; other < size_; ++other) {
      if (!entered[static_cast<std::size_t>(other)]) ranks.push_back(other);
    }
  }
  return ranks;
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
