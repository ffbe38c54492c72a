#include "launch/start/node_group.h"

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"

namespace consist::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

// Launchers wait for each other's ranks to end, which takes the grace period at most.
constexpr milliseconds wait_for_ends{120'000};
// The launchers that are left see an end at about the same time; node 0 then listens anew.
constexpr milliseconds between_tries{500};

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

bool NodeGroup::form(const std::function<bool()>& stopped) {
  JobAddress address;
  address.rank = options_.node;
  address.size = options_.nodes;
  address.master_host = options_.host;
  address.master_port = options_.port;
  address.machine = "launcher " + std::to_string(options_.node);  // each speaks for itself, also where machines are one
  address.token = options_.token;
  address.timeout = options_.timeout;
  std::future<std::unique_ptr<JoinedJob>> joining =
      std::async(std::launch::async, [address = std::move(address)] { return join_again(address); });
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

NodeGroup::Start NodeGroup::agree_on_start(const Start& mine) {
  const json told = {
      {"ranks", mine.ranks}, {"generation", mine.generation}, {"used", mine.used}, {"nonce", mine.nonce}, {"port", mine.port}};
  Start all;
  all.first_rank = 0;
  const std::vector<std::string> texts = job_->all_gather(
      "start." + std::to_string(calls_++), told.dump(-1, ' ', false, json::error_handler_t::replace), wait_for_ends);
  for (std::size_t node = 0; node < texts.size(); ++node) {
    const json other = json::parse(texts[node]);
    if (static_cast<int>(node) < options_.node) all.first_rank += other.at("ranks").get<int>();
    all.ranks += other.at("ranks").get<int>();
    all.generation = std::max(all.generation, other.at("generation").get<int>());
    all.used = std::max(all.used, other.at("used").get<int>());
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
  const std::vector<std::string> texts = job_->all_gather(
      "end." + std::to_string(calls_++), told.dump(-1, ' ', false, json::error_handler_t::replace), wait_for_ends);
  for (const std::string& text : texts) {
    const json other = json::parse(text);
    const int status = other.at("end").get<int>();
    const RankFailure failure{.rank = other.at("rank").get<int>(),
                              .status = other.at("status").get<int>(),
                              .step = other.at("step").get<std::int64_t>(),
                              .why = other.at("why").get<std::string>()};
    // Of ranks that say only that another one hangs, those that know themselves to blame count more.
    const bool knows_more = result.failure.status == 0 && failure.status != 0;
    if (status != 0 && (result.status == 0 || knows_more)) result = {status, failure};
  }
  return result;
}

std::string NodeGroup::hear(const std::string& text) {
  return job_->broadcast("said." + std::to_string(calls_++), text, wait_for_ends);
}

void NodeGroup::leave() {
  if (job_) job_->leave(wait_for_ends);
}

}  // namespace consist::launch
