// Rank 0's side of the job: admits the ranks, keeps their key-value store, and tells everybody at once when one of them fails.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "consist/handshake.h"
#include "core/job/job_messages.h"
#include "core/job/progress.h"

namespace consist {

/// Runs on a thread of its own from construction to destruction. The destructor gives the ranks a second to read what was sent
/// to them last, such as the news of a failure.
class JobServer {
 public:
  struct Setup {
    network::Socket listener;
    network::Socket own;  ///< the connection of rank 0 itself, already trusted
    std::string own_host;
    int size = 1;
    std::string token;
    std::chrono::milliseconds timeout{};
    std::chrono::milliseconds join_timeout{}, join_progress{};
  };
  explicit JobServer(Setup setup);
  ~JobServer();
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;

 private:
  using Time = network::Clock::time_point;

  struct Member {
    FrameStream stream;
    std::string host;
    std::string progress;
    Time heard{};
    bool joined = false;
    bool leaving = false;   // waits in leave()
    bool reported = false;  // has answered the present inquiry
  };
  struct Waiting {  // a get, a barrier or a collect that cannot be answered yet
    int rank;
    std::uint64_t request;
    Time deadline;
    std::string name;
    MessageKind kind;
  };
  struct Meeting {  // a barrier, or what is being collected
    std::vector<bool> entered;
    std::vector<std::string> texts;
    int missing;
  };
  struct Inquiry {  // somebody's transport failed; who is to blame?
    int by;
    int peer;
    std::string what;
    Time started;
  };
  struct Failure {
    int rank;
    std::string what;
  };

  void run();
  /// Serves who is admitted and these ranks, from which something has come.
  void turn(const std::vector<int>& readable);
  void admit(network::Admitted admitted);
  void serve_member(int rank);
  void handle(int rank, std::string_view body);
  void handle_put(std::string_view key, std::string_view value);
  void enter(int rank, const std::string& name, std::string_view text);
  void take_store_bytes(std::size_t bytes);
  bool serve(const Waiting& wait, Time now);
  void answer_meeting(const Waiting& wait, const Meeting& meeting);
  void answer(int rank, std::uint64_t request, bool found, std::string_view text);
  void serve_waiting(Time now);
  void check_time(Time now);
  void start_inquiry(int by, int peer, std::string_view what);
  void conclude_inquiry(Time now);
  void fail(int rank, const std::string& what);
  void all_joined();
  void all_left();
  void send(int rank, const std::string& body);
  void send_all(const std::string& body);
  void drain();

  std::string name(int rank) const;
  /// ", last at step 3, instruction 17: ..." or nothing.
  std::string last_at(int rank) const;            ///< where it was when it reported that
  std::string last_heartbeat_of(int rank) const;  ///< where it was when it was last heard: it may have gone on
  std::vector<int> missing_ranks() const;
  bool awaited(const Member& member) const { return member.joined && member.stream.is_open(); }
  /// Returns the rank that is furthest behind among those for which `counts` returns true; -1 if there is none.
  int furthest_behind(const std::function<bool(int)>& counts) const;

  const int size_;
  const std::chrono::milliseconds timeout_, join_timeout_, join_progress_;
  network::Gate gate_;
  std::vector<Member> members_;
  std::vector<FrameStream> refused_;  // to be closed once the reason is sent
  std::map<std::string, std::string, std::less<>> store_;
  std::size_t store_bytes_ = 0;
  std::map<std::string, Meeting, std::less<>> meetings_;
  std::vector<Waiting> waiting_;
  std::optional<Inquiry> inquiry_;
  std::optional<Failure> failure_;
  bool complete_ = false;  // all ranks have joined
  bool left_ = false;      // all ranks have left
  Time join_deadline_;
  Time next_join_progress_;
  Time leave_deadline_ = Time::max();
  Time last_turn_;
  network::Socket wake_;       // written by the destructor
  network::Socket wake_read_;  // polled by the thread
  std::thread thread_;
};

}  // namespace consist
