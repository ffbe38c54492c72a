// Reading NCCL's log and judging what it says. Lines are of NCCL 2.28.9+cuda13.0 unless stated otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "consist/error.h"
#include "plugins/transports/nccl/findings.h"
#include "plugins/transports/nccl/log.h"
#include "plugins/transports/nccl/path_verification.h"

namespace consist::nccl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A file of tests/transport/nccl_logs; its README.md says where they are from.
std::string log_named(const std::string& name) {
  const std::string path = CONSIST_SOURCE_DIR "/tests/transport/nccl_logs/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// NCCL's own format strings (src/transport/{p2p,shm,net}.cc of v2.28.9-1), each with the kind of head that its log lines have.
constexpr const char* every_path = R"(host:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
host:10:11 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
host:10:11 [0] NCCL INFO Channel 00/1 : 0[0] -> 2[2] via P2P/CUMEM/read
host:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 3[3] via P2P/indirect/2[2]
host:10:11 [0] NCCL INFO Channel 00 : 0[0] -> 4[4] via SHM/direct/direct
host:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 5[0] [send] via NET/Socket/1
host:10:11 [0] NCCL INFO Channel 00/0 : 6[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
host:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 7[0] [send] via NET/AWS Libfabric/0(2)/GDRDMA/Shared
)";

TEST(NcclLog, ReadsWhatWasWrittenOnAMachineWithNvlink) {
  const std::string text = log_named("p2p_cumem.log");
  const LogFindings found = read_log(text);
  EXPECT_EQ(found.version, "2.28.9+cuda13.0");
  EXPECT_THAT(found.interfaces, ElementsAre("eth0"));
  EXPECT_THAT(found.connections, ElementsAre(Connection{0, 1, "P2P/CUMEM"}, Connection{1, 0, "P2P/CUMEM"}));
  EXPECT_THAT(found.multicast, IsEmpty());
  EXPECT_THAT(found.warnings, IsEmpty());
  EXPECT_THAT(read_log(text, 1).connections, ElementsAre(Connection{1, 0, "P2P/CUMEM"}));
}

TEST(NcclLog, ReadsWhatWasWrittenWithThatPathHidden) {
  EXPECT_THAT(read_log(log_named("shm.log")).connections,
              ElementsAre(Connection{0, 1, "SHM/direct/direct"}, Connection{1, 0, "SHM/direct/direct"}));
  EXPECT_THAT(read_log(log_named("net_socket.log")).connections,
              ElementsAre(Connection{0, 1, "NET/Socket/0"}, Connection{1, 0, "NET/Socket/0"}));
  const LogFindings shared = read_log(log_named("net_socket_shared.log"));
  EXPECT_EQ(shared.version, "2.28.3+cuda13.0");
  EXPECT_THAT(shared.connections, ElementsAre(Connection{0, 1, "NET/Socket/0"}, Connection{0, 1, "NET/Socket/0/Shared"},
                                              Connection{1, 0, "NET/Socket/0"}, Connection{1, 0, "NET/Socket/0/Shared"}));
}

TEST(NcclLog, ReadsEveryKindOfConnectionOnce) {
  const LogFindings found = read_log(every_path);
  EXPECT_THAT(
      found.connections,
      ElementsAre(Connection{0, 1, "P2P/CUMEM"}, Connection{0, 2, "P2P/CUMEM/read"}, Connection{0, 3, "P2P/indirect/2[2]"},
                  Connection{0, 4, "SHM/direct/direct"}, Connection{0, 5, "NET/Socket/1"},
                  Connection{0, 7, "NET/AWS Libfabric/0(2)/GDRDMA/Shared"}, Connection{6, 0, "NET/IB/0/GDRDMA"}));
}

TEST(NcclLog, ReadsVersionInterfacesWarningsAndMulticast) {
  const LogFindings found = read_log(
      "host:10:10 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
      "host:10:11 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0> [1]eth1:fe80::1%eth1<0>\n"
      "\n[2026-11-20 10:00:00] host:10:11 [0] misc/socket.cc:53 NCCL WARN socketProgress: Connection closed by remote peer\n"
      "host:10:11 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)\n");
  EXPECT_EQ(found.version, "2.28.9+cuda13.0");
  EXPECT_THAT(found.interfaces, ElementsAre("eth0", "eth1"));
  EXPECT_THAT(found.warnings, ElementsAre("socketProgress: Connection closed by remote peer"));
  EXPECT_THAT(found.multicast, ElementsAre(HasSubstr("NVLS_NCHANNELS 16")));
  EXPECT_THAT(
      read_log("host:10:11 [0] NCCL INFO NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)\n").multicast,
      IsEmpty());
}

TEST(NcclLog, ReadsWhatWasPublishedOfMachinesWithEfa) {
  const LogFindings newer = read_log(log_named("libfabric_gdr.log"));
  EXPECT_EQ(newer.version, "2.27.3+cuda12.9");
  EXPECT_EQ(newer.plugin, "aws-ofi-nccl 1.16.2");
  EXPECT_THAT(newer.providers, ElementsAre("efa"));
  EXPECT_THAT(newer.connections,
              ElementsAre(Connection{0, 1, "NET/Libfabric/0/GDRDMA"}, Connection{3, 0, "NET/Libfabric/0/GDRDMA"}));
  const LogFindings older = read_log(log_named("aws_libfabric.log"));
  EXPECT_EQ(older.version, "2.12.7+cuda11.4");
  EXPECT_EQ(older.plugin, "aws-ofi-nccl 1.5.0aws");
  EXPECT_THAT(older.providers, ElementsAre("efa"));
  EXPECT_THAT(older.connections, ElementsAre(Connection{0, 1, "NET/AWS Libfabric/0"}, Connection{1, 0, "NET/AWS Libfabric/0"}));
  EXPECT_THAT(read_log(log_named("aws_libfabric_gdr.log")).connections,
              ElementsAre(Connection{1, 0, "NET/AWS Libfabric/1/GDRDMA"}));
  const LogFindings shared = read_log(log_named("aws_libfabric_shared.log"), 2);
  EXPECT_EQ(shared.plugin, "aws-ofi-nccl 1.11.0-aws") << "said once per process, by any device";
  EXPECT_THAT(shared.connections,
              ElementsAre(Connection{2, 5, "P2P/CUMEM/read"}, Connection{15, 2, "NET/AWS Libfabric/1/GDRDMA/Shared"}));
  EXPECT_THAT(read_log(log_named("libfabric_tcp.log")).providers, ElementsAre("tcp;ofi_rxm"));
}

TEST(NcclLog, ReadsWhatWasPublishedOfMachinesWithInfiniBand) {
  EXPECT_THAT(read_log(log_named("ib_gdr.log"), 0).connections,
              ElementsAre(Connection{0, 2, "NET/IB/5/GDRDMA"}, Connection{2, 0, "NET/IB/5/GDRDMA"}));
  EXPECT_THAT(read_log(log_named("ib_without_gdr.log"), 5).connections,
              ElementsAre(Connection{5, 4, "P2P/direct pointer/read"}, Connection{5, 12, "NET/IB/3"}));
  EXPECT_THAT(read_log(log_named("ib_roce.log"), 3).hcas, ElementsAre("mlx5_0:1/RoCE", "mlx5_1:1/RoCE"))
      << "said once per process, by any device";
}

TEST(NcclLog, ReadsTheDevicesOfInfiniBand) {
  // After NCCL's sources: rails and planes behind the port (2.29), and several devices that are taken for one.
  const LogFindings found = read_log(
      "host:1:2 [0] NCCL INFO NET/IB : Made virtual device [0] name=mlx5_0 speed=400000 ndevs=1 rail=0 plane=1\n"
      "host:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1:0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.4<0>\n"
      "host:1:2 [0] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2\n"
      "host:1:2 [0] NCCL INFO NET/IB : Made virtual device [99999] name=x speed=1\n");
  EXPECT_THAT(found.hcas, ElementsAre("mlx5_0:1:0:1/IB", "mlx5_1:1/IB", "mlx5_0+mlx5_1"));
  EXPECT_THAT(read_log("host:1:2 [0] NCCL INFO NET/IB : No device found.\n").hcas, IsEmpty());
}

TEST(NcclLog, ReadsEachFormOfTheProvider) {
  // As the plugin's sources of version 1.16.2 write it.
  EXPECT_THAT(
      read_log("host:1:257 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)\n").providers,
      ElementsAre("efa"));
  EXPECT_THAT(read_log("host:1:257 [0] NCCL INFO NET/OFI Selected provider\n").providers, IsEmpty());
}

TEST(NcclLog, KeepsTheLinesOfOneDevice) {
  const std::string text =
      "host:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer\n"
      "host:10:12 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer\n";
  EXPECT_THAT(read_log(text, 1).connections, ElementsAre(Connection{1, 0, "P2P/direct pointer"}));
  EXPECT_EQ(read_log(text).connections.size(), 2U);
}

TEST(NcclLog, SkipsWhatIsNotNcclsOrCutOff) {
  EXPECT_THAT(read_log("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
                       "host:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1]\n"
                       "host:10:11 [0] NCCL INFO Channel x/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
                       "host:10:11 [0] NCCL INFO Connected all rings\n"
                       "host:10:11 [0] NCCL IN")
                  .connections,
              IsEmpty());
  EXPECT_THAT(read_log("").connections, IsEmpty());
}

MemberFindings member(std::vector<Connection> connections, int links = 18) {
  MemberFindings findings;
  findings.connections = std::move(connections);
  findings.interfaces = {"eth0"};
  findings.active_links = links;
  return findings;
}

TEST(PathVerification, NamesTheProvenPath) {
  const Verdict nvlink = verify_path(Path::nvlink, {member({{0, 1, "P2P/CUMEM"}}), member({{1, 0, "P2P/CUMEM"}})}, {4, 6});
  EXPECT_EQ(nvlink.problem, "");
  EXPECT_EQ(nvlink.path, "P2P/CUMEM over 18 NVLinks");
  const Verdict socket = verify_path(
      Path::socket, {member({{0, 1, "NET/Socket/0"}, {1, 0, "NET/Socket/0"}}), member({{1, 0, "NET/Socket/0"}})}, {4, 6});
  EXPECT_EQ(socket.problem, "");
  EXPECT_EQ(socket.path, "NET/Socket on eth0");
}

TEST(PathVerification, NamesWhatWasFoundInstead) {
  EXPECT_EQ(
      verify_path(Path::nvlink, {member({{0, 1, "SHM/direct/direct"}}), member({{1, 0, "SHM/direct/direct"}})}, {4, 6}).problem,
      "asked for nvlink, got SHM/direct/direct between ranks 4 and 6");
  // One wrong connection among right ones is enough.
  EXPECT_EQ(
      verify_path(Path::nvlink, {member({{0, 1, "P2P/CUMEM"}}), member({{1, 2, "NET/Socket/0"}}), member({{2, 0, "P2P/CUMEM"}})},
                  {0, 1, 2})
          .problem,
      "asked for nvlink, got NET/Socket on eth0 between ranks 1 and 2");
  EXPECT_EQ(verify_path(Path::nvlink, {member({{0, 1, "P2P/indirect/2[2]"}}), member({{1, 0, "P2P/CUMEM"}})}, {0, 1}).problem,
            "asked for nvlink, got P2P/indirect/2[2] between ranks 0 and 1");
  EXPECT_EQ(verify_path(Path::socket, {member({{0, 1, "NET/IB/0/GDRDMA"}}), member({{1, 0, "NET/Socket/0"}})}, {0, 1}).problem,
            "asked for socket, got NET/IB with GPUDirect between ranks 0 and 1");
}

TEST(PathVerification, JudgesWhatWasWrittenOnARealMachine) {
  const auto verdict = [](Path wanted, const std::string& name) {
    std::vector<MemberFindings> members;
    for (const int device : {0, 1}) {
      const LogFindings log = read_log(log_named(name), device);
      MemberFindings& findings = members.emplace_back(member(log.connections));
      findings.interfaces = log.interfaces;
    }
    return verify_path(wanted, members, {0, 1});
  };
  EXPECT_EQ(verdict(Path::nvlink, "p2p_cumem.log").path, "P2P/CUMEM over 18 NVLinks");
  EXPECT_EQ(verdict(Path::nvlink, "shm.log").problem, "asked for nvlink, got SHM/direct/direct between ranks 0 and 1");
  EXPECT_EQ(verdict(Path::nvlink, "net_socket.log").problem, "asked for nvlink, got NET/Socket on eth0 between ranks 0 and 1");
  EXPECT_EQ(verdict(Path::socket, "net_socket.log").path, "NET/Socket on eth0");
  EXPECT_EQ(verdict(Path::socket, "shm.log").problem, "asked for socket, got SHM/direct/direct between ranks 0 and 1");
  EXPECT_EQ(verdict(Path::socket, "p2p_cumem.log").problem, "asked for socket, got P2P/CUMEM between ranks 0 and 1");
}

/// A member that uses the plugin over libfabric's provider efa.
MemberFindings efa_member(std::vector<Connection> connections, std::string provider = "efa") {
  MemberFindings findings = member(std::move(connections));
  findings.providers = {std::move(provider)};
  findings.plugin = "aws-ofi-nccl 1.16.2";
  return findings;
}

/// The findings of two members who read the same text, each its own lines.
std::vector<MemberFindings> both_members(const std::string& name, const std::string& first, const std::string& second) {
  std::vector<MemberFindings> members;
  for (const std::string& host : {first, second}) {
    std::istringstream lines(log_named(name));
    std::string own;
    for (std::string line; std::getline(lines, line);) own += line.find(host) == std::string::npos ? "" : line + "\n";
    const LogFindings log = read_log(own);
    members.push_back(member(log.connections));
    members.back().providers = log.providers;
    members.back().plugin = log.plugin;
  }
  return members;
}

TEST(PathVerification, JudgesWhatWasPublishedOfMachinesWithEfa) {
  const std::vector<MemberFindings> members = both_members("aws_libfabric.log", "worker-0", "worker-1");
  EXPECT_EQ(verify_path(Path::efa, members, {0, 1}).problem,
            "asked for efa, got NET/AWS Libfabric without GPUDirect between ranks 0 and 1");
  Promise without_gpudirect = Path::efa;
  without_gpudirect.gpudirect = false;
  EXPECT_EQ(verify_path(without_gpudirect, members, {0, 1}).problem, "");
  EXPECT_EQ(verify_path(without_gpudirect, members, {0, 1}).path,
            "NET/AWS Libfabric without GPUDirect; provider efa, aws-ofi-nccl 1.5.0aws");
  EXPECT_EQ(verify_path(Path::socket, members, {0, 1}).problem,
            "asked for socket, got NET/AWS Libfabric without GPUDirect between ranks 0 and 1");

  const LogFindings log = read_log(log_named("libfabric_gdr.log"));
  for (const Connection& connection : log.connections) EXPECT_TRUE(keeps_promise(Path::efa, connection)) << connection.path;
  for (const Connection& connection : read_log(log_named("aws_libfabric_shared.log")).connections)
    EXPECT_TRUE(keeps_promise(Path::efa, connection)) << connection.path;
}

TEST(PathVerification, EfaIsLibfabricsProviderEfaWithGpudirect) {
  const std::vector<Connection> there{{0, 1, "NET/Libfabric/3/GDRDMA/Shared"}}, back{{1, 0, "NET/Libfabric/0/GDRDMA"}};
  const Verdict good = verify_path(Path::efa, {efa_member(there), efa_member(back)}, {4, 6});
  EXPECT_EQ(good.problem, "");
  EXPECT_EQ(good.path, "NET/Libfabric with GPUDirect; provider efa, aws-ofi-nccl 1.16.2");
  const std::vector<std::string> tcp = read_log(log_named("libfabric_tcp.log")).providers;
  EXPECT_EQ(verify_path(Path::efa, {efa_member(there), efa_member(back, tcp.front())}, {4, 6}).problem,
            "asked for efa, got libfabric's provider tcp;ofi_rxm on rank 6");
  EXPECT_EQ(verify_path(Path::efa, {efa_member(there), member(back)}, {4, 6}).problem,
            "asked for efa, but the AWS OFI plugin named no provider of libfabric on rank 6");
  for (const char* path : {"NET/Socket/0", "NET/IB/0/GDRDMA", "SHM/direct/direct", "P2P/indirect/2[2]"}) {
    EXPECT_THAT(verify_path(Path::efa, {efa_member({{0, 1, path}}), efa_member(back)}, {4, 6}).problem,
                ::testing::AllOf(HasSubstr("asked for efa, got "), HasSubstr("between ranks 4 and 6")))
        << path;
  }
}

TEST(PathVerification, EfaWithinAHostIsNvlinkOrEfaAsAsked) {
  const std::vector<MemberFindings> mixed{efa_member({{0, 1, "P2P/CUMEM"}}), efa_member({{1, 2, "NET/Libfabric/0/GDRDMA"}}),
                                          efa_member({{2, 0, "NET/Libfabric/1/GDRDMA"}})};
  EXPECT_EQ(verify_path(Path::efa, mixed, {0, 1, 2}).path,
            "NET/Libfabric with GPUDirect, P2P/CUMEM over 18 NVLinks; provider efa, aws-ofi-nccl 1.16.2");
  Promise network_only = Path::efa;
  network_only.within = WithinHost::network;
  EXPECT_EQ(verify_path(network_only, mixed, {0, 1, 2}).problem, "asked for efa, got P2P/CUMEM between ranks 0 and 1");
  std::vector<MemberFindings> no_links = mixed;
  no_links[0].active_links = 0;
  EXPECT_THAT(verify_path(Path::efa, no_links, {0, 1, 2}).problem, HasSubstr("GPU of rank 0 has no NVLink that is up"));
  // Nothing went through EFA.
  EXPECT_THAT(verify_path(Path::efa, {efa_member({{0, 1, "P2P/CUMEM"}}), efa_member({{1, 0, "P2P/CUMEM"}})}, {0, 1}).problem,
              HasSubstr("--efa.within-host=efa"));
}

/// A member to which NVML knows no NVLink from any of these.
MemberFindings apart(std::vector<Connection> connections, std::vector<int> others) {
  MemberFindings findings = member(std::move(connections), unknown_links);
  findings.not_linked = std::move(others);
  return findings;
}

TEST(PathVerification, ShmIsPeerCopiesOverPcieOrHostMemory) {
  const MemberFindings one = apart({{0, 1, "P2P/CUMEM"}}, {1}), two = apart({{1, 0, "SHM/direct/direct"}}, {0});
  const auto verdict = [&](WithinHost within) {
    Promise promise = Path::shm;
    promise.within = within;
    return verify_path(promise, {one, two}, {4, 6});
  };
  EXPECT_EQ(verdict(WithinHost::shm).problem, "");
  EXPECT_EQ(verdict(WithinHost::shm).path, "P2P/CUMEM over PCIe, SHM/direct/direct through host memory");
  EXPECT_EQ(verdict(WithinHost::pcie).problem, "asked for shm, got SHM/direct/direct between ranks 4 and 6");
  EXPECT_EQ(verdict(WithinHost::memory).problem, "asked for shm, got P2P/CUMEM between ranks 4 and 6");
  EXPECT_EQ(verify_path(Path::nvlink, {one, two}, {4, 6}).problem,
            "asked for nvlink, got SHM/direct/direct between ranks 4 and 6");
}

TEST(PathVerification, ShmIsNeitherNvlinkNorANetwork) {
  const std::string unproven = ", of which NVML does not say that it goes without NVLink";
  EXPECT_EQ(verify_path(Path::shm, {member({{0, 1, "P2P/CUMEM"}}), apart({{1, 0, "P2P/CUMEM"}}, {0})}, {4, 6}).problem,
            "asked for shm, got P2P/CUMEM between ranks 4 and 6" + unproven);
  const MemberFindings back = apart({{1, 0, "SHM/direct/direct"}}, {0});
  for (const auto& [path, said] : {std::pair{"NET/Socket/0", "NET/Socket on eth0"},
                                   {"NET/IB/0/GDRDMA", "NET/IB with GPUDirect"},
                                   {"NET/Libfabric/0", "NET/Libfabric without GPUDirect"},
                                   {"P2P/indirect/2[2]", "P2P/indirect/2[2]"}}) {
    EXPECT_EQ(verify_path(Path::shm, {apart({{0, 1, path}}, {1}), back}, {4, 6}).problem,
              "asked for shm, got " + std::string(said) + " between ranks 4 and 6");
  }
}

TEST(PathVerification, ShmOnTheRealMachineIsWhatWasLeftOfNvlink) {
  for (const auto& [name, path, problem] :
       {std::tuple{"shm.log", "SHM/direct/direct through host memory", ""},
        {"p2p_cumem.log", "",
         "asked for shm, got P2P/CUMEM between ranks 0 and 1, of which NVML does not say that it goes without NVLink"},
        {"net_socket.log", "", "asked for shm, got NET/Socket on eth0 between ranks 0 and 1"}}) {
    std::vector<MemberFindings> members;
    for (const int device : {0, 1}) {
      const LogFindings log = read_log(log_named(name), device);
      members.push_back(member(log.connections));
      members.back().interfaces = log.interfaces;
    }
    const Verdict verdict = verify_path(Path::shm, members, {0, 1});
    EXPECT_EQ(verdict.path, path) << name;
    EXPECT_EQ(verdict.problem, problem) << name;
  }
}

/// A member with two devices of InfiniBand.
MemberFindings ib_member(std::vector<Connection> connections) {
  MemberFindings findings = member(std::move(connections));
  findings.hcas = {"mlx5_0:1/IB", "mlx5_1:1/IB"};
  return findings;
}

TEST(PathVerification, IbNamesItsDevicesAndSaysWhetherNicsReachTheGpus) {
  Promise promise = Path::ib;
  promise.gpudirect = false;
  EXPECT_EQ(
      verify_path(promise, {ib_member({{0, 1, "NET/IB/1/GDRDMA/Shared"}}), ib_member({{1, 0, "NET/IB/0(2)/GDRDMA"}})}, {0, 8})
          .path,
      "NET/IB with GPUDirect; mlx5_0:1/IB, mlx5_1:1/IB");
  const std::vector<MemberFindings> without{ib_member({{0, 1, "NET/IB/1"}}), ib_member({{1, 0, "NET/IB/1"}})};
  EXPECT_EQ(verify_path(promise, without, {0, 8}).path, "NET/IB without GPUDirect; mlx5_1:1/IB");
  promise.gpudirect = true;
  EXPECT_EQ(verify_path(promise, without, {0, 8}).problem, "asked for ib, got NET/IB without GPUDirect between ranks 0 and 8");
  for (const char* path : {"NET/Socket/0", "NET/Libfabric/0/GDRDMA", "NET/IBext_v8/0/GDRDMA", "SHM/direct/direct"}) {
    EXPECT_THAT(verify_path(promise, {ib_member({{0, 1, path}}), without[1]}, {0, 8}).problem,
                ::testing::AllOf(HasSubstr("asked for ib, got "), HasSubstr("between ranks 0 and 8")))
        << path;
  }
  EXPECT_EQ(verify_path(Path::efa, without, {0, 8}).problem, "asked for efa, got NET/IB without GPUDirect between ranks 0 and 8");
}

TEST(PathVerification, IbWithinAHostIsWhatWasAskedFor) {
  Promise promise = Path::ib;
  promise.gpudirect = false;
  const std::vector<MemberFindings> mixed{ib_member({{0, 1, "P2P/CUMEM"}}), ib_member({{1, 2, "NET/IB/0/GDRDMA"}}),
                                          ib_member({{2, 0, "NET/IB/0/GDRDMA"}})};
  EXPECT_EQ(verify_path(promise, mixed, {0, 1, 2}).path, "NET/IB with GPUDirect, P2P/CUMEM over 18 NVLinks; mlx5_0:1/IB");
  const std::vector<MemberFindings> within{ib_member({{0, 1, "P2P/CUMEM"}}), ib_member({{1, 0, "P2P/CUMEM"}})};
  EXPECT_THAT(verify_path(promise, within, {0, 1}).problem, HasSubstr("take transport nvlink, or give --ib.within-host=ib"));
  promise.within = WithinHost::shm;
  std::vector<MemberFindings> by_memory = mixed;
  by_memory[0] = ib_member({{0, 1, "SHM/direct/direct"}});
  EXPECT_EQ(verify_path(promise, by_memory, {0, 1, 2}).path,
            "NET/IB with GPUDirect, SHM/direct/direct through host memory; mlx5_0:1/IB");
  EXPECT_THAT(verify_path(promise, mixed, {0, 1, 2}).problem, HasSubstr("does not say that it goes without NVLink"));
  promise.within = WithinHost::network;
  EXPECT_EQ(verify_path(promise, by_memory, {0, 1, 2}).problem, "asked for ib, got SHM/direct/direct between ranks 0 and 1");
}

TEST(PathVerification, NothingSaidIsNothingProven) {
  EXPECT_THAT(verify_path(Path::nvlink, {member({{0, 1, "P2P/CUMEM"}}), member({})}, {4, 6}).problem,
              HasSubstr("no connection of rank 6"));
}

TEST(PathVerification, PeerToPeerWithoutNvlinkIsNotNvlink) {
  EXPECT_THAT(verify_path(Path::nvlink, {member({{0, 1, "P2P/CUMEM"}}, 0), member({{1, 0, "P2P/CUMEM"}}, 0)}, {4, 6}).problem,
              HasSubstr("GPU of rank 4 has no NVLink that is up"));
  MemberFindings apart = member({{0, 1, "P2P/CUMEM"}});
  apart.not_linked = {1};
  EXPECT_EQ(verify_path(Path::nvlink, {apart, member({{1, 0, "P2P/CUMEM"}})}, {4, 6}).problem,
            "asked for nvlink, got P2P/CUMEM without NVLink between ranks 4 and 6 (says NVML)");
  EXPECT_THAT(verify_path(Path::nvlink,
                          {member({{0, 1, "P2P/CUMEM"}}, unknown_links), member({{1, 0, "P2P/CUMEM"}}, unknown_links)}, {0, 1})
                  .path,
              HasSubstr("NVML does not tell"));
}

TEST(PathVerification, MulticastIsAnotherPath) {
  MemberFindings one = member({{0, 1, "P2P/CUMEM"}});
  one.multicast = {"NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)"};
  EXPECT_THAT(verify_path(Path::nvlink, {one, member({{1, 0, "P2P/CUMEM"}})}, {0, 1}).problem, HasSubstr("NCCL_NVLS_ENABLE=0"));
}

TEST(PathVerification, FindingsTravelAsText) {
  MemberFindings findings = member({{0, 1, "P2P/direct pointer"}, {0, 2, "NET/AWS Libfabric/0(2)/GDRDMA/Shared"}}, 17);
  findings.not_linked = {2, 5};
  findings.interfaces = {"eth0", "bond 1"};
  findings.hcas = {"mlx5_0:1/IB", "mlx5_1:1/RoCE"};
  findings.multicast = {"NVLS comm 0x1"};
  findings.providers = {"efa", "tcp;ofi_rxm"};
  findings.plugin = "aws-ofi-nccl 1.16.2";
  const MemberFindings back = decode(encode(findings));
  EXPECT_EQ(back.providers, findings.providers);
  EXPECT_EQ(back.plugin, findings.plugin);
  EXPECT_EQ(back.connections, findings.connections);
  EXPECT_EQ(back.interfaces, findings.interfaces);
  EXPECT_EQ(back.hcas, findings.hcas);
  EXPECT_EQ(back.multicast, findings.multicast);
  EXPECT_EQ(back.not_linked, findings.not_linked);
  EXPECT_EQ(back.active_links, 17);
  EXPECT_THROW(decode("connection 0\n"), DataError);
  EXPECT_THROW(decode("nonsense 1\n"), DataError);
}

}  // namespace
}  // namespace consist::nccl
