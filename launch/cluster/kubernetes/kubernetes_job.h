// A job of Kubernetes, followed until it has ended.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/followed_process.h"
#include "launch/cluster/job_list.h"
#include "launch/cluster/kubernetes/kubectl.h"

namespace consist::launch {

/// Its objects are deleted when it has ended, and not where this process ends before: the job goes on then.
class KubernetesJob final : public FollowedJob {
 public:
  /// `brought` is called with the job once its archive is where it is wanted. Throws as apply_manifests().
  KubernetesJob(const KubernetesSettings& settings, const TrainJob& job, JobListener listener, std::function<void()> brought);

  bool look() override;
  void stop() override;

 private:
  using Clock = std::chrono::steady_clock;

  void ask();
  void take_state();
  const Pod* first_pod() const;
  void follow_log();
  void take_line(const std::string& stamped);
  void take_end(const std::string& text);
  void bring();
  bool is_over() const;
  JobEnd end() const;

  const KubernetesSettings& settings_;
  const TrainJob job_;
  const std::string name_;
  const JobListener listener_;
  const std::function<void()> brought_;
  std::vector<Pod> pods_;
  bool had_pods_ = false;
  std::string said_;
  std::unique_ptr<FollowedProcess> log_;
  std::string last_stamp_;  // of the log's lines: where the log is read again after its connection broke
  bool log_is_whole_ = false;
  std::optional<int> first_status_;  // of node 0's launcher
  std::string problem_;
  Clock::time_point next_question_{}, last_answer_;
  Clock::duration between_questions_;
  int stops_ = 0;
  Clock::time_point delete_at_ = Clock::time_point::max();
};

}  // namespace consist::launch
