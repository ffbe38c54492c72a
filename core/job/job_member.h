// One rank's side of the job: its control connection to rank 0, or to the leader of its host.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/job/inbox.h"
#include "core/job/job.h"
#include "core/job/job_messages.h"
#include "core/job/job_server.h"
#include "core/job/relay.h"

namespace consist {

/// A job of several ranks. A thread owns the connection from construction to destruction; the public functions only exchange
/// messages with it.
class MemberJob final : public JoinedJob {
 public:
  /// `connection` is past its handshake. `server` runs on rank 0 and is null elsewhere; `leader` listens for the other ranks of
  /// this host where this one leads them.
  MemberJob(JobAddress address, std::string host, network::Socket connection, std::unique_ptr<JobServer> server,
            network::Socket leader = {});
  ~MemberJob() override;

  /// Waits until all ranks have joined; see join_job().
  void wait_until_joined();

  int rank() const noexcept override { return address_.rank; }
  int size() const noexcept override { return address_.size; }
  int local_rank() const noexcept override { return address_.local_rank; }
  int local_size() const noexcept override { return address_.local_size; }
  std::string_view host() const noexcept override { return host_; }
  std::span<const int> host_ranks() const noexcept override { return host_ranks_; }
  int generation() const noexcept override { return address_.generation; }
  std::string_view token() const noexcept override { return address_.token; }
  std::chrono::milliseconds timeout() const noexcept override { return address_.timeout; }

  std::vector<std::string> gather(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                  std::span<const int> members) override;
  std::string broadcast(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                        std::span<const int> members) override;
  void put(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  void barrier(std::string_view name, std::chrono::milliseconds timeout) override;
  bool failed() const noexcept override { return failed_.load(std::memory_order_acquire); }
  void check() const override;
  [[noreturn]] void blame(int peer, std::string_view what) override;
  void set_progress(std::function<std::string()> progress) override;
  void leave(std::chrono::milliseconds timeout) override;
  void fail(std::string_view reason) noexcept override;

 private:
  struct Failure {
    int rank;
    std::string what;
  };
  struct Answer {
    bool found;
    std::string text;
  };
  /// A wait for what other ranks give.
  struct Awaited {
    std::string_view name;
    std::span<const int> from;
    std::size_t next = 0;  // those before it have given
  };
  struct Lead {
    int rank = 0;
    std::uint16_t port = 0;
  };

  /// Throws Error for a collective that makes no sense.
  void check_call(std::string_view name, std::span<const int> members) const;
  void give(std::string_view name, std::string_view bytes, std::span<const int> to);
  /// Waits for what these ranks give; in their order.
  std::vector<std::string> take(std::string_view name, std::span<const int> from, std::chrono::milliseconds timeout);
  std::vector<int> missing(const Awaited& wait) const;  // with the lock
  /// Asks rank 0 who is to blame, and throws what it says; `peer` where it says nothing.
  [[noreturn]] void await_verdict(int peer, std::string message, std::string_view what);
  Answer request(MessageKind kind, std::string_view key, std::chrono::milliseconds timeout);
  /// Waits on changed_ until `done` (called with the lock) or the job's failure, which it throws, or the deadline: false.
  template <typename Predicate>
  bool wait(std::unique_lock<std::mutex>& lock, network::Deadline deadline, Predicate done);
  std::string name_of(int rank) const;  // with the lock
  void set_failure(int rank, std::string what);
  void send(std::string body);
  void wake() const noexcept;
  std::string progress_text();

  // The thread's, in job_member_thread.cpp.
  void run();
  void turn(bool readable);
  void read_stream();
  void handle(std::string_view body);
  void handle_welcome(network::WireReader& reader);
  void handle_relayed(network::WireReader& reader);
  void handle_delivered(network::WireReader& reader);
  void answer_inquiry();
  void move_to_leader();
  void beat(network::Clock::time_point now);
  void tell_led();
  void lose_parent(const std::string& how);
  void give_up(int rank, std::chrono::milliseconds silent);

  const JobAddress address_;
  const std::string host_;
  std::unique_ptr<JobServer> server_;  // outlives the thread below

  mutable std::mutex mutex_;  // of what follows, up to the blank line
  std::condition_variable changed_;
  std::vector<std::string> outbox_;
  std::map<std::uint64_t, std::optional<Answer>> requests_;
  std::uint64_t next_request_ = 0;
  Inbox inbox_;
  std::list<Awaited> awaited_;
  std::optional<Failure> failure_;
  std::optional<std::string> refusal_;
  bool joined_ = false;                     // all ranks have
  std::vector<std::string> hosts_;          // their names
  std::vector<std::uint32_t> host_of_;      // by rank
  std::map<int, std::string> progress_of_;  // of rank 0 and of this rank's leader, as they told last
  bool left_ = false;
  bool stopping_ = false;

  std::vector<int> host_ranks_;  // written before joined_ is, never again

  std::mutex progress_mutex_;  // held while progress_ runs, so that set_progress() returns when the old one has
  std::function<std::string()> progress_;
  std::string last_progress_;

  std::atomic<bool> failed_{false};
  std::atomic<int> parent_{0};                            // at the other end of the stream: rank 0 or this rank's leader
  std::atomic<network::Clock::time_point> heard_;         // of rank 0
  std::atomic<network::Clock::time_point> heard_parent_;  // of either
  FrameStream stream_;                                    // the thread's own, like all below
  FrameStream former_;                                    // to rank 0, while it ends
  std::optional<Lead> lead_;                              // where to go on
  network::Clock::time_point next_move_;
  bool move_failed_ = false;
  std::optional<Relay> relay_;  // where this rank leads its host
  bool told_led_ = false;       // of the failure
  std::string relayed_pulse_;   // rank 0's, not passed on yet
  network::Clock::time_point next_heartbeat_;
  network::Clock::time_point last_turn_;
  network::Socket wake_;  // an eventfd
  std::thread thread_;
};

}  // namespace consist
