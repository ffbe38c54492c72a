#include "launch/cluster/kubernetes/kubectl.h"

#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "consist/error.h"
#include "core/base/child_output.h"
#include "core/base/number.h"
#include "core/base/split.h"
#include "launch/cluster/followed_process.h"

namespace consist::launch {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds longest_kubectl{60};
constexpr std::chrono::minutes longest_archive{30};
constexpr std::chrono::milliseconds between_reads{20};
constexpr const char* pod_fields =
    "-o=jsonpath={range .items[*]}{.metadata.annotations.batch\\.kubernetes\\.io/job-completion-index}|{.metadata.name}|"
    "{.status.phase}|{.spec.nodeName}|{.status.containerStatuses[0].state.terminated.exitCode}|"
    "{.status.containerStatuses[0].state.waiting.reason}|{.status.conditions[?(@.type==\"PodScheduled\")].message}{\"\\n\"}{end}";

struct KubectlAnswer {
  int status = 0;  ///< the exit status; -1: it did not answer in time
  std::string text, complaint;
};

/// Runs kubectl with `input` to read.
KubectlAnswer ask_kubectl(const KubernetesSettings& settings, const std::vector<std::string>& words,
                          const std::string& input = "") {
  KubectlAnswer answer;
  FollowedProcess kubectl(
      kubectl_words(settings, words), [&](const std::string& line) { answer.text += line + "\n"; },
      [&](const std::string& line) { answer.complaint += (answer.complaint.empty() ? "" : "; ") + line; });
  kubectl.tell(input);
  const Clock::time_point deadline = Clock::now() + longest_kubectl;
  for (; kubectl.look(); std::this_thread::sleep_for(between_reads)) {
    if (kubectl.has_been_told()) kubectl.end_input();
    if (Clock::now() > deadline) return {-1, "", "kubectl did not answer within a minute"};
  }
  answer.status = *kubectl.status();
  return answer;
}

Pod pod_in(const std::vector<std::string_view>& fields) {
  Pod pod;
  parse_number(fields[0], pod.node);
  pod.name = fields[1];
  pod.phase = fields[2];
  pod.host = fields[3];
  if (int status = 0; parse_number(fields[4], status)) pod.status = status;
  pod.waits = fields[5].empty() ? fields[6] : fields[5];
  return pod;
}

}  // namespace

std::vector<std::string> kubectl_words(const KubernetesSettings& settings, const std::vector<std::string>& words) {
  std::vector<std::string> all{"kubectl"};
  all.insert(all.end(), settings.options.begin(), settings.options.end());
  if (!settings.name_space.empty()) all.push_back("--namespace=" + settings.name_space);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

void apply_manifests(const KubernetesSettings& settings, const std::string& text) {
  KubectlAnswer answer;
  try {
    answer = ask_kubectl(settings, {"apply", "--filename=-"}, text);
  } catch (const SystemError&) {
    throw UsageError("--on kubernetes: there is no kubectl in PATH; install it, and let it reach the cluster (kubectl get pods)");
  }
  if (answer.status < 0) throw SystemError(answer.complaint + "; objects may have been made nevertheless (kubectl get jobs)");
  if (answer.status != 0)
    throw UsageError("Kubernetes refuses the job: " + answer.complaint + ". The job is made from " + settings.file +
                     "; --dry-run shows it");
}

std::optional<std::vector<Pod>> pods_of(const KubernetesSettings& settings, const std::string& name) {
  const KubectlAnswer answer = ask_kubectl(settings, {"get", "pods", "--selector=consist-job=" + name, pod_fields});
  if (answer.status != 0) return std::nullopt;
  std::vector<Pod> pods;
  for (const std::string_view line : split(answer.text, '\n')) {
    const std::vector<std::string_view> fields = split(line, '|');
    if (fields.size() >= 7) pods.push_back(pod_in(fields));
  }
  return pods;
}

std::string copy_from_pod(const KubernetesSettings& settings, const std::string& pod, const std::string& from,
                          const std::string& to) {
  std::vector<std::string> words{"/bin/sh", "-c", "exec \"$@\" 2>&1 > \"$0\"", to};
  for (std::string& word : kubectl_words(settings, {"exec", pod, "--", "cat", from})) words.push_back(std::move(word));
  const ChildOutput output = child_output(std::move(words), longest_archive);
  if (output.in_time && WIFEXITED(output.status) && WEXITSTATUS(output.status) == 0) return "";
  return output.text.empty() ? "kubectl does not answer" : output.text;
}

void touch_in_pod(const KubernetesSettings& settings, const std::string& pod, const std::string& file) {
  ask_kubectl(settings, {"exec", pod, "--", "touch", file});
}

std::string delete_job(const KubernetesSettings& settings, const std::string& name, bool at_once) {
  std::vector<std::string> words{"delete", "job", name, "--wait=false", "--ignore-not-found"};
  if (at_once) words.insert(words.end(), {"--grace-period=0", "--force"});
  const KubectlAnswer answer = ask_kubectl(settings, words);
  if (at_once && answer.status == 0)
    return ask_kubectl(settings,
                       {"delete", "pods", "--selector=consist-job=" + name, "--wait=false", "--grace-period=0", "--force"})
        .complaint;
  return answer.status == 0 ? "" : answer.complaint;
}

void delete_objects(const KubernetesSettings& settings, const std::string& name) {
  ask_kubectl(settings, {"delete", "job,service,configmap,secret", "--selector=consist-job=" + name, "--wait=false"});
}

}  // namespace consist::launch
