#include "launch/cluster/ssh/ssh_job.h"

#include <algorithm>
#include <utility>

#include "core/job/agreed_token.h"
#include "launch/cli/exit_status.h"
#include "launch/cluster/shell.h"
#include "launch/cluster/ssh/node_script.h"

namespace consist::launch {
namespace {

using std::chrono::seconds;

constexpr seconds time_to_connect{60};
// The ranks of other hosts know of a failure within moments, and their launcher gives them some seconds to end.
constexpr seconds time_after_first_end{30};
// The launcher ends its ranks itself after its grace period of a minute.
constexpr seconds time_for_end{90};
// Other launchers wait ten minutes for one in a lost one's place.
constexpr seconds time_between_tries{10};
constexpr int status_of_ssh = 255;

}  // namespace

SshJob::SshJob(const SshSettings& settings, const TrainJob& job, JobListener listener)
    : settings_(settings), job_(job), listener_(std::move(listener)), connect_until_(Clock::now() + time_to_connect) {
  places_.resize(static_cast<std::size_t>(divide_ranks(settings, job.ranks).nodes));
  for (Place& place : places_) {
    place.number = unused_++;
    place.host = connection(place);
  }
}

std::unique_ptr<SshConnection> SshJob::connection(const Place& place) const {
  const int node = static_cast<int>(&place - places_.data());
  return std::make_unique<SshConnection>(settings_, settings_.host(static_cast<int>(place.number)), node, job_.script, listener_);
}

std::string SshJob::hosts() const {
  std::string names;
  for (const Place& place : places_) names += (names.empty() ? "" : ", ") + place.host->name();
  return names;
}

std::string SshJob::different_version(const Place& place) const {
  const SshConnection &one = *places_[0].host, &other = *place.host;
  if (other.version() == one.version()) return "";
  return "hosts have different builds of Consist: " + one.name() + " has " + one.version() + ", " + other.name() + " has " +
         other.version() + "; install one on all (ssh.consist names it)";
}

std::optional<JobEnd> SshJob::end_of_start() {
  if (stops_ > 0) return JobEnd{exit_stopped, "job " + job_.name + " was ended before its ranks had started"};
  for (const Place& place : places_) {
    if (place.host->host_has_refused()) return JobEnd{exit_usage, place.host->refusal()};
  }
  for (const Place& place : places_) {
    if (place.ended) return JobEnd{exit_failed, place.host->refusal()};
  }
  const auto late = std::ranges::find_if(places_, [](const Place& place) { return !place.host->is_ready(); });
  if (late != places_.end()) {
    if (Clock::now() <= connect_until_) return std::nullopt;
    return JobEnd{exit_failed, late->host->refusal()};
  }
  for (const Place& place : places_) {
    const std::string differs = different_version(place);
    if (!differs.empty()) return JobEnd{exit_usage, differs};
  }
  start();
  return std::nullopt;
}

void SshJob::start() {
  input_ = node_input(new_token(), job_);
  for (const Place& place : places_) place.host->start(input_);
  started_ = true;
  listener_.state("runs on " + hosts());
}

void SshJob::signal(const char* name) {
  for (const Place& place : places_) {
    if (!place.ended && !place.starts) place.host->signal(name);
  }
}

void SshJob::note_ends() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.starts) {
      replace(i);
    } else if (!place.ended && !place.host->look()) {
      place.ended = true;
      if (started_) note_end(i);
    }
  }
}

void SshJob::note_end(std::size_t number) {
  Place& place = places_[number];
  const int status = *place.host->status();
  // Launchers that wait for their turn are told of the end; one that has not heard it is asked.
  if (status == 0 && number == 0 && varies()) next_at_ = std::min(next_at_, Clock::now() + time_after_first_end);
  if (status == 0) return;
  if (status == status_of_ssh) {
    const std::string lost = "host " + place.host->name() + " is lost: " + place.host->last_words();
    if (job_.restarts && number > 0 && stops_ == 0 && !asked_) {
      listener_.state("has lost a host: " + lost);
      place.ended = false;
      place.starts = true;
      place.host.reset();
      place.next = Clock::now();
      lost_ = lost;
      return;
    }
    if (lost_.empty()) lost_ = lost;
  }
  if (status != exit_peer_failed && status != status_of_ssh && first_status_ == 0) first_status_ = status;
  next_at_ = std::min(next_at_, Clock::now() + (status == status_of_ssh ? seconds(0) : time_after_first_end));
}

void SshJob::give_up(Place& place, const std::string& why) {
  listener_.state("cannot go on there: " + why);
  place.host.reset();
  place.next = Clock::now() + (unused_ < settings_.hosts.size() ? seconds(0) : time_between_tries);
}

void SshJob::replace(std::size_t number) {
  Place& place = places_[number];
  if (stops_ > 0 || asked_) return place.host.reset();  // the others end
  if (!place.host) {
    if (Clock::now() < place.next) return;
    if (unused_ < settings_.hosts.size()) place.number = unused_++;
    place.host = connection(place);
    place.next = Clock::now() + time_to_connect;
  }
  const bool goes_on = place.host->look();
  if (!goes_on || place.host->host_has_refused() || (!place.host->is_ready() && Clock::now() > place.next))
    return give_up(place, place.host->refusal());
  if (!place.host->is_ready()) return;
  const std::string differs = different_version(place);
  if (!differs.empty()) return give_up(place, differs);
  place.host->start(input_);
  place.starts = false;
  lost_.clear();
  listener_.state("goes on with " + place.host->name() + " in place " + std::to_string(number));
}

bool SshJob::varies() const {
  return launch::varies(settings_, {.nodes = static_cast<int>(places_.size())}, job_);
}

bool SshJob::is_over() const {
  return std::ranges::all_of(places_, [](const Place& place) { return place.ended || place.starts; });
}

bool SshJob::look() {
  note_ends();
  if (!started_) {
    const std::optional<JobEnd> end = end_of_start();
    if (!end) return true;
    places_.clear();  // the others end with their connections
    listener_.ended(*end);
    return false;
  }
  if (is_over()) {
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
  const auto is_well = [this](const Place& place) { return place.starts ? varies() : *place.host->status() == 0; };
  if (first_status_ == 0 && !std::ranges::all_of(places_, is_well)) end.status = exit_failed;
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
