#include "launch/cluster/kubernetes/kubernetes_cluster.h"

#include <filesystem>
#include <utility>

#include "consist/error.h"
#include "launch/cluster/kubernetes/kubernetes_job.h"
#include "launch/cluster/kubernetes/manifests.h"

namespace consist::launch {

std::string KubernetesCluster::next_name(const std::string& kind, int) const {
  return dated_name(kind);
}

std::string KubernetesCluster::script(const TrainJob& job) const {
  if (job.goes_on && std::filesystem::exists(job.archive_here))
    throw UsageError("--resume would go on in " + job.archive_here +
                     ", and archives are not copied into pods; give the rest of the run another name with --archive");
  return job_manifests(settings_, job);
}

std::string KubernetesCluster::dry_run_text(const TrainJob& job) const {
  return "# The secret is made anew when the job is.\n" + secret_manifest(settings_, job, "SECRET") + "---\n" + job.script;
}

void KubernetesCluster::discard(const TrainJob& job) const noexcept try {
  delete_objects(settings_, object_name(job));
} catch (const std::exception&) {
  return;
}

std::string KubernetesCluster::fetch(const TrainJob& job) const {
  return brought_.contains(job.name) ? job.archive_here : "";
}

std::unique_ptr<ClusterJobs> KubernetesCluster::jobs() const {
  return std::make_unique<JobList>([this](const TrainJob& job, JobListener listener) {
    return std::make_unique<KubernetesJob>(settings_, job, std::move(listener),
                                           [this, name = job.name] { brought_.insert(name); });
  });
}

}  // namespace consist::launch
