#include "launch/cluster/slurm/slurm_jobs.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/number.h"
#include "launch/cli/exit_status.h"
#include "launch/cluster/slurm/batch_script.h"

namespace consist::launch {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// A controller serves a whole cluster: it is asked often only while something is about to happen. The end of the ranks is seen in
// the job's folder, without it.
constexpr std::chrono::milliseconds first_pause{500};
constexpr seconds longest_pause{10};
constexpr seconds patience_with_controller{600};
constexpr seconds time_for_orderly_end{60};
// A folder that nodes and this machine share may show what is in it late.
constexpr seconds time_for_files{15};
// A failed rank and the end that Slurm gives the job for the same cause may come in either order.
constexpr seconds time_for_cause{3};

/// The status in a file that the batch script writes; nothing until then.
std::optional<int> status_in(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  std::string text = read_text(path, 64);
  text.erase(text.find_last_not_of(" \n") + 1);
  int status = 0;
  return parse_number(text, status) ? std::optional<int>(status) : std::nullopt;
}

/// The exit status that srun reports of a task, in "srun: error: node2: task 1: Exited with exit code 1"; nothing in other lines.
std::optional<int> status_of_task(const std::string& line) {
  constexpr std::string_view marker = ": Exited with exit code ";
  const std::size_t at = line.find(marker);
  int status = 0;
  if (!line.starts_with("srun: error: ") || at == std::string::npos ||
      !parse_number(std::string_view(line).substr(at + marker.size()), status))
    return std::nullopt;
  return status;
}

}  // namespace

struct SlurmJobs::Job {
  std::string number, folder;
  JobListener listener;
  std::unique_ptr<LogFile> output, errors;
  int failed_task = 0;  ///< the first status of a task that failed by itself
  QueuedJob queued;
  std::string nodes;  ///< all of them: of a job that is about to end squeue lists those that have not ended
  std::string said;   ///< of its state
  std::optional<int> status;
  Clock::time_point status_seen{};
  std::optional<Clock::time_point> over_since;
  bool asked_to_end = false;
  bool has_spoken = false;
};

SlurmJobs::SlurmJobs(SlurmSettings settings) : settings_(std::move(settings)) {}
SlurmJobs::~SlurmJobs() = default;

std::string SlurmJobs::submit(const TrainJob& request, JobListener listener) {
  const std::string& folder = request.folder;
  auto job = std::make_unique<Job>();
  job->number = launch::submit(settings_, folder + "/" + batch_script_file);
  job->folder = folder;
  job->listener = std::move(listener);
  Job* const made = job.get();
  job->output = std::make_unique<LogFile>(folder + "/" + job_files::output, made->listener.output);
  job->errors = std::make_unique<LogFile>(folder + "/" + job_files::errors, [made](const std::string& line) {
    const std::optional<int> status = status_of_task(line);
    if (status && *status != 0 && *status != exit_peer_failed && made->failed_task == 0) made->failed_task = *status;
    made->listener.errors(line);
  });
  job->queued.state = "PENDING";
  jobs_.push_back(std::move(job));
  between_questions_ = first_pause;
  next_question_ = last_answer_ = Clock::now();
  return made->number;
}

