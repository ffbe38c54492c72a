// Meeting of the launchers of a job whose nodes may be fewer than it began with. Node 0 listens; the others come there before each
// generation, and wait there while one runs without them.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "consist/handshake.h"
#include "consist/socket.h"

namespace consist::launch {

/// A launcher that waited is not needed any more: a sentence says why.
struct NotNeeded {
  std::string why;
};

/// Those that make the next generation.
struct Crew {
  std::vector<int> nodes;  ///< ascending
  std::uint16_t port = 0;  ///< where node 0 listens for them
};

/// Where the launchers meet, and which one this is.
struct MeetingPlace {
  std::string host;
  std::uint16_t port = 0;
  std::string token;
  int nodes = 1;  ///< of the job, where all are there
  int node = 0;
};

/// Node 0's side. Used from one thread, which calls serve() often.
class RollCall {
 public:
  /// Listens. Throws SystemError.
  explicit RollCall(MeetingPlace place);
  ~RollCall();  ///< tells those that wait that the job has ended

  void watch(std::vector<pollfd>& entries) const;
  /// Takes in who has come, and drops who is gone or has said nothing for a while. Of two launchers of one node the newer counts.
  void serve();
  /// Those that wait and node 0, ascending.
  std::vector<int> present() const;
  /// Sends these away, to form a job with node 0.
  void dismiss(const Crew& crew);

 private:
  struct Guest {
    int node = 0;
    network::Socket socket;
    network::Deadline heard{}, next_beat{};
  };
  void admit(network::Admitted admitted);
  bool is_there(Guest& guest) const;

  const MeetingPlace place_;
  network::Gate gate_;
  std::vector<Guest> guests_;
};

/// The others' side: waits until node 0 names a crew that this node is of. Comes again where the connection ends. Nothing:
/// `stopped`, which is asked often, has said so. Throws NotNeeded, UsageError where node 0's job has other nodes, and SystemError
/// where node 0 cannot be reached for as long as `patience`.
std::optional<Crew> answer_roll_call(const MeetingPlace& place, const std::function<bool()>& stopped,
                                     std::chrono::milliseconds patience);

}  // namespace consist::launch
