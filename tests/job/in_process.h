// Jobs whose ranks are threads of the test.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "consist/error.h"
#include "consist/socket.h"
#include "core/job/job.h"

namespace consist::testing {

inline const std::string test_token = "0123456789abcdef0123456789abcdef";

/// The addresses of a job of `size` ranks on loopback; rank 0 has a listening socket of its own.
inline std::vector<JobAddress> make_addresses(int size, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  network::Socket listener = network::listen_on("127.0.0.1", 0);
  const std::uint16_t port = network::local_endpoint(listener).port;
  std::vector<JobAddress> addresses(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    JobAddress& address = addresses[static_cast<std::size_t>(rank)];
    address.rank = address.local_rank = rank;
    address.size = address.local_size = size;
    address.master_port = port;
    address.token = test_token;
    address.timeout = timeout;
  }
  if (size > 1) {
    addresses[0].listen_fd = listener.release();
  }
  return addresses;
}

/// Spreads the ranks over hosts: the host of each rank, by number. The first rank of a host leads the others.
inline void spread(std::vector<JobAddress>& addresses, const std::vector<int>& host_of) {
  std::map<int, int> ranks_of_host;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    addresses[rank].machine = "host " + std::to_string(host_of[rank]);
    addresses[rank].local_rank = ranks_of_host[host_of[rank]]++;
  }
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) addresses[rank].local_size = ranks_of_host[host_of[rank]];
}

/// The same with so many ranks a host.
inline std::vector<JobAddress> make_addresses_on_hosts(int size, int ranks_per_host,
                                                       std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  std::vector<JobAddress> addresses = make_addresses(size, timeout);
  std::vector<int> host_of;
  for (int rank = 0; rank < size; ++rank) host_of.push_back(rank / ranks_per_host);
  spread(addresses, host_of);
  return addresses;
}

/// Runs `body` on one thread per rank; returns what each threw (null: nothing).
inline std::vector<std::exception_ptr> run_ranks(const std::vector<JobAddress>& addresses,
                                                 const std::function<void(JoinedJob&)>& body) {
  std::vector<std::exception_ptr> errors(addresses.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const std::unique_ptr<JoinedJob> job = join_job(addresses[i]);
        try {
          body(*job);
        } catch (const std::exception& error) {
          job->fail(error.what());
          throw;
        }
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// what() of an exception, or "" for null.
inline std::string text_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// No rank threw anything.
inline void expect_all_fine(const std::vector<std::exception_ptr>& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(text_of(errors[i]), "") << "rank " << i;
}

/// The rank that a PeerError blames; -1 for anything else.
inline int blamed(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const PeerError& e) {
    return e.rank();
  } catch (...) {
  }
  return -1;
}

/// A wait that was to end after `timeout` has not ended before, and not so late that the time could have been doubled.
inline void expect_about(std::chrono::steady_clock::duration timeout, std::chrono::steady_clock::duration taken) {
  EXPECT_GE(taken, timeout);
  EXPECT_LT(taken, timeout * 2);
}

}  // namespace consist::testing
