#include "launch/cluster/ssh/ssh_job.h"

#include <algorithm>
#include <utility>

#include "core/job/agreed_token.h"
#include "launch/cli/exit_status.h"
#include "launch/cluster/ssh/node_script.h"

namespace consist::launch {
namespace {

using std::chrono::seconds;

constexpr seconds time_to_connect{60};
// The ranks of other hosts know of a failure within moments, and their launcher gives them some seconds to end.
constexpr seconds time_after_first_end{30};
// The launcher ends its ranks itself after its grace period of a minute.
constexpr seconds time_for_end{90};
constexpr int status_of_ssh = 255;

}  // namespace

SshJob::SshJob(const SshSettings& settings, const TrainJob& job, JobListener listener)
    : settings_(settings), job_(job), listener_(std::move(listener)), connect_until_(Clock::now() + time_to_connect) {
  const int nodes = divide_ranks(settings, job.ranks).nodes;
  for (int node = 0; node < nodes; ++node)
    hosts_.push_back(std::make_unique<SshConnection>(settings, node, job.script, listener_));
  ended_.resize(hosts_.size());
}

std::string SshJob::hosts() const {
  std::string names;
  for (const auto& host : hosts_) names += (names.empty() ? "" : ", ") + host->name();
  return names;
}

std::string SshJob::different_versions() const {
  for (const auto& host : hosts_) {
    if (host->version() != hosts_[0]->version())
      return "hosts have different builds of Consist: " + hosts_[0]->name() + " has " + hosts_[0]->version() + ", " +
             host->name() + " has " + host->version() + "; install one on all (ssh.consist names it)";
  }
  return "";
}

std::optional<JobEnd> SshJob::end_of_start() {
  if (stops_ > 0) return JobEnd{exit_stopped, "job " + job_.name + " was ended before its ranks had started"};
  for (const auto& host : hosts_) {
    if (host->host_has_refused()) return JobEnd{exit_usage, host->refusal()};
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (ended_[i]) return JobEnd{exit_failed, hosts_[i]->refusal()};
  }
  const bool ready = std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->is_ready(); });
  if (ready) {
    const std::string differ = different_versions();
    if (!differ.empty()) return JobEnd{exit_usage, differ};
    start();
  } else if (Clock::now() > connect_until_) {
    const auto late = std::find_if(hosts_.begin(), hosts_.end(), [](const auto& host) { return !host->is_ready(); });
    return JobEnd{exit_failed, (*late)->refusal()};
  }
  return std::nullopt;
}

void SshJob::start() {
  const std::string input = node_input(new_token(), job_);
  for (const auto& host : hosts_) host->start(input);
  started_ = true;
  listener_.state("runs on " + hosts());
}

void SshJob::signal(const char* name) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!ended_[i]) hosts_[i]->signal(name);
  }
}

void SshJob::note_ends() {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (ended_[i] || hosts_[i]->look()) continue;
    ended_[i] = true;
    if (!started_) continue;
    const int status = *hosts_[i]->status();
    if (status == 0) continue;
    if (status == status_of_ssh && lost_.empty()) lost_ = "host " + hosts_[i]->name() + " is lost: " + hosts_[i]->last_words();
    if (status != exit_peer_failed && status != status_of_ssh && first_status_ == 0) first_status_ = status;
    next_at_ = std::min(next_at_, Clock::now() + (status == status_of_ssh ? seconds(0) : time_after_first_end));
  }
}

bool SshJob::look() {
  note_ends();
  if (!started_) {
    const std::optional<JobEnd> end = end_of_start();
    if (!end) return true;
    hosts_.clear();  // the others end with their connections
    listener_.ended(*end);
    return false;
  }
  if (std::all_of(ended_.begin(), ended_.end(), [](bool ended) { return ended; })) {
    listener_.ended(end());
    return false;
  }
  if (Clock::now() >= next_at_) {
    next_at_ = Clock::now() + time_for_end;
    signal(std::exchange(asked_, true) ? "KILL" : "TERM");
  }
  return true;
}

void SshJob::stop() {
  ++stops_;
  if (!started_) return;
  signal(stops_ == 1 ? "TERM" : "KILL");
  asked_ = true;
  next_at_ = Clock::now() + time_for_end;
}

JobEnd SshJob::end() const {
  JobEnd end{first_status_, ""};
  if (first_status_ == 0 && std::any_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return *host->status() != 0; }))
    end.status = exit_failed;
  if (end.status == 0) return end;
  if (stops_ > 0) {
    if (end.status != exit_stopped) end.reason = "job " + job_.name + " was ended before its ranks had ended by themselves";
    end.status = exit_stopped;
  } else if (!lost_.empty()) {
    end.status = exit_failed;
    end.reason = "job " + job_.name + ": " + lost_ +
                 ". The ranks of the other hosts were asked for their end; the same command with " +
                 "--checkpoint FOLDER --resume goes on from the last checkpoint";
  }
  return end;
}

}  // namespace consist::launch
