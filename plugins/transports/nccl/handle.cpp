#include "plugins/transports/nccl/handle.h"

#include <thread>

#include "consist/error.h"
#include "plugins/transports/nccl/log.h"
#include "plugins/transports/nccl/log_capture.h"

namespace consist::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds poll_interval{1};

/// Frees a communicator that is only needed on the way, whatever happens.
class Passing {
 public:
  explicit Passing(const Library& library) : library_(library) {}
  ~Passing() {
    if (comm != nullptr) library_.abort(comm);
  }
  void destroy() {
    library_.destroy(comm);
    comm = nullptr;
  }
  ncclComm_t comm = nullptr;

 private:
  const Library& library_;
};

}  // namespace

std::string error_text(const Library& library, const char* what, ncclResult_t result, ncclComm_t comm) {
  std::string text = std::string("NCCL ") + library.version_text() + ": " + what + " failed: " + library.error_string(result);
  const char* const last = library.last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string("; ") + last;
  const LogFindings log = read_log(LogCapture::instance().text());
  for (std::size_t i = log.warnings.size() - std::min<std::size_t>(log.warnings.size(), 3); i < log.warnings.size(); ++i) {
    if (text.find(log.warnings[i]) == std::string::npos) text += "; " + log.warnings[i];
  }
  return text;
}

int suspect(const GroupRequest& group) {
  return group.ranks[(static_cast<std::size_t>(group.index) + 1) % group.ranks.size()];
}

// Made in two steps, because NCCL has two kinds of communicators, and both are needed: one that does not block can be waited for
// with a timeout while the members meet, but starts a thread for every collective; one that blocks cannot be interrupted while it
// is made, but enqueues collectives at once.
Handle::Handle(Job& job, const GroupRequest& group, const Library& library, const ncclUniqueId& id, const std::string& network)
    : job_(job), group_(group), library_(library), deadline_(Clock::now() + job.timeout()) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.netName = network.c_str();
  if (group.link) {
    // A kernel that receives waits on the GPU's multiprocessors while other kernels compute there: it must not hold many, and
    // activations between layers are small beside the work on them.
    config.maxCTAs = 2;
  }
  Passing meeting(library_);
  const auto members = static_cast<int>(group.ranks.size());
  const ncclResult_t joined = library_.init_rank(&meeting.comm, members, id, group.index, &config);
  if (joined != ncclSuccess && joined != ncclInProgress)
    throw SystemError(error_text(library_, "ncclCommInitRankConfig", joined, nullptr));
  wait_for(meeting.comm, "ncclCommInitRankConfig");
  config.blocking = 1;
  const ncclResult_t split = library_.split(meeting.comm, 0, group.index, &comm_, &config);
  if (split != ncclSuccess && split != ncclInProgress)
    throw SystemError(error_text(library_, "ncclCommSplit", split, meeting.comm));
  wait_for(meeting.comm, "ncclCommSplit");
  if (comm_ == nullptr) throw SystemError("NCCL " + library_.version_text() + ": ncclCommSplit made no communicator");
  meeting.destroy();
}

Handle::~Handle() {
  if (comm_ != nullptr) library_.destroy(comm_);
}

void Handle::abort() noexcept {
  if (comm_ != nullptr) library_.abort(comm_);
  comm_ = nullptr;
}

void Handle::wait_for(ncclComm_t comm, const char* what) {
  while (true) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library_.async_error(comm, &state);
    if (asked == ncclSuccess && state == ncclSuccess) return;
    job_.check();
    if (asked != ncclSuccess || state != ncclInProgress) {
      const std::string text = error_text(library_, what, asked != ncclSuccess ? asked : state, comm);
      // A peer that went away leaves this error behind; the job knows which one.
      if (state == ncclRemoteError) job_.blame(suspect(group_), text);
      throw SystemError(text);
    }
    if (Clock::now() > deadline_) {
      const std::string text = std::string(what) + " of group '" + group_.name + "' did not finish within " +
                               std::to_string(job_.timeout().count() / 1000) + " s";
      job_.blame(suspect(group_), text);
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

}  // namespace consist::nccl
