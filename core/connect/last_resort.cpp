#include "core/connect/last_resort.h"

#include <cstdlib>
#include <exception>
#include <utility>

#include "consist/log.h"
#include "core/plugin/plugin_faults.h"

namespace consist {
namespace {

constexpr std::chrono::milliseconds watch_interval{100};
constexpr std::chrono::milliseconds time_to_send{200};  // for the job's thread
constexpr int status_of_lost_peer = 3;                  // exit_peer_failed in launch/cli/exit_status.h

}  // namespace

LastResort::LastResort(JoinedJob& job, Farewell farewell, std::chrono::milliseconds patience, End end)
    : job_(job), farewell_(std::move(farewell)), patience_(patience), end_(std::move(end)) {
  on_plugin_fault([this](const std::string& message) { plugin_ended_process(message); });
  if (job.size() > 1) thread_ = std::thread([this] { watch(); });
}

LastResort::~LastResort() {
  on_plugin_fault({});
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LastResort::left_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return left_; });
}

void LastResort::plugin_ended_process(const std::string& message) {
  job_.fail(message);
  farewell_(message);
  if (job_.size() > 1) std::this_thread::sleep_for(time_to_send);
}

void LastResort::watch() {
  while (!job_.failed()) {
    if (left_within(watch_interval)) return;
  }
  if (left_within(patience_)) return;
  std::string reason = "the job has failed";
  try {
    job_.check();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  try {
    farewell_(reason);
    log::error(reason + "; this rank could not leave within " + std::to_string(patience_.count() / 1000) +
               " s, so its process ends here");
  } catch (const std::exception&) {
    // Whatever cannot be said any more must not keep the process.
  }
  end_();
}

void LastResort::end_process() {
  std::_Exit(status_of_lost_peer);
}

}  // namespace consist
