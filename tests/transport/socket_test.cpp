// The socket transport with its ranks as threads: which path it takes. What all transports of host memory do is in
// host_ring_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "consist/error.h"
#include "consist/handshake.h"
#include "tests/conformance/transport/collective_checks.h"
#include "tests/transport/host_links.h"

namespace consist {
namespace {

using namespace std::chrono_literals;
using testing::expect_all_fine;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::run_ranks;
using testing::text_of;
using testing::whole_job;

std::unique_ptr<RingCommunicator> connect(Job& job, std::size_t chunk_bytes = default_chunk_bytes,
                                          const SocketOptions& options = {}) {
  return std::make_unique<RingCommunicator>(connect_members(job, whole_job(job), options), chunk_bytes);
}

TEST(Socket, SaysWhichPathWasTaken) {
  expect_all_fine(run_ranks(make_addresses(2), [](JoinedJob& job) {
    EXPECT_EQ(connect(job)->verified_path(), "tcp 127.0.0.1 on lo");
    job.leave(20s);
  }));
  expect_all_fine(
      run_ranks(make_addresses(1), [](JoinedJob& job) { EXPECT_EQ(connect(job)->verified_path(), "none (one member)"); }));
}

/// Inodes of the TCP sockets that listen on this machine, with whether the address is the loopback's.
std::map<std::string, bool> listening_sockets() {
  std::map<std::string, bool> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, word, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> word;
      words >> inode;
      constexpr const char* listens = "0A";
      if (state == listens)
        found[inode] = local.starts_with("0100007F:") || local.starts_with("00000000000000000000000001000000:");
    }
  }
  return found;
}

/// Those of this process.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

TEST(Socket, ListensOnLoopbackAloneWhereAllMembersAreLocal) {
  std::atomic<int> seen{0};
  const auto errors = run_ranks(make_addresses(2, 2s), [&](JoinedJob& job) {
    if (job.rank() == 0) connect(job);  // waits: the other member tells where it is, and does not come
    exchange_texts(job, whole_job(job), "socket.machine", network::machine_identity());
    std::map<std::string, bool> all;
    const auto listens = [&](const std::string& inode) { return all.contains(inode); };
    for (const auto start = network::Clock::now(); network::Clock::now() - start < 5s;) {
      all = listening_sockets();
      const std::set<std::string> own = own_sockets();
      if (std::count_if(own.begin(), own.end(), listens) >= 2) break;
      std::this_thread::sleep_for(5ms);
    }
    for (const std::string& inode : own_sockets()) {
      const auto found = all.find(inode);
      if (found == all.end()) continue;
      EXPECT_TRUE(found->second) << "socket " << inode << " is open to other machines";
      ++seen;
    }
    throw DataError("enough seen");
  });
  EXPECT_GE(seen, 2);  // the rendezvous and the transport
  EXPECT_THAT(text_of(errors[0]), HasSubstr("enough seen"));
}

TEST(Socket, TakesTheInterfaceThatWasAskedFor) {
  std::string address;
  for (const auto& entry : network::interface_addresses()) {
    if (!entry.loopback && entry.address.find(':') == std::string::npos) address = entry.address;
  }
  if (address.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  expect_all_fine(run_ranks(make_addresses(2), [&](JoinedJob& job) {
    {
      const auto group = connect(job, default_chunk_bytes, {address, 1 << 20});
      // Both ends are on this machine, so the packets take the loopback interface all the same, and the report says so.
      EXPECT_EQ(group->verified_path(), "tcp " + address + " on lo");
      testing::check_all_reduce(*group, *testing::make_memory("cpu", 0), 1000, DType::f32);
    }
    job.leave(20s);
  }));
}

TEST(Socket, RefusesAnUnknownInterface) {
  const auto errors = run_ranks(make_addresses(2), [](JoinedJob& job) { connect(job, 4096, {"nosuch7", 0}); });
  int named = 0;
  for (const auto& error : errors) named += text_of(error).find("'nosuch7'") != std::string::npos ? 1 : 0;
  EXPECT_EQ(named, 2);
  EXPECT_THAT(text_of(errors[0]), HasSubstr("lo (127.0.0.1)"));
}

}  // namespace
}  // namespace consist
