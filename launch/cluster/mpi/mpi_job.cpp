#include "launch/cluster/mpi/mpi_job.h"

#include <utility>

#include "launch/cli/exit_status.h"

namespace consist::launch {
namespace {

// As long as the launcher of one machine gives its ranks after a signal.
constexpr std::chrono::seconds time_for_mpirun{60};

}  // namespace

MpiJob::MpiJob(const TrainJob& job, JobListener listener)
    : name_(job.name),
      listener_(std::move(listener)),
      script_({"bash", job.folder + "/job.sh"}, listener_.output, listener_.errors) {}

bool MpiJob::look() {
  if (Clock::now() >= kill_at_) stop();
  if (script_.look()) return true;
  JobEnd end{*script_.status(), ""};
  if (end.status == exit_peer_failed) end.status = exit_failed;
  if (end.status != 0 && stops_ > 0) {
    if (stops_ > 1) end.reason = "job " + name_ + " was ended before its ranks had ended by themselves";
    end.status = exit_stopped;
  }
  listener_.ended(end);
  return false;
}

void MpiJob::stop() {
  ++stops_;
  script_.tell(stops_ == 1 ? "USR1\n" : "KILL\n");
  kill_at_ = Clock::now() + time_for_mpirun;
}

}  // namespace consist::launch