bool SlurmJobs::look() {
  if (stops_ > 0 && Clock::now() >= end_all_at_) end_all();
  if (!jobs_.empty() && Clock::now() >= next_question_) ask_slurm();
  for (std::size_t i = 0; i < jobs_.size();) {  // a listener may submit another one
    if (look_at(*jobs_[i])) {
      jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return !jobs_.empty();
}

void SlurmJobs::ask_slurm() {
  std::vector<std::string> numbers;
  for (const std::unique_ptr<Job>& job : jobs_) numbers.push_back(job->number);
  const auto answer = ask_queue(numbers);
  between_questions_ = std::min<Clock::duration>(between_questions_ * 3 / 2, longest_pause);
  next_question_ = Clock::now() + between_questions_;
  if (answer) {
    last_answer_ = Clock::now();
    for (const std::unique_ptr<Job>& job : jobs_) take_state(*job, answer->at(job->number));
  } else if (Clock::now() - last_answer_ > patience_with_controller) {
    throw SystemError("Slurm has not answered for " + std::to_string(patience_with_controller.count() / 60) +
                      " minutes (squeue); job " + jobs_.front()->number + " may still run. Its files are in " +
                      jobs_.front()->folder);
  }
}

void SlurmJobs::take_state(Job& job, const QueuedJob& queued) {
  const bool forgotten = queued.state.empty();
  if (!forgotten) job.queued = queued;
  if (queued.is_over() && !job.over_since) job.over_since = Clock::now();
  std::string text;
  if (job.queued.is_pending()) text = queued.reason.empty() ? "waits for its turn" : "waits: " + queued.reason;
  if (job.queued.state == "RUNNING") {
    job.nodes = job.queued.nodes;
    text = "runs on " + job.nodes;
  }
  if (text.empty() || text == job.said) return;
  job.said = text;
  job.listener.state(text);
}

bool SlurmJobs::look_at(Job& job) {
  const bool read = job.output->read() | job.errors->read();
  if (read && !std::exchange(job.has_spoken, true)) next_question_ = Clock::now();  // where does it run?
  if (!job.status && (job.status = status_in(job.folder + "/" + job_files::status))) {
    job.status_seen = Clock::now();
    if (*job.status != 0) between_questions_ = first_pause, next_question_ = Clock::now();
  }
  if (read) return false;  // there may be more
  const auto now = Clock::now();
  if (job.status) {
    // Slurm's own reason is the better message, and comes soon if it has one.
    if (*job.status != 0 && !job.over_since && now - job.status_seen < time_for_cause) return false;
  } else if (!job.over_since || (job.queued.state == "COMPLETED" && now - *job.over_since < time_for_files)) {
    return false;
  }
  job.output->read_to_the_end();
  job.errors->read_to_the_end();
  std::error_code ignored;
  fs::remove(job.folder + "/" + job_files::token, ignored);
  job.listener.ended(end_of(job, job.status));
  return true;
}

JobEnd SlurmJobs::end_of(const Job& job, std::optional<int> status) const {
  JobEnd end{status.value_or(exit_failed), ""};
  if (end.status == exit_peer_failed) end.status = job.failed_task != 0 ? job.failed_task : exit_failed;
  if (end.status == 0) return end;
  const std::string& state = job.queued.state;
  const std::string name = "job " + job.number;
  const std::string down = nodes_down(job.nodes);
  if (job.asked_to_end) {
    end.status = exit_stopped;
    if (!status) end.reason = name + " was ended before its ranks had ended by themselves";
  } else if (state == "NODE_FAIL" || !down.empty()) {
    end.reason = name + " lost a node" + (down.empty() ? " of " + job.nodes : ": " + down);
  } else if (state == "CANCELLED") {
    end.reason = name + " was cancelled, not by this command" + (job.queued.reason.empty() ? "" : ": " + job.queued.reason);
  } else if (state == "TIMEOUT" || state == "DEADLINE") {
    end.reason = name + " has reached its time limit" +
                 (settings_.time.empty() ? "; " + settings_.file + " may give a longer one: time"
                                         : " of " + settings_.time + " (" + settings_.file + ")");
  } else if (state == "OUT_OF_MEMORY") {
    end.reason = name + " has used more memory than Slurm allows it; ask for more (--mem, in lines of " + settings_.file + ")";
  } else if (!status && job.queued.state == "COMPLETED") {
    end.reason = name + " has ended, but nothing of it is to be seen in " + job.folder +
                 ": do its nodes and this machine share " + settings_.folder + "?";
  } else if (!status) {
    end.reason =
        name + " was ended by Slurm: " + (state.empty() || job.queued.is_pending() ? "it is not in the queue any more" : state) +
        (job.queued.reason.empty() ? "" : " (" + job.queued.reason + ")");
  }
  return end;
}

void SlurmJobs::stop() {
  ++stops_;
  if (stops_ > 1) return end_all();
  end_all_at_ = Clock::now() + time_for_orderly_end;
  for (const std::unique_ptr<Job>& job : jobs_) {
    job->asked_to_end = true;
    cancel(job->number, job->queued.is_pending() ? "" : "INT");
  }
  between_questions_ = first_pause;
  next_question_ = Clock::now();
}

void SlurmJobs::end_all() {
  end_all_at_ = Clock::now() + time_for_orderly_end;
  for (const std::unique_ptr<Job>& job : jobs_) {
    job->asked_to_end = true;
    if (const std::string problem = cancel(job->number); !problem.empty())
      job->listener.errors("scancel " + job->number + ": " + problem);
  }
  between_questions_ = first_pause;
  next_question_ = Clock::now();
}

}  // namespace consist::launch
