// kubectl's commands, each with a time limit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/kubernetes/kubernetes_settings.h"

namespace consist::launch {

/// A pod of a job.
struct Pod {
  int node = -1;
  std::string name;
  std::string phase;          ///< "Pending", "Running", "Succeeded", "Failed"
  std::string host;           ///< empty before it has one
  std::string waits;          ///< why it does not run: "ImagePullBackOff", "0/4 nodes are available: ..."
  std::optional<int> status;  ///< of its container, once it has ended

  bool is_over() const noexcept { return phase == "Succeeded" || phase == "Failed"; }
};

/// kubectl's words, with the options of the cluster's file.
std::vector<std::string> kubectl_words(const KubernetesSettings& settings, const std::vector<std::string>& words);

/// Makes the objects of a text. Throws UsageError with kubectl's words where it is not here or the cluster takes none;
/// SystemError where it does not answer.
void apply_manifests(const KubernetesSettings& settings, const std::string& text);

/// The pods of a job; nothing if the cluster does not answer, which may be a matter of moments.
std::optional<std::vector<Pod>> pods_of(const KubernetesSettings& settings, const std::string& name);

/// Copies a file of a pod to one here. Returns a complaint; empty if there is none.
std::string copy_from_pod(const KubernetesSettings& settings, const std::string& pod, const std::string& from,
                          const std::string& to);
/// Makes an empty file in a pod.
void touch_in_pod(const KubernetesSettings& settings, const std::string& pod, const std::string& file);

/// Deletes the Job, which ends its pods after the time that they have for it, or at once.
std::string delete_job(const KubernetesSettings& settings, const std::string& name, bool at_once);
/// Deletes whatever is left of a job.
void delete_objects(const KubernetesSettings& settings, const std::string& name);

}  // namespace consist::launch
