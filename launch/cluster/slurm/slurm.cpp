#include "launch/cluster/slurm/slurm.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "consist/error.h"
#include "core/base/child_output.h"
#include "core/base/split.h"

namespace consist::launch {
namespace {

constexpr std::chrono::seconds longest_submission{60}, longest_question{20};
constexpr int not_found = 127;

struct Answer {
  int status = 0;  ///< the exit status; -1: it did not answer in time or was ended by a signal
  std::string text;
};

/// Runs a command of Slurm for all that it says, its errors included.
Answer ask(const std::vector<std::string>& words, std::chrono::seconds longest) {
  std::vector<std::string> all{"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"};
  all.insert(all.end(), words.begin(), words.end());
  ChildOutput output = child_output(std::move(all), longest);
  const bool ended = output.in_time && WIFEXITED(output.status);
  return {ended ? WEXITSTATUS(output.status) : -1, std::move(output.text)};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) {
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

/// Slurm's complaint in one line, without the names of its programs.
std::string complaint(const std::string& text) {
  std::string all;
  for (std::string line : lines_of(text)) {
    for (const char* said : {"sbatch: error: ", "scancel: error: ", "sbatch: "}) {
      if (line.starts_with(said)) line.erase(0, std::string_view(said).size());
    }
    all += (all.empty() ? "" : "; ") + line;
  }
  return all.empty() ? "no word" : all;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// "12" and "12;east" of what sbatch --parsable prints, beside warnings.
std::string job_in(const std::string& text) {
  for (const std::string& line : lines_of(text)) {
    if (is_number(split(line, ';').front())) return line;
  }
  return "";
}

/// A job's number and, in a federation, the options that name its cluster.
std::vector<std::string> with_cluster(std::vector<std::string> words, const std::string& job) {
  const std::vector<std::string_view> parts = split(job, ';');
  if (parts.size() > 1) words.insert(words.end(), {"-M", std::string(parts[1])});
  return words;
}

std::string number_of(const std::string& job) {
  return std::string(split(job, ';').front());
}

[[noreturn]] void refuse_submission(const SlurmSettings& settings, const Answer& answer) {
  if (answer.status == not_found)
    throw UsageError(
        "--on slurm: there is no sbatch in PATH; give the command on a machine from which jobs are submitted to Slurm");
  if (answer.status < 0)
    throw SystemError("sbatch did not answer within " + std::to_string(longest_submission.count()) +
                      " s; a job may have been submitted nevertheless (squeue --me)");
  std::string hint;
  if (answer.text.find("artition") != std::string::npos) {
    const Answer partitions = ask({"sinfo", "--noheader", "--format=%R"}, longest_question);
    std::string names;
    for (const std::string& name : lines_of(partitions.text)) names += (names.empty() ? "" : ", ") + name;
    if (partitions.status == 0 && !names.empty()) hint = ". Partitions here: " + names;
  }
  throw UsageError("Slurm refuses the job: " + complaint(answer.text) + hint + ". The job is made from " + settings.file +
                   "; --dry-run shows it");
}

}  // namespace

bool QueuedJob::is_pending() const noexcept {
  constexpr std::array<std::string_view, 5> waiting{"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"};
  return std::find(waiting.begin(), waiting.end(), state) != waiting.end();
}

bool QueuedJob::is_over() const noexcept {
  constexpr std::array<std::string_view, 7> going_on{"RUNNING",   "COMPLETING", "SUSPENDED", "STOPPED",
                                                     "SIGNALING", "STAGE_OUT",  "RESIZING"};
  return !is_pending() && std::find(going_on.begin(), going_on.end(), state) == going_on.end();
}

std::string submit(const SlurmSettings& settings, const std::string& script) {
  const Answer answer = ask({"sbatch", "--parsable", script}, longest_submission);
  const std::string job = answer.status == 0 ? job_in(answer.text) : "";
  if (job.empty()) refuse_submission(settings, answer);
  return job;
}

std::optional<std::map<std::string, QueuedJob>> ask_queue(const std::vector<std::string>& jobs) {
  std::map<std::string, QueuedJob> found;
  std::string numbers;
  for (const std::string& job : jobs) numbers += (numbers.empty() ? "" : ",") + number_of(job);
  const Answer answer =
      ask(with_cluster({"squeue", "--noheader", "--states=all", "--jobs=" + numbers, "--format=%A|%T|%r|%N"}, jobs.front()),
          longest_question);
  // Of a single job that it has forgotten squeue says so; of several it leaves out those.
  if (answer.status != 0 && answer.text.find("Invalid job id") == std::string::npos) return std::nullopt;
  for (const std::string& line : lines_of(answer.text)) {
    const std::vector<std::string_view> fields = split(line, '|');
    if (fields.size() != 4) continue;
    const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const std::string& one) { return number_of(one) == fields[0]; });
    if (job != jobs.end())
      found[*job] = {std::string(fields[1]), fields[2] == "None" ? "" : std::string(fields[2]), std::string(fields[3])};
  }
  for (const std::string& job : jobs) found.try_emplace(job);
  return found;
}

std::string cancel(const std::string& job, const std::string& signal) {
  std::vector<std::string> words = with_cluster({"scancel"}, job);
  if (!signal.empty()) words.push_back("--signal=" + signal);
  words.push_back(number_of(job));
  const Answer answer = ask(words, longest_question);
  return answer.status == 0 ? "" : answer.status < 0 ? "scancel did not answer" : complaint(answer.text);
}

std::string nodes_down(const std::string& nodes) {
  if (nodes.empty()) return "";
  const Answer answer = ask(
      {"sinfo", "--noheader", "--Node", "--nodes=" + nodes, "--states=down,fail,no_respond", "--format=%N|%E"}, longest_question);
  std::vector<std::string> lines = answer.status == 0 ? lines_of(answer.text) : std::vector<std::string>{};
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());  // a node is listed for each of its partitions
  std::string text;
  for (const std::string& line : lines) {
    const std::vector<std::string_view> fields = split(line, '|');
    if (fields.size() != 2) continue;
    text +=
        (text.empty() ? "" : ", ") + std::string(fields[0]) + (fields[1] == "none" ? "" : " (" + std::string(fields[1]) + ")");
  }
  return text;
}

}  // namespace consist::launch
