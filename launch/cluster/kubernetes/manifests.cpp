#include "launch/cluster/kubernetes/manifests.h"

#include <nlohmann/json.hpp>

#include "launch/cluster/kubernetes/yaml.h"
#include "launch/cluster/shell.h"

namespace consist::launch {
namespace {

using Tree = nlohmann::ordered_json;

constexpr int port_of_launcher = 29500;
// A run that is asked for its end finishes a step and saves its work; then the archive is brought.
constexpr int seconds_for_end = 120;

std::string config_folder(const KubernetesSettings& settings) {
  return settings.folder + "-job";
}
std::string secret_folder(const KubernetesSettings& settings) {
  return settings.folder + "-secret";
}

std::string pod_script(const KubernetesSettings& settings, const TrainJob& job) {
  const Division division = divide_ranks(settings, job.ranks);
  const std::string name = object_name(job), folder = shell_word(job.folder);
  const LaunchPlaces places{"\"$node\"", name + "-0." + name + ":" + std::to_string(port_of_launcher),
                            shell_word(config_folder(settings) + "/" + job_files::config)};
  const std::string token =
      "export CONSIST_JOB_TOKEN_FILE=" + shell_word(secret_folder(settings) + "/" + job_files::token) + "\n";
  std::string text = "#!/usr/bin/env bash\nnode=$JOB_COMPLETION_INDEX\nmkdir -p -- " + folder + " || exit 1\n";
  if (!settings.working_folder.empty()) text += "cd -- " + shell_word(settings.working_folder) + " || exit 1\n";
  text += forget_lines() + environment_lines(settings, token) +
          "# The log of a pod has no streams: lines of standard error begin with a mark.\n"
          "exec 4> >(while IFS= read -r line; do printf '\\001%s\\n' \"$line\"; done)\n"
          "marker=$!\n" +
          trapped_lines(launch_command(settings, division, places, job) + " 2>&4 4>&-", "TERM INT") +
          "exec 4>&-\n"
          "wait \"$marker\"\n"
          "[ \"$node\" = 0 ] || exit \"$status\"\n";
  if (job.archive.empty()) return text + "echo \"" + pod_has_ended + "$status\"\nexit \"$status\"\n";
  return text + "archive=" + shell_word(job.archive) + "\n[ -e \"$archive\" ] || { echo \"" + pod_has_ended +
         "$status\"; exit \"$status\"; }\necho \"" + pod_has_ended +
         "$status archive\"\n"
         "# The archive is brought from here while the pod is there.\n"
         "for ((second = 0; second < 600; ++second)); do [ ! -e " +
         shell_word(brought_file(job)) + " ] || break; sleep 1; done\nexit \"$status\"\n";
}

Tree metadata(const KubernetesSettings& settings, const TrainJob& job) {
  Tree tree = {{"name", object_name(job)}};
  if (!settings.name_space.empty()) tree["namespace"] = settings.name_space;
  tree["labels"] = {{"app.kubernetes.io/name", "consist"}, {"consist-job", object_name(job)}};
  return tree;
}

Tree resources(const KubernetesSettings& settings, int ranks) {
  Tree limits = Tree::object(), requests = Tree::object();
  const int gpus = (settings.gpus_per_node * ranks + settings.ranks_per_node - 1) / settings.ranks_per_node;
  if (gpus > 0) limits["nvidia.com/gpu"] = std::to_string(gpus);
  if (settings.efa_per_node > 0) {
    limits["vpc.amazonaws.com/efa"] = std::to_string(settings.efa_per_node);
    limits["hugepages-2Mi"] = "5120Mi";  // libfabric's buffers
  }
  for (const std::string& text : settings.resources) {
    const auto [name, count] = cut(text, '=');
    limits[name] = count;
  }
  if (!settings.memory.empty()) limits["memory"] = requests["memory"] = settings.memory;
  // Whoever asks for huge pages must ask for processors or memory, too.
  if (settings.cpus_per_node > 0 || (settings.efa_per_node > 0 && settings.memory.empty()))
    requests["cpu"] = std::to_string(std::max(1, settings.cpus_per_node));
  Tree tree = Tree::object();
  if (!limits.empty()) tree["limits"] = limits;
  if (!requests.empty()) tree["requests"] = requests;
  return tree;
}

/// One pod a node, all in one zone: traffic between zones is slow and paid for.
Tree affinity(const KubernetesSettings& settings, const TrainJob& job) {
  const auto beside = [&](const char* key) {
    return Tree{
        {"requiredDuringSchedulingIgnoredDuringExecution",
         Tree::array({{{"labelSelector", {{"matchLabels", {{"consist-job", object_name(job)}}}}}, {"topologyKey", key}}})}};
  };
  Tree tree = {{"podAffinity", beside("topology.kubernetes.io/zone")}, {"podAntiAffinity", beside("kubernetes.io/hostname")}};
  if (!settings.zone.empty()) {
    const Tree in_zone = {{"key", "topology.kubernetes.io/zone"}, {"operator", "In"}, {"values", Tree::array({settings.zone})}};
    tree["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
        Tree::array({{{"matchExpressions", Tree::array({in_zone})}}});
  }
  return tree;
}

void add_volume(Tree& pod, const std::string& name, const std::string& folder, const Tree& source) {
  Tree volume = {{"name", name}};
  volume.update(source);
  pod["volumes"].push_back(volume);
  pod["containers"][0]["volumeMounts"].push_back({{"name", name}, {"mountPath", folder}});
}

Tree pod_of(const KubernetesSettings& settings, const TrainJob& job) {
  const std::string name = object_name(job);
  Tree container = {
      {"name", "consist"}, {"image", settings.image}, {"command", Tree::array({"bash", config_folder(settings) + "/node.sh"})}};
  container["env"] =
      Tree::array({{{"name", node_name_variable}, {"valueFrom", {{"fieldRef", {{"fieldPath", "spec.nodeName"}}}}}}});
  if (const Tree needs = resources(settings, divide_ranks(settings, job.ranks).ranks_per_node); !needs.empty())
    container["resources"] = needs;
  if (settings.has_cards()) container["securityContext"]["capabilities"]["add"] = Tree::array({"IPC_LOCK"});  // they pin memory
  Tree pod = {{"restartPolicy", "Never"},
              {"subdomain", name},
              {"terminationGracePeriodSeconds", seconds_for_end},
              {"affinity", affinity(settings, job)}};
  for (const std::string& label : settings.node_labels) {
    const auto [key, value] = cut(label, '=');
    pod["nodeSelector"][key] = value;
  }
  if (settings.gpus_per_node > 0)
    pod["tolerations"] = Tree::array({{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}});
  pod["containers"] = Tree::array({container});
  add_volume(pod, "shm", "/dev/shm", {{"emptyDir", {{"medium", "Memory"}, {"sizeLimit", settings.shared_memory}}}});
  add_volume(pod, "files", settings.folder, {{"emptyDir", Tree::object()}});
  add_volume(pod, "job", config_folder(settings), {{"configMap", {{"name", name}}}});
  add_volume(pod, "secret", secret_folder(settings), {{"secret", {{"secretName", name}, {"defaultMode", 0400}}}});
  int number = 0;
  for (const std::string& claim : settings.claims) {
    const auto [of, folder] = cut(claim, ':');
    add_volume(pod, "claim-" + std::to_string(number++), folder, {{"persistentVolumeClaim", {{"claimName", of}}}});
  }
  return pod;
}

Tree job_of(const KubernetesSettings& settings, const TrainJob& job) {
  const int nodes = divide_ranks(settings, job.ranks).nodes;
  Tree spec = {{"completionMode", "Indexed"}, {"completions", nodes}, {"parallelism", nodes}, {"backoffLimit", 0}};
  if (job.restarts) {
    // A pod whose node is lost is made anew, and its launcher takes the lost one's place; a run that has failed is not begun
    // anew.
    spec["backoffLimit"] = nodes * 10;
    spec["podFailurePolicy"]["rules"] = Tree::array(
        {{{"action", "Count"}, {"onPodConditions", Tree::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}},
         {{"action", "FailJob"}, {"onExitCodes", {{"operator", "NotIn"}, {"values", Tree::array({0})}}}}});
  }
  spec["template"] = {{"metadata", {{"labels", metadata(settings, job)["labels"]}}}, {"spec", pod_of(settings, job)}};
  return {{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", metadata(settings, job)}, {"spec", spec}};
}

}  // namespace

std::string object_name(const TrainJob& job) {
  return "consist-" + job.name;
}

std::string brought_file(const TrainJob& job) {
  return job.folder + "/brought";
}

std::string job_manifests(const KubernetesSettings& settings, const TrainJob& job) {
  const Tree service = {{"apiVersion", "v1"},
                        {"kind", "Service"},
                        {"metadata", metadata(settings, job)},
                        // Launchers look for the first pod before it can be said to be ready.
                        {"spec",
                         {{"clusterIP", "None"},
                          {"publishNotReadyAddresses", true},
                          {"selector", {{"consist-job", object_name(job)}}},
                          {"ports", Tree::array({{{"name", "launcher"}, {"port", port_of_launcher}}})}}}};
  const Tree files = {{"apiVersion", "v1"},
                      {"kind", "ConfigMap"},
                      {"metadata", metadata(settings, job)},
                      {"data", {{"node.sh", pod_script(settings, job)}, {job_files::config, job.config}}}};
  return yaml_text(service) + "---\n" + yaml_text(files) + "---\n" + yaml_text(job_of(settings, job));
}

std::string secret_manifest(const KubernetesSettings& settings, const TrainJob& job, const std::string& token) {
  return yaml_text({{"apiVersion", "v1"},
                    {"kind", "Secret"},
                    {"metadata", metadata(settings, job)},
                    {"type", "Opaque"},
                    {"stringData", {{job_files::token, token}}}});
}

}  // namespace consist::launch
