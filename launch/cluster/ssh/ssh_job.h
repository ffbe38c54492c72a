// A job whose ranks are started by ssh.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/job_list.h"
#include "launch/cluster/ssh/ssh_connection.h"

namespace consist::launch {

/// Connects to all hosts, starts the ranks once all are ready, and follows them. Where one host is not ready, none starts any.
/// Where launchers replace ranks, another host takes the place of one that is lost, unless it was the first: one that the job
/// does not use, or the same one once it answers again. The end of this object, or of this process, ends what it has started.
class SshJob final : public FollowedJob {
 public:
  SshJob(const SshSettings& settings, const TrainJob& job, JobListener listener);

  bool look() override;
  void stop() override;

 private:
  using Clock = std::chrono::steady_clock;

  /// A place in the job, and the host that has it.
  struct Place {
    std::unique_ptr<SshConnection> host;  // null while none is tried
    std::size_t number = 0;               // of the host, among those of the settings
    bool ended = false;
    bool starts = false;       // it is to take the place of one that is lost
    Clock::time_point next{};  // then: it is to be ready, or without a host another one is tried
  };

  std::unique_ptr<SshConnection> connection(const Place& place) const;
  /// The end of a job whose ranks have not started; nothing while all are well.
  std::optional<JobEnd> end_of_start();
  std::string different_version(const Place& place) const;
  void start();
  void note_ends();
  void note_end(std::size_t number);
  /// The next step of a host that is to take a lost one's place.
  void replace(std::size_t number);
  void give_up(Place& place, const std::string& why);
  bool is_over() const;
  /// True if the job goes on without hosts that are lost.
  bool varies() const;
  /// Asks launchers that still run for their end, or ends them.
  void signal(const char* name);
  JobEnd end() const;
  std::string hosts() const;

  const SshSettings& settings_;
  const TrainJob job_;
  const JobListener listener_;
  std::vector<Place> places_;
  std::size_t unused_ = 0;  // the first host that no place has had
  std::string input_;       // that starts the ranks of a host
  bool started_ = false;
  int stops_ = 0;
  Clock::time_point connect_until_, next_at_ = Clock::time_point::max();  // when those that are left are asked, then ended
  bool asked_ = false;
  int first_status_ = 0;  // of a launcher whose ranks have failed by themselves
  std::string lost_;
};

}  // namespace consist::launch
