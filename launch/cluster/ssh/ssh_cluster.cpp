#include "launch/cluster/ssh/ssh_cluster.h"

#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/child_output.h"
#include "core/base/split.h"
#include "core/job/agreed_token.h"
#include "launch/cluster/shell.h"
#include "launch/cluster/ssh/node_script.h"
#include "launch/cluster/ssh/ssh_job.h"

namespace consist::launch {
namespace {

constexpr std::chrono::seconds longest_question_of_ssh{20};
constexpr std::chrono::minutes longest_copy{30};
constexpr int nothing_there = 3;

std::string last_line(const std::string& text) {
  std::string last = "no word";
  for (const std::string_view line : split(text, '\n')) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

std::string SshCluster::next_name(const std::string& kind, int) const {
  return dated_name(kind);
}

std::string SshCluster::master(const TrainJob& job) const {
  // Below the ports that systems give to outgoing connections.
  const int port = settings_.port != 0 ? settings_.port : 20'000 + static_cast<int>(std::hash<std::string>()(job.name) % 10'000);
  std::string address = settings_.master;
  if (address.empty()) {
    std::vector<std::string> words{"ssh", "-G"};
    words.insert(words.end(), settings_.options.begin(), settings_.options.end());
    words.insert(words.end(), {"--", settings_.host(0).name});
    const ChildOutput output = child_output(std::move(words), longest_question_of_ssh);
    constexpr std::string_view key = "hostname ";
    for (const std::string_view line : split(output.text, '\n')) {
      if (line.starts_with(key)) address = line.substr(key.size());
    }
    if (address.empty())
      throw UsageError("ssh -G " + settings_.host(0).name + " does not say the address of the first host; name it in " +
                       settings_.file + ": ssh.master");
  }
  return (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":" + std::to_string(port);
}

std::string SshCluster::script(const TrainJob& job) const {
  const int nodes = divide_ranks(settings_, job.ranks, "ranks-per-host").nodes;
  return node_script(settings_, job, nodes > 1 ? master(job) : "");
}

std::string SshCluster::dry_run_text(const TrainJob& job) const {
  std::string text = "# One connection to each host; SCRIPT is the text below.\n";
  const int nodes = divide_ranks(settings_, job.ranks).nodes;
  for (int node = 0; node < nodes; ++node)
    text +=
        shell_words(ssh_words(settings_, settings_.host(node), "exec bash -c SCRIPT consist " + std::to_string(node))).substr(1) +
        "\n";
  return text + "\n# SCRIPT\n" + job.script + "\n# The configuration, which SCRIPT reads behind the job's secret.\n" + job.config;
}

int SshCluster::copy(const char* direction, const std::string& file, const std::string& command, std::string& complaint) const {
  std::vector<std::string> words{"/bin/sh", "-c", std::string("exec \"$@\" 2>&1 ") + direction + " \"$0\"", file};
  for (std::string& word : ssh_words(settings_, settings_.host(0), command)) words.push_back(std::move(word));
  const ChildOutput output = child_output(std::move(words), longest_copy);
  complaint = output.in_time ? last_line(output.text) : "it took longer than half an hour";
  return output.in_time && WIFEXITED(output.status) ? WEXITSTATUS(output.status) : -1;
}

bool SshCluster::prepare(const TrainJob& job) const {
  if (!job.goes_on || !std::filesystem::exists(job.archive_here)) return true;
  std::string complaint;
  const std::string command = "mkdir -p -m 700 " + shell_word(job.folder) + " && cat > " + shell_word(job.archive);
  if (copy("<", job.archive_here, command, complaint) != 0)
    throw SystemError("cannot copy " + job.archive_here + " to host " + settings_.host(0).text() + ": " + complaint);
  return true;
}

void SshCluster::discard(const TrainJob& job) const noexcept try {
  if (!job.goes_on) return;
  std::string ignored;
  copy(">", "/dev/null", "rm -rf " + shell_word(job.folder), ignored);
} catch (const std::exception&) {
  return;
}

std::string SshCluster::fetch(const TrainJob& job) const {
  if (job.archive.empty()) return "";
  const std::string archive = shell_word(job.archive);
  AtomicFile file(job.archive_here);
  std::string complaint;
  const int status = copy(">", file.partial_path(), "test -e " + archive + " || exit 3; exec cat " + archive, complaint);
  if (status == nothing_there) return "";
  if (status != 0)
    throw SystemError("cannot bring the archive from host " + settings_.host(0).text() + ": " + complaint + "; it is there in " +
                      job.archive);
  file.commit();
  copy(">", "/dev/null", "rm -rf " + shell_word(job.folder), complaint);
  return job.archive_here;
}

std::unique_ptr<ClusterJobs> SshCluster::jobs() const {
  return std::make_unique<JobList>([this](const TrainJob& job, JobListener listener) {
    return std::make_unique<SshJob>(settings_, job, std::move(listener));
  });
}

}  // namespace consist::launch
