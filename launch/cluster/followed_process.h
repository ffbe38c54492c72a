// A program whose words are passed on while it runs, and that can be told something.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "consist/socket.h"
#include "launch/cluster/log_file.h"

namespace consist::launch {

/// The program is in a session of its own, so that Ctrl-C does not reach it. Its input ends with this process.
class FollowedProcess {
 public:
  using OnLine = std::function<void(const std::string& line)>;

  /// Starts words[0], found in PATH. Throws SystemError if it cannot be started.
  FollowedProcess(std::vector<std::string> words, OnLine output, OnLine errors);
  ~FollowedProcess();  ///< kills it, if it has not ended
  FollowedProcess(const FollowedProcess&) = delete;
  FollowedProcess& operator=(const FollowedProcess&) = delete;

  /// Passes on what has come. False once the program has ended and all was passed on. Returns at once.
  bool look();
  /// Sends a text to its input; what it does not take at once is sent by look().
  void tell(const std::string& text);
  /// True once all of it was sent.
  bool has_been_told() const noexcept { return unsent_.empty(); }
  void end_input() { input_.close(); }
  void signal(int number) const;
  /// The exit status, 128 + n for signal n, once it has ended.
  std::optional<int> status() const noexcept { return status_; }

 private:
  struct Stream {
    network::Socket end;
    LineCutter lines;
  };
  void send();
  static bool read(Stream& stream);

  network::Socket input_;
  Stream output_, errors_;
  std::string unsent_;
  pid_t process_ = -1;
  std::optional<int> status_;
};

}  // namespace consist::launch
