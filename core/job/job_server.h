// Rank 0's side of the job: admits the ranks, carries what they give one another, keeps their key-value store, and tells
// everybody at once when one of them fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
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
    std::string own_host, own_machine;
    int size = 1;
    int generation = 0;
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
    FrameStream stream;  // open until it goes on through its leader
    std::string host;
    std::string progress;
    Time heard{};
    int machine = -1;        // by number
    std::uint16_t port = 0;  // where it takes in the other ranks of its host; 0: it leads none
    int leader = -1;         // through which it is to go on; -1: none
    bool arrived = false;    // has gone on through it
    bool gone = false;       // its connection to the leader has ended
    bool leads = false;      // some rank has arrived there
    bool joined = false;
    bool spoke = false;        // who has not may have given up the connection before it was answered, and comes again
    bool leaving = false;      // waits in leave()
    bool reported = false;     // has answered the present inquiry
    std::vector<int> awaited;  // the ranks that it waits for in a collective, as it reported
  };
  struct Waiting {  // a get or a barrier that cannot be answered yet
    int rank;
    std::uint64_t request;
    Time deadline;
    std::string name;
    MessageKind kind;
  };
  struct Meeting {  // at a barrier
    std::vector<bool> entered;
    int missing;
  };
  struct Inquiry {  // somebody's transport failed, or ranks did not come to a collective; who is to blame?
    int by;
    std::vector<int> suspects;
    bool collective;
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
  std::string reason_to_refuse(const JoinClaim& claim) const;
  int number_of_machine(const std::string& machine);
  void find_leader(int rank);
  void lead(int rank, int leader);
  void settle();
  void serve_member(int rank);
  void lose(int rank, const std::string& problem);
  void handle(int rank, std::string_view body);
  void handle_of_leader(int leader, MessageKind kind, network::WireReader& reader);
  void handle_relayed(int leader, int rank, std::string_view body);
  void handle_request(int rank, MessageKind kind, network::WireReader& reader);
  void handle_deliver(int rank, network::WireReader& reader);
  void handle_put(std::string_view key, std::string_view value);
  void enter(int rank, const std::string& name);
  void take_store_bytes(std::size_t bytes);
  bool serve(const Waiting& wait, Time now);
  void answer(int rank, std::uint64_t request, bool found, std::string_view text);
  void serve_waiting(Time now);
  void check_time(Time now);
  bool check_silence(Time now);
  void start_inquiry(Inquiry inquiry);
  void conclude_inquiry(Time now);
  int culprit_or_furthest_behind(int suspect) const;
  int culprit_of_collective() const;
  std::vector<int> awaited_by(int rank) const;
  void fail(int rank, const std::string& what);
  void all_joined();
  void all_left();
  void send(int rank, const std::string& body);
  void send(std::span<const int> ranks, const std::string& body);
  void send_all(const std::string& body);
  void drain();

  std::string name(int rank) const;
  /// ", last at step 3, instruction 17: ..." or nothing.
  std::string last_at(int rank) const;            ///< where it was when it reported that
  std::string last_heartbeat_of(int rank) const;  ///< where it was when it was last heard: it may have gone on
  std::vector<int> missing_ranks() const;
  bool connected(const Member& member) const;
  bool awaited(const Member& member) const { return member.joined && connected(member); }
  /// True if nothing can be heard of it because its leader is silent.
  bool hidden(const Member& member, Time now) const;
  /// Returns the rank that is furthest behind among those for which `counts` returns true; -1 if there is none.
  int furthest_behind(const std::function<bool(int)>& counts) const;

  const int size_, generation_;
  const std::chrono::milliseconds timeout_, join_timeout_, join_progress_;
  network::Gate gate_;
  std::vector<Member> members_;
  std::map<std::string, int> machines_;  // their numbers
  std::vector<int> leaders_;             // by machine; -1: none yet
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
