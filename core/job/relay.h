// The side of the job that a host's leader has for the other ranks of the host: it takes their connections, so that rank 0 has
// one a host, and carries their messages both ways without looking into them.
#pragma once

#include <poll.h>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/handshake.h"
#include "core/job/job_messages.h"

namespace consist {

/// THREADS: one.
class Relay {
 public:
  /// Who connects to `listener` proves that it knows the token, for purpose_of_leader(leader), and claims a generation and a
  /// rank.
  Relay(network::Socket listener, std::string token, int leader, int generation);

  /// Appends what to poll for.
  void watch(std::vector<pollfd>& entries);
  /// Serves what the entries of watch() say is ready; pushes what is for the server.
  void serve(std::span<const pollfd> entries, FrameStream& up);
  /// Passes on the newest heartbeat of each rank.
  void pass_heartbeats(FrameStream& up);
  /// A message for those of these ranks that are led here; for all of them.
  void tell(std::span<const int> ranks, std::string_view body);
  void tell_all(std::string_view body);
  void flush();
  /// Sends what is still to be sent, and ends the connections.
  void drain(network::Deadline deadline);

 private:
  struct Led {
    FrameStream stream;
    bool spoke = false;     // who has not may have given up the connection before it was answered, and comes again
    std::string heartbeat;  // not passed on yet; empty: none
  };

  void admit(network::Admitted admitted);
  void serve_led(int rank, Led& led, FrameStream& up);
  void pass_heartbeat(int rank, Led& led, FrameStream& up);

  const int leader_, generation_;
  network::Gate gate_;
  std::map<int, Led> led_;
  std::vector<FrameStream> refused_;  // to be closed once the reason is sent
  std::vector<int> watched_;          // the ranks of the last entries of watch()
};

/// A member's claim at its leader's gate.
std::string claim_at_leader(int rank, int generation);

/// Says why a member of generation `there` cannot take part in one of generation `here`.
std::string other_generation(int there, int here);

}  // namespace consist
