// The socket transport with its ranks as threads: which path it takes. What all transports of host memory do is in
// host_ring_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

std::unique_ptr<RingCommunicator> connect(Job& job, std::size_t chunk_bytes = RingCommunicator::default_chunk_bytes,
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

TEST(Socket, TakesTheInterfaceThatWasAskedFor) {
  std::string address;
  for (const auto& entry : network::interface_addresses()) {
    if (!entry.loopback && entry.address.find(':') == std::string::npos) address = entry.address;
  }
  if (address.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  expect_all_fine(run_ranks(make_addresses(2), [&](JoinedJob& job) {
    {
      const auto group = connect(job, RingCommunicator::default_chunk_bytes, {address, 1 << 20});
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
