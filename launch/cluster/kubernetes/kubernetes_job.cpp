#include "launch/cluster/kubernetes/kubernetes_job.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/number.h"
#include "core/job/agreed_token.h"
#include "launch/cli/exit_status.h"
#include "launch/cluster/kubernetes/manifests.h"

namespace consist::launch {
namespace {

using std::chrono::seconds;

// A control plane serves a whole cluster: it is asked often only while something is about to happen.
constexpr std::chrono::milliseconds first_pause_of_pods{500};
constexpr seconds longest_pause_of_pods{10};
constexpr seconds patience_with_cluster{600};
// Pods have two minutes for an orderly end (manifests.cpp).
constexpr seconds time_to_delete{150};

/// "2026-11-27T19:30:00.5Z" as a text that sorts by time.
std::string sortable(std::string stamp) {
  constexpr std::size_t length = std::string_view("2026-11-27T19:30:00.000000000").size();
  if (stamp.ends_with('Z')) stamp.pop_back();
  if (stamp.find('.') == std::string::npos) stamp += '.';
  stamp.resize(length, '0');
  return stamp;
}

}  // namespace

KubernetesJob::KubernetesJob(const KubernetesSettings& settings, const TrainJob& job, JobListener listener,
                             std::function<void()> brought)
    : settings_(settings),
      job_(job),
      name_(object_name(job)),
      listener_(std::move(listener)),
      brought_(std::move(brought)),
      last_answer_(Clock::now()),
      between_questions_(first_pause_of_pods) {
  apply_manifests(settings, secret_manifest(settings, job, new_token()) + "---\n" + job.script);
}

const Pod* KubernetesJob::first_pod() const {
  // A pod that was lost is there beside the one in its place.
  const auto found = std::find_if(pods_.rbegin(), pods_.rend(), [](const Pod& pod) { return pod.node == 0 && !pod.is_over(); });
  return found == pods_.rend() ? nullptr : &*found;
}

void KubernetesJob::ask() {
  std::optional<std::vector<Pod>> pods = pods_of(settings_, name_);
  between_questions_ = std::min<Clock::duration>(between_questions_ * 3 / 2, longest_pause_of_pods);
  next_question_ = Clock::now() + between_questions_;
  if (!pods) {
    if (Clock::now() - last_answer_ > patience_with_cluster)
      throw SystemError("Kubernetes has not answered for ten minutes (kubectl get pods); job " + name_ + " may still run");
    return;
  }
  last_answer_ = Clock::now();
  pods_ = std::move(*pods);
  had_pods_ |= !pods_.empty();
  take_state();
}

void KubernetesJob::take_state() {
  std::string text, hosts;
  for (const Pod& pod : pods_) {
    if (pod.phase == "Pending" && text.empty()) text = pod.waits.empty() ? "waits for its pods" : "waits: " + pod.waits;
    hosts += (hosts.empty() || pod.host.empty() ? "" : ", ") + pod.host;
  }
  if (text.empty() && !hosts.empty()) text = "runs on " + hosts;
  if (text.empty() || text == said_) return;
  said_ = text;
  listener_.state(text);
}

void KubernetesJob::follow_log() {
  const auto pod =
      std::find_if(pods_.rbegin(), pods_.rend(), [](const Pod& one) { return one.node == 0 && one.phase != "Pending"; });
  if (log_ || first_status_ || log_is_whole_ || pod == pods_.rend()) return;
  log_is_whole_ = pod->is_over();  // what it says then is all that it has said
  std::vector<std::string> words{"logs", "--follow", "--timestamps", pod->name};
  if (!last_stamp_.empty()) words.push_back("--since-time=" + last_stamp_);
  log_ = std::make_unique<FollowedProcess>(
      kubectl_words(settings_, words), [this](const std::string& line) { take_line(line); },
      [this](const std::string& line) { listener_.errors("kubectl: " + line); });
}

void KubernetesJob::take_line(const std::string& stamped) {
  const auto [stamp, line] = cut(stamped, ' ');
  if (sortable(stamp) <= sortable(last_stamp_)) return;  // the log is read again from the beginning of a second
  last_stamp_ = stamp;
  if (line.starts_with(pod_has_ended)) {
    take_end(line.substr(std::string_view(pod_has_ended).size()));
  } else if (!line.empty() && line[0] == error_mark) {
    listener_.errors(line.substr(1));
  } else {
    listener_.output(line);
  }
}

void KubernetesJob::take_end(const std::string& text) {
  const auto [status, archive] = cut(text + " ", ' ');
  int number = exit_failed;
  parse_number(status, number);
  first_status_ = number;
  if (archive.starts_with("archive")) bring();
  between_questions_ = first_pause_of_pods;
  next_question_ = Clock::now();
}

void KubernetesJob::bring() {
  const Pod* const pod = first_pod();
  if (pod == nullptr) return;
  AtomicFile file(job_.archive_here);
  problem_ = copy_from_pod(settings_, pod->name, job_.archive, file.partial_path());
  if (problem_.empty()) {
    file.commit();
    brought_();
  } else {
    listener_.errors("kubectl: the archive of job " + name_ + " cannot be brought from " + pod->name + ": " + problem_);
  }
  touch_in_pod(settings_, pod->name, brought_file(job_));
}

bool KubernetesJob::is_over() const {
  if (pods_.empty()) return had_pods_ || stops_ > 0;
  return std::all_of(pods_.begin(), pods_.end(), [](const Pod& pod) { return pod.is_over(); });
}

bool KubernetesJob::look() {
  if (Clock::now() >= delete_at_) {
    delete_at_ = Clock::now() + time_to_delete;
    delete_job(settings_, name_, true);
  }
  if (Clock::now() >= next_question_) ask();
  follow_log();
  if (log_ && !log_->look()) {
    log_.reset();
    next_question_ = std::min(next_question_, Clock::now() + first_pause_of_pods);
  }
  const bool has_first = std::any_of(pods_.begin(), pods_.end(), [](const Pod& pod) { return pod.node == 0; });
  if (log_ || !is_over() || (has_first && !first_status_ && !log_is_whole_)) return true;
  listener_.ended(end());
  delete_objects(settings_, name_);
  return false;
}

JobEnd KubernetesJob::end() const {
  JobEnd end{first_status_.value_or(exit_failed), ""};
  for (const Pod& pod : pods_) {
    if (end.status == exit_peer_failed && pod.status && *pod.status != 0 && *pod.status != exit_peer_failed)
      end.status = *pod.status;
  }
  if (end.status == 0) return end;
  if (stops_ > 0) {
    if (!first_status_) end.reason = "job " + name_ + " was ended before its ranks had ended by themselves";
    end.status = exit_stopped;
  } else if (!first_status_) {
    end.reason =
        "job " + name_ + (pods_.empty() ? " was deleted, not by this command" : " has ended without a word of its rank 0");
    for (const Pod& pod : pods_) {
      if (pod.status.value_or(0) != 0)
        end.reason += "; pod " + pod.name + (pod.host.empty() ? "" : " on " + pod.host) + " ended with status " +
                      std::to_string(*pod.status);
    }
  }
  return end;
}

void KubernetesJob::stop() {
  ++stops_;
  delete_at_ = Clock::now() + time_to_delete;
  between_questions_ = first_pause_of_pods;
  next_question_ = Clock::now();
  if (const std::string problem = delete_job(settings_, name_, stops_ > 1); !problem.empty())
    listener_.errors("kubectl: " + problem);
}

}  // namespace consist::launch
