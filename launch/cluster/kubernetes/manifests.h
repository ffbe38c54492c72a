// The objects of Kubernetes that make a job.
#pragma once

#include <string>

#include "launch/cluster/kubernetes/kubernetes_settings.h"
#include "launch/cluster/train_job.h"

namespace consist::launch {

/// Says to a pod's processes on which node they are.
inline constexpr const char* node_name_variable = "CONSIST_NODE_NAME";

/// Lines by which the script in the pods talks to this program.
inline constexpr const char* pod_has_ended = "consist-has-ended ";  ///< and the launcher's status, then "archive" if there is one
inline constexpr char error_mark = '\1';                            ///< before a line of standard error

/// The name of all objects of a job: "consist-train-...".
std::string object_name(const TrainJob& job);
/// The file by which pod 0 learns that its archive was brought.
std::string brought_file(const TrainJob& job);

/// A headless Service, by which pods find the first one; a ConfigMap of the configuration and the pods' script; an indexed Job
/// with a pod for each node. As YAML. Throws UsageError for ranks that do not fill nodes.
std::string job_manifests(const KubernetesSettings& settings, const TrainJob& job);

/// The Secret that pods mount.
std::string secret_manifest(const KubernetesSettings& settings, const TrainJob& job, const std::string& token);

}  // namespace consist::launch
