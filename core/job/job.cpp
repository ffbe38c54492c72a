#include "core/job/job.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/log.h"
#include "consist/wire.h"
#include "core/job/job_member.h"

namespace consist {
namespace {

using network::Clock;
using network::Deadline;
using network::Socket;
using std::chrono::milliseconds;

/// The job of one rank: no sockets, no threads.
class SoloJob final : public JoinedJob {
 public:
  explicit SoloJob(JobAddress address) : address_(std::move(address)), host_(network::host_name()) {}

  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  int local_rank() const noexcept override { return address_.local_rank; }
  int local_size() const noexcept override { return address_.local_size; }
  std::string_view host() const noexcept override { return host_; }
  std::string_view token() const noexcept override { return address_.token; }
  milliseconds timeout() const noexcept override { return address_.timeout; }

  void put(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    store_.insert_or_assign(std::string(key), std::string(value));
    changed_.notify_all();
  }
  std::string get(std::string_view key, milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, Clock::now() + std::min(timeout, longest_wait),
                             [&] { return store_.find(key) != store_.end(); })) {
      throw SystemError("no rank has put the key '" + std::string(key) + "' in time");
    }
    return store_.find(key)->second;
  }
  void barrier(std::string_view /*name*/, milliseconds /*timeout*/) override {}
  bool failed() const noexcept override { return false; }
  void check() const override {}
  [[noreturn]] void blame(int peer, std::string_view what) override {
    throw PeerError(peer, "rank " + std::to_string(peer) + " is blamed in a job of one rank: " + std::string(what));
  }
  void set_progress(std::function<std::string()> /*progress*/) override {}
  std::vector<std::string> collect(std::string_view /*name*/, std::string_view text, milliseconds /*timeout*/) override {
    return {std::string(text)};
  }
  void forget(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    if (const auto found = store_.find(key); found != store_.end()) store_.erase(found);
  }
  void leave(milliseconds /*timeout*/) override {}
  void fail(std::string_view /*reason*/) noexcept override {}

 private:
  const JobAddress address_;
  const std::string host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> store_;
};

void validate(const JobAddress& address) {
  const auto complain = [&](const std::string& what) {
    throw UsageError("rank " + std::to_string(address.rank) + " of " + std::to_string(address.size) + " cannot join: " + what);
  };
  if (address.size < 1 || address.rank < 0 || address.rank >= address.size) complain("a rank is between 0 and the size less one");
  if (address.local_size < 1 || address.local_rank < 0 || address.local_rank >= address.local_size) {
    complain("its local rank is " + std::to_string(address.local_rank) + " of " + std::to_string(address.local_size));
  }
  if (address.timeout <= milliseconds(0)) complain("the timeout is not positive");
  if (address.timeout > longest_wait || address.join_timeout > longest_wait) complain("the timeout is longer than a year");
  if (address.size == 1) return;
  if (address.token.size() < min_token_characters) {
    complain("the job's token has " + std::to_string(address.token.size()) + " characters; it needs at least " +
             std::to_string(min_token_characters) + " that nobody can guess");
  }
  if (address.master_port == 0 && address.listen_fd < 0) complain("no port of rank 0 is given");
}

Socket take_listener(const JobAddress& address) {
  if (address.listen_fd < 0) {
    return network::listen_on(network::is_loopback(address.master_host) ? address.master_host : std::string(),
                              address.master_port);
  }
  Socket listener(address.listen_fd);
  int listening = 0;
  socklen_t length = sizeof(listening);
  if (getsockopt(listener.fd(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
    throw UsageError("the inherited file descriptor " + std::to_string(address.listen_fd) + " is not a listening socket");
  }
  fcntl(listener.fd(), F_SETFD, FD_CLOEXEC);
  fcntl(listener.fd(), F_SETFL, fcntl(listener.fd(), F_GETFL) | O_NONBLOCK);
  return listener;
}

/// Tries until rank 0 listens and lets this rank in, or time_to_join().
Socket connect_to_master(const JobAddress& address, const std::string& host) {
  const std::string claim = network::WireWriter()
                                .integer(static_cast<std::int32_t>(address.rank))
                                .integer(static_cast<std::int32_t>(address.size))
                                .text(host.substr(0, 255))
                                .take();
  const Deadline begin = Clock::now(), deadline = begin + address.time_to_join();
  Deadline next_word = begin + address.join_progress;
  milliseconds pause(20);
  while (true) {
    std::string reason;
    try {
      const Deadline attempt = std::min(deadline, Clock::now() + network::Gate::handshake_time);
      Socket socket = network::connect_to(address.master_host, address.master_port, attempt);
      network::prove_to_server(socket, address.token, job_purpose, claim, attempt);
      return socket;
    } catch (const SystemError& error) {
      reason = error.what();
    }
    if (Clock::now() + pause >= deadline) {
      throw SystemError("rank " + std::to_string(address.rank) + " could not join the job at " + address.master_host + " port " +
                        std::to_string(address.master_port) + " within " + seconds_text(address.time_to_join()) + ": " + reason +
                        ". Is rank 0 running there, with the same token?");
    }
    if (Clock::now() >= next_word) {
      const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
      log::info("rank " + std::to_string(address.rank) + " waits for rank 0 at " + address.master_host + " port " +
                std::to_string(address.master_port) + ", " + seconds_text(waited) + " of " +
                seconds_text(address.time_to_join()) + ": " + reason);
      next_word = Clock::now() + address.join_progress;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(500));
  }
}

}  // namespace

std::unique_ptr<JoinedJob> join_job(const JobAddress& address) {
  Socket inherited(address.rank == 0 && address.size > 1 ? -1 : address.listen_fd);  // closed where it has no use
  const Socket joined(address.joined_fd);
  if (joined) fcntl(joined.fd(), F_SETFD, FD_CLOEXEC);
  validate(address);
  if (address.size == 1) return std::make_unique<SoloJob>(address);

  std::string host = network::host_name();
  std::unique_ptr<JobServer> server;
  Socket connection;
  if (address.rank == 0) {
    auto [own, servers] = network::connected_pair();
    connection = std::move(own);
    server = std::make_unique<JobServer>(JobServer::Setup{take_listener(address), std::move(servers), host, address.size,
                                                          address.token, address.timeout, address.time_to_join(),
                                                          address.join_progress});
  } else {
    connection = connect_to_master(address, host);
  }
  auto job = std::make_unique<MemberJob>(address, std::move(host), std::move(connection), std::move(server));
  job->wait_until_joined();
  if (joined) {
    const auto rank = static_cast<std::int32_t>(address.rank);
    if (write(joined.fd(), &rank, sizeof rank) < 0) job->check();  // a launcher that is gone takes its ranks with it
  }
  return job;
}

}  // namespace consist
