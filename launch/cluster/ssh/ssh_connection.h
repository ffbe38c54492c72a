// The connection to one host of a job.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "launch/cluster/followed_process.h"
#include "launch/cluster/jobs.h"
#include "launch/cluster/ssh/ssh_settings.h"

namespace consist::launch {

class SshConnection {
 public:
  /// Begins to connect to the host that is to have this place in the job. Lines of place 0 go to the listener as they are, those
  /// of others with their name before them, and only what they write to standard error. The listener outlives this. Throws
  /// SystemError where there is no ssh.
  SshConnection(const SshSettings& settings, const SshHost& host, int node, const std::string& script,
                const JobListener& listener);

  /// Passes on what has come. False once the connection has ended.
  bool look() { return process_.look(); }
  bool is_ready() const noexcept { return !version_.empty(); }
  /// Starts the ranks; they end with the connection.
  void start(const std::string& input);
  /// Sends a signal to the launcher: "TERM".
  void signal(const char* name);
  void cut() { process_.end_input(); }
  void kill() const { process_.signal(9); }

  const std::string& name() const noexcept { return name_; }
  const std::string& version() const noexcept { return version_; }
  /// The status of the launcher, or 255, which is ssh's own.
  std::optional<int> status() const noexcept { return process_.status(); }
  /// The host's or ssh's own words why it did not become ready, and what to do.
  std::string refusal() const;
  bool host_has_refused() const noexcept { return !refused_.empty(); }
  /// The last words of ssh, or that there are none.
  std::string last_words() const;

 private:
  void take_output(const std::string& line);
  void take_error(const std::string& line);

  const std::string name_;
  const bool leads_;
  const JobListener& listener_;
  bool started_ = false;
  std::string version_, refused_;
  std::deque<std::string> said_;  // before the ranks started
  std::string last_error_;
  FollowedProcess process_;
};

}  // namespace consist::launch
