#include "core/job/job.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
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
  std::span<const int> host_ranks() const noexcept override { return host_ranks_; }
  int generation() const noexcept override { return address_.generation; }
  std::string_view token() const noexcept override { return address_.token; }
  milliseconds timeout() const noexcept override { return address_.timeout; }

  std::vector<std::string> gather(std::string_view /*name*/, std::string_view bytes, milliseconds /*timeout*/,
                                  std::span<const int> /*members*/) override {
    return {std::string(bytes)};
  }
  std::string broadcast(std::string_view /*name*/, std::string_view bytes, milliseconds /*timeout*/,
                        std::span<const int> /*members*/) override {
    return std::string(bytes);
  }

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
  void leave(milliseconds /*timeout*/) override {}
  void fail(std::string_view /*reason*/) noexcept override {}

 private:
  const JobAddress address_;
  const std::string host_;
  const std::array<int, 1> host_ranks_{0};
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
  if (address.generation < 0) complain("its generation is " + std::to_string(address.generation) + ", which begins at 0");
  if (address.timeout <= milliseconds(0)) complain("the timeout is not positive");
  if (address.timeout > longest_wait || address.join_timeout > longest_wait) complain("the timeout is longer than a year");
  if (address.size == 1) return;
  const bool agrees = address.channel != TokenChannel::none && address.token.empty();
  if (!agrees && address.token.size() < min_token_characters) {
    complain("the job's token has " + std::to_string(address.token.size()) + " characters; it needs at least " +
             std::to_string(min_token_characters) + " that nobody can guess");
  }
  if (address.master_port == 0 && address.listen_fd < 0) complain("no port of rank 0 is given");
}

/// Sets the token, and with PMIx rank 0's host, where the ranks agree on them.
std::optional<HostToken> agree_on_token(JobAddress& address) {
  if (address.channel == TokenChannel::none) return {};
  if (address.channel == TokenChannel::host) {
    HostToken agreed(address.start);
    address.token = agreed.token();
    return agreed;
  }
  Agreed agreed = agree_by_pmix(address.time_to_join());
  if (address.token.empty()) address.token = std::move(agreed.token);
  if (address.master_host.empty()) address.master_host = std::move(agreed.master_host);
  return {};
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

/// The port at which this rank can take in the others of its host; 0: none.
std::uint16_t port_of(const Socket& leader) {
  return leader ? network::local_endpoint(leader).port : std::uint16_t{0};
}

/// Listens for the other ranks of this host where this rank leads them; rank 0 itself serves those of its own.
Socket listen_for_host(const JobAddress& address) {
  if (address.rank == 0 || address.local_rank != 0 || address.local_size == 1) return {};
  try {
    return network::listen_on("127.0.0.1", 0);
  } catch (const SystemError&) {
    return network::listen_on("::1", 0);  // a machine of IPv6 alone
  }
}

/// Rank 0 has a connection of each rank while they join. Raised as far as the system lets it.
void raise_descriptor_limit(int ranks) {
  constexpr rlim_t own_files = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const rlim_t needed = static_cast<rlim_t>(ranks) + own_files;
  if (limit.rlim_cur >= needed) return;
  const rlim_t most = limit.rlim_max;
  limit.rlim_cur = most == RLIM_INFINITY ? needed : std::min(needed, most);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < needed) {
    log::warn("rank 0 may open " + std::to_string(most) + " files, and " + std::to_string(ranks) + " ranks may need " +
              std::to_string(needed) +
              " while they join: some will wait for others to go on through the leaders of their hosts. 'ulimit -Hn' shows the "
              "limit, which the administrator of rank 0's host can raise");
  }
}

/// Tries until rank 0 listens and lets this rank in, or time_to_join().
Socket connect_to_master(const JobAddress& address, const std::string& host, std::uint16_t leader_port) {
  const std::string claim = JoinClaim{address.generation, address.rank, address.size, host, address.machine, leader_port}.text();
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
      throw PeerError(0, "rank " + std::to_string(address.rank) + " could not join the job at " + address.master_host + " port " +
                             std::to_string(address.master_port) + " within " + seconds_text(address.time_to_join()) + ": " +
                             reason + ". Is rank 0 running there, with the same token?");
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

std::unique_ptr<JoinedJob> join_job(const JobAddress& given) {
  Socket inherited(given.rank == 0 && given.size > 1 ? -1 : given.listen_fd);  // closed where it has no use
  const Socket joined(given.joined_fd);
  if (joined) fcntl(joined.fd(), F_SETFD, FD_CLOEXEC);
  validate(given);
  if (given.size == 1) return std::make_unique<SoloJob>(given);

  JobAddress address = given;
  std::optional<HostToken> agreed = agree_on_token(address);
  if (address.machine.empty()) address.machine = network::machine_identity();
  std::string host = network::host_name();
  std::unique_ptr<JobServer> server;
  Socket connection, leader = listen_for_host(address);
  if (address.rank == 0) {
    raise_descriptor_limit(address.size);
    auto [own, servers] = network::connected_pair();
    connection = std::move(own);
    server = std::make_unique<JobServer>(JobServer::Setup{.listener = take_listener(address),
                                                          .own = std::move(servers),
                                                          .own_host = host,
                                                          .own_machine = address.machine,
                                                          .size = address.size,
                                                          .generation = address.generation,
                                                          .token = address.token,
                                                          .timeout = address.timeout,
                                                          .join_timeout = address.time_to_join(),
                                                          .join_progress = address.join_progress});
  } else {
    connection = connect_to_master(address, host, port_of(leader));
  }
  auto job = std::make_unique<MemberJob>(address, std::move(host), std::move(connection), std::move(server), std::move(leader));
  job->wait_until_joined();
  if (agreed && address.rank == 0) agreed->remove();
  if (joined) {
    const auto rank = static_cast<std::int32_t>(address.rank);
    if (write(joined.fd(), &rank, sizeof rank) < 0) job->check();  // a launcher that is gone takes its ranks with it
  }
  return job;
}

}  // namespace consist
