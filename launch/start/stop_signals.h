// Signals that ask a run to end.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

#include "consist/socket.h"
#include "core/job/job.h"
#include "core/training/stop_request.h"

namespace consist::launch {

/// Signals that come within this time of one another are one wish: a terminal, a shell and a launcher may each pass it on.
inline constexpr std::chrono::milliseconds same_wish{500};

/// True if SIGHUP was ignored when the program was started, as `nohup` does it: then it stays ignored.
bool hangup_is_ignored() noexcept;

/// Takes SIGINT, SIGTERM and, unless it is ignored, SIGHUP for this process, and has SIGPIPE and SIGXFSZ ignored: output that
/// has no reader any more (`| head`) and a file that may not grow are then errors of write(). One at a time; made on the main
/// thread before there are others.
///
/// Before training begins there is nothing to save: a signal ends the process at once with status 130, whatever it is doing, and
/// the other ranks are told why. From then on the first signal requests the end after the running step; another one ends the
/// process at once with 128 + n. A signal within half a second of the first is the same request, which a terminal, a shell and a
/// launcher may each pass on; and a hangup, which comes from a terminal that is gone, never asks for haste.
class StopSignals {
 public:
  /// `speaks`: this process is the one of its host that says on stderr what it does.
  explicit StopSignals(bool speaks);
  /// The handlers stay, without effect: the process is about to end.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  StopRequest& request() noexcept;
  /// Whom to tell; null again before the job is destroyed.
  void set_job(JoinedJob* job);

 private:
  void heed(int signal);

  const bool speaks_;
  std::mutex mutex_;
  JoinedJob* job_ = nullptr;
  std::thread thread_;
};

}  // namespace consist::launch
