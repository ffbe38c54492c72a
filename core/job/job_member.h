// One rank's side of the job: its control connection to rank 0.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/job/job.h"
#include "core/job/job_messages.h"
#include "core/job/job_server.h"

namespace consist {

/// A job of several ranks. A thread owns the connection from construction to destruction; the public functions only exchange
/// messages with it.
class MemberJob final : public JoinedJob {
 public:
  /// `connection` is past its handshake. `server` runs on rank 0 and is null elsewhere.
  MemberJob(JobAddress address, std::string host, network::Socket connection, std::unique_ptr<JobServer> server);
  ~MemberJob() override;

  /// Waits until all ranks have joined; see join_job().
  void wait_until_joined();

  int rank() const noexcept override { return address_.rank; }
  int size() const noexcept override { return address_.size; }
  int local_rank() const noexcept override { return address_.local_rank; }
  int local_size() const noexcept override { return address_.local_size; }
  std::string_view host() const noexcept override { return host_; }
  std::string_view token() const noexcept override { return address_.token; }
  std::chrono::milliseconds timeout() const noexcept override { return address_.timeout; }

  void put(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  void barrier(std::string_view name, std::chrono::milliseconds timeout) override;
  bool failed() const noexcept override { return failed_.load(std::memory_order_acquire); }
  void check() const override;
  [[noreturn]] void blame(int peer, std::string_view what) override;
  void set_progress(std::function<std::string()> progress) override;
  std::vector<std::string> collect(std::string_view name, std::string_view text, std::chrono::milliseconds timeout) override;
  void forget(std::string_view key) override;
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
  struct Request {
    std::optional<Answer> answer;
    std::vector<std::string> collected;
  };

  void run();
  void turn(bool readable);
  void handle(std::string_view body);
  void lose_server(const std::string& how);
  void give_up_server(std::chrono::milliseconds silent);
  void set_failure(int rank, std::string what);
  void send(std::string body);
  std::string progress_text();
  /// Waits on changed_ until `done` (called with the lock) or the job's failure, which it throws, or the deadline: false.
  template <typename Predicate>
  bool wait(std::unique_lock<std::mutex>& lock, network::Deadline deadline, Predicate done);
  /// `text` of MessageKind::collect.
  Request request(MessageKind kind, std::string_view key, std::chrono::milliseconds timeout,
                  const std::string_view* text = nullptr);

  const JobAddress address_;
  const std::string host_;
  std::unique_ptr<JobServer> server_;  // outlives the thread below

  mutable std::mutex mutex_;  // of what follows, up to the blank line
  std::condition_variable changed_;
  std::vector<std::string> outbox_;
  std::map<std::uint64_t, Request> requests_;
  std::uint64_t next_request_ = 0;
  std::optional<Failure> failure_;
  std::optional<std::string> refusal_;
  std::vector<std::string> hosts_;  // empty until all ranks have joined
  std::string server_progress_;     // rank 0's, as it told last
  bool left_ = false;
  bool stopping_ = false;

  std::mutex progress_mutex_;  // held while progress_ runs, so that set_progress() returns when the old one has
  std::function<std::string()> progress_;
  std::string last_progress_;

  std::atomic<bool> failed_{false};
  std::atomic<network::Clock::time_point> heard_;  // of rank 0
  FrameStream stream_;                             // the thread's own, like all below
  network::Clock::time_point next_heartbeat_;
  network::Clock::time_point last_turn_;
  network::Socket wake_;
  network::Socket wake_read_;
  std::thread thread_;
};

}  // namespace consist
