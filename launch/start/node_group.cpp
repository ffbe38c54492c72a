#include "launch/start/node_group.h"

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"
#include "launch/cli/exit_status.h"

namespace consist::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

// Launchers wait for each other's ranks to end, which takes the grace period at most.
constexpr milliseconds wait_for_ends{120'000};
// The launchers that are left see an end at about the same time; node 0 then listens anew.
constexpr milliseconds between_tries{500};
// Of a group whose nodes may be fewer: its launchers have all just met.
constexpr milliseconds time_to_form{15'000};
constexpr milliseconds between_words{15'000};

/// Joins, again and again: who comes while the job before is ending is turned away.
std::unique_ptr<JoinedJob> join_again(JobAddress address) {
  const Clock::time_point deadline = Clock::now() + default_join_timeout;
  for (;;) {
    address.join_timeout = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    try {
      return join_job(address);
    } catch (const Error& error) {
      if (Clock::now() + 2 * between_tries >= deadline) throw;
    }
    std::this_thread::sleep_for(between_tries);
  }
}

json json_of(const RankFailure& failure) {
  return {{"rank", failure.rank}, {"status", failure.status}, {"step", failure.step}, {"why", failure.why}};
}

}  // namespace

JobAddress NodeGroup::address() const {
  JobAddress address;
  address.rank = options_.node;
  address.size = options_.nodes;
  address.master_host = options_.host;
  address.master_port = options_.port;
  address.machine = "launcher " + std::to_string(options_.node);  // each speaks for itself, also where machines are one
  address.token = options_.token;
  address.timeout = options_.timeout;
  return address;
}

bool NodeGroup::form(const Stopped& stopped) {
  if (options_.varies()) return form_varying(stopped);
  if (!join(address(), stopped)) return false;
  members_.resize(static_cast<std::size_t>(options_.nodes));
  std::iota(members_.begin(), members_.end(), 0);
  return true;
}

bool NodeGroup::join(JobAddress address, const Stopped& stopped) {
  const bool again = !options_.varies();
  std::future<std::unique_ptr<JoinedJob>> joining = std::async(
      std::launch::async, [address = std::move(address), again] { return again ? join_again(address) : join_job(address); });
  while (joining.wait_for(milliseconds(100)) != std::future_status::ready) {
    if (!stopped()) continue;
    // It waits for others, and cannot be told: its thread ends with the process.
    new std::future<std::unique_ptr<JoinedJob>>(std::move(joining));
    return false;
  }
  job_ = joining.get();
  calls_ = 0;
  return true;
}

void NodeGroup::dissolve(int lost) {
  job_.reset();
  expected_ = members_;
  lost_ = 0;
  if (lost < 0) return;
  std::erase(expected_, node_of(lost));
  lost_ = 1;
}

int NodeGroup::node_of(int member) const {
  const auto index = static_cast<std::size_t>(member);
  return member >= 0 && index < members_.size() ? members_[index] : member;
}

/// Meets the others until a group of them has formed: any may be lost meanwhile.
bool NodeGroup::form_varying(const Stopped& stopped) {
  for (;;) {
    network::Socket listener;
    const std::optional<Crew> crew = meet(stopped, listener);
    if (!crew) return false;
    const auto mine = std::ranges::find(crew->nodes, options_.node);
    if (mine == crew->nodes.end())
      throw ProgramError("node 0 calls a crew that node " + std::to_string(options_.node) + " is not of");
    JobAddress address = this->address();
    address.rank = static_cast<int>(mine - crew->nodes.begin());
    address.size = static_cast<int>(crew->nodes.size());
    address.local_rank = 0;
    address.local_size = 1;
    address.master_port = crew->port;
    address.listen_fd = listener.release();
    address.join_timeout = std::min(time_to_form, options_.timeout);
    try {
      if (!join(std::move(address), stopped)) return false;
      members_ = crew->nodes;
      return true;
    } catch (const PeerError& lost) {
      expected_ = crew->nodes;
      if (lost.rank() > 0) std::erase(expected_, crew->nodes.at(static_cast<std::size_t>(lost.rank())));
      log::warn(std::string("the launchers meet again: ") + lost.what());
    } catch (const SystemError& error) {
      log::warn(std::string("the launchers meet again: ") + error.what());
    }
    lost_ = 1;
  }
}

std::optional<Crew> NodeGroup::meet(const Stopped& stopped, network::Socket& listener) {
  if (options_.node == 0) return call_roll(stopped, listener);
  const MeetingPlace place{options_.host, options_.port, options_.token, options_.nodes, options_.node};
  return answer_roll_call(place, stopped, default_join_timeout);
}

std::optional<Crew> NodeGroup::call_roll(const Stopped& stopped, network::Socket& listener) {
  if (!roll_call_) roll_call_.emplace(MeetingPlace{options_.host, options_.port, options_.token, options_.nodes, 0});
  const Clock::time_point began = Clock::now();
  Clock::time_point says = began + between_words;
  for (;;) {
    std::vector<pollfd> entries;
    roll_call_->watch(entries);
    poll(entries.data(), entries.size(), 100);
    roll_call_->serve();
    if (stopped()) return std::nullopt;
    const std::vector<int> present = roll_call_->present();
    if (is_enough(present, began)) {
      listener = network::listen_on(network::is_loopback(options_.host) ? options_.host : "", 0);
      const Crew crew{present, network::local_endpoint(listener).port};
      roll_call_->dismiss(crew);
      return crew;
    }
    const std::string there = std::to_string(present.size()) + " of " + std::to_string(options_.nodes) + " nodes are there";
    if (Clock::now() - began >= default_join_timeout)
      throw SystemError("the job cannot go on: " + there + why_not(present.size()));
    if (Clock::now() < says) continue;
    says += between_words;
    log::info(there + why_not(present.size()));
  }
}

bool NodeGroup::fits(std::size_t nodes) const {
  const auto count = static_cast<int>(nodes);
  return count >= options_.least && !options_.unfit.contains(count);
}

std::string NodeGroup::why_not(std::size_t nodes) const {
  const auto unfit = options_.unfit.find(static_cast<int>(nodes));
  return unfit != options_.unfit.end() ? "; with these it cannot go on: " + unfit->second : "";
}

/// True if those that are present are to make a group. Those of the last one whose loss is not known have time to come: their
/// ranks may still be ending.
bool NodeGroup::is_enough(const std::vector<int>& present, Clock::time_point began) const {
  if (present.size() == static_cast<std::size_t>(options_.nodes)) return true;
  if (!fits(present.size())) return false;
  const auto waited = Clock::now() - began;
  if (members_.empty()) return waited >= default_join_timeout - between_tries;  // a job begins with all, as long as they may come
  const bool all_expected = std::ranges::includes(present, expected_);
  const bool for_lost = lost_ == 0 || waited >= options_.wait;
  return for_lost && (all_expected || waited >= std::max(options_.wait, options_.wait_for_others));
}

void NodeGroup::watch(std::vector<pollfd>& entries) const {
  if (roll_call_) roll_call_->watch(entries);
}

bool NodeGroup::may_grow() {
  if (!roll_call_) return false;
  roll_call_->serve();
  std::vector<int> all = members_;
  for (const int node : roll_call_->present()) {
    if (std::ranges::find(members_, node) == members_.end()) all.push_back(node);
  }
  return all.size() > members_.size() && fits(all.size());
}

NodeGroup::Start NodeGroup::agree_on_start(const Start& mine) {
  const json told = {{"ranks", mine.ranks}, {"generation", mine.generation},
                     {"used", mine.used},   {"nonce", mine.nonce},
                     {"port", mine.port},   {"last", mine.last}};
  Start all;
  all.first_rank = 0;
  const std::vector<std::string> texts = job_->all_gather(
      "start." + std::to_string(calls_++), told.dump(-1, ' ', false, json::error_handler_t::replace), wait_for_ends);
  for (std::size_t node = 0; node < texts.size(); ++node) {
    const json other = json::parse(texts[node]);
    if (static_cast<int>(node) < job_->rank()) all.first_rank += other.at("ranks").get<int>();
    all.ranks += other.at("ranks").get<int>();
    all.generation = std::max(all.generation, other.at("generation").get<int>());
    all.used = std::max(all.used, other.at("used").get<int>());
    all.last = std::max(all.last, other.at("last").get<int>());
    if (node > 0) continue;
    all.nonce = other.at("nonce").get<std::string>();
    all.port = other.at("port").get<std::uint16_t>();
  }
  return all;
}

NodeGroup::End NodeGroup::agree_on_end(const End& mine) {
  json told = json_of(mine.failure);
  told["end"] = mine.status;
  End result;
  int paused = 0;
  const std::vector<std::string> texts = job_->all_gather(
      "end." + std::to_string(calls_++), told.dump(-1, ' ', false, json::error_handler_t::replace), wait_for_ends);
  for (const std::string& text : texts) {
    const json other = json::parse(text);
    const int status = other.at("end").get<int>();
    paused += status == exit_paused ? 1 : 0;
    if (status == exit_paused) continue;
    const RankFailure failure{.rank = other.at("rank").get<int>(),
                              .status = other.at("status").get<int>(),
                              .step = other.at("step").get<std::int64_t>(),
                              .why = other.at("why").get<std::string>()};
    // Of ranks that say only that another one hangs, those that know themselves to blame count more.
    const bool knows_more = result.failure.status == 0 && failure.status != 0;
    if (status != 0 && (result.status == 0 || knows_more)) result = {status, failure};
  }
  if (result.status == 0 && paused > 0) result.status = exit_paused;
  return result;
}

std::string NodeGroup::hear(const std::string& text) {
  return job_->broadcast("said." + std::to_string(calls_++), text, wait_for_ends);
}

void NodeGroup::leave() {
  if (job_) job_->leave(wait_for_ends);
}

}  // namespace consist::launch
