// NCCL's settings are those of the process: groups agree on them, or an error says why not. Each case is a process of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "consist/error.h"
#include "plugins/transports/nccl/process_settings.h"

namespace consist::nccl {
namespace {

void forget_environment() {
  for (const char* name :
       {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME",
        "NCCL_NET", "NCCL_NET_PLUGIN", "FI_PROVIDER", "NCCL_IB_HCA", "NCCL_NET_GDR_LEVEL", "NCCL_NET_DISABLE_INTRA"})
    unsetenv(name);
}

std::string value(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "unset" : text;
}

Need need_of(Path path, const char* group, bool share_a_host, WithinHost within) {
  Need need;
  need.path = path;
  need.transport = std::string(name_of(path));
  need.group = group;
  need.share_a_host = share_a_host;
  need.within = within;
  return need;
}

const Need nvlink = need_of(Path::nvlink, "tensor.0", true, WithinHost::nvlink);
const Need socket_within = need_of(Path::socket, "data.0", true, WithinHost::network);
// Where no members share a host, what the host has is fixed for groups that come later.
const Need socket_between = need_of(Path::socket, "data.0", false, WithinHost::nvlink);

Need shm(WithinHost within) {
  return need_of(Path::shm, "tensor.0", true, within);
}

Need efa(bool share_a_host, bool nvlink_within_host) {
  Need need = need_of(Path::efa, "data.0", share_a_host, nvlink_within_host ? WithinHost::nvlink : WithinHost::network);
  need.network = "Libfabric";
  need.network_plugin = "/opt/libnccl-net-ofi.so";
  return need;
}

Need ib(bool share_a_host, WithinHost within, const char* hcas = "") {
  Need need = need_of(Path::ib, "data.0", share_a_host, within);
  need.network = "IB";
  need.hcas = hcas;
  return need;
}

/// In a process of its own: leaves with what() of the error, or with "fine" and the settings.
[[noreturn]] void run(const std::vector<Need>& needs) {
  try {
    for (const Need& need : needs) fix_process_settings(need);
    std::fprintf(stderr, "plugin %s, provider %s, ", value("NCCL_NET_PLUGIN").c_str(), value("FI_PROVIDER").c_str());
    std::fprintf(stderr, "ib off %s, hca %s, gdr %s, intra off %s, ", value("NCCL_IB_DISABLE").c_str(),
                 value("NCCL_IB_HCA").c_str(), value("NCCL_NET_GDR_LEVEL").c_str(), value("NCCL_NET_DISABLE_INTRA").c_str());
    std::fprintf(stderr, "fine: level %s, p2p off %s, shm off %s, nvls %s, interface %s\n", value("NCCL_P2P_LEVEL").c_str(),
                 value("NCCL_P2P_DISABLE").c_str(), value("NCCL_SHM_DISABLE").c_str(), value("NCCL_NVLS_ENABLE").c_str(),
                 value("NCCL_SOCKET_IFNAME").c_str());
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::_Exit(0);
}

class NcclSettings : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    forget_environment();
  }
};

TEST_F(NcclSettings, EachTransportFixesItsPath) {
  EXPECT_EXIT(run({nvlink}), ::testing::ExitedWithCode(0), "fine: level NVL, p2p off unset, shm off unset, nvls 0");
  EXPECT_EXIT(run({socket_within}), ::testing::ExitedWithCode(0), "fine: level unset, p2p off 1, shm off 1, nvls 0");
}

TEST_F(NcclSettings, MulticastIsLeftAsTheUserSetIt) {
  setenv("NCCL_NVLS_ENABLE", "2", 1);
  EXPECT_EXIT(run({nvlink}), ::testing::ExitedWithCode(0), "nvls 2");
}

TEST_F(NcclSettings, GroupsOfTheSamePathAgree) {
  EXPECT_EXIT(run({nvlink, nvlink}), ::testing::ExitedWithCode(0), "fine");
  EXPECT_EXIT(run({socket_within, socket_within}), ::testing::ExitedWithCode(0), "fine");
}

TEST_F(NcclSettings, NvlinkWithinHostsAndSocketsBetweenThemAgree) {
  EXPECT_EXIT(run({nvlink, socket_between}), ::testing::ExitedWithCode(0), "fine: level NVL, p2p off unset");
  EXPECT_EXIT(run({socket_between, nvlink}), ::testing::ExitedWithCode(0), "fine: level NVL, p2p off unset");
}

TEST_F(NcclSettings, NvlinkAndSocketsWithinOneHostCannotBeCombined) {
  EXPECT_EXIT(
      run({nvlink, socket_within}), ::testing::ExitedWithCode(0),
      "transport socket of group 'data.0' needs NCCL to use the network between.*but transport nvlink of group 'tensor.0' has "
      "fixed NVLink");
  EXPECT_EXIT(
      run({socket_within, nvlink}), ::testing::ExitedWithCode(0),
      "transport nvlink of group 'tensor.0' needs NCCL to use NVLink between.*but transport socket of group 'data.0' has fixed "
      "the network");
}

TEST_F(NcclSettings, AnEnvironmentThatSaysOtherwiseIsNamed) {
  setenv("NCCL_SHM_DISABLE", "0", 1);
  EXPECT_EXIT(run({socket_within}), ::testing::ExitedWithCode(0), "needs NCCL_SHM_DISABLE=1, but the environment says '0'");
}

TEST_F(NcclSettings, EfaLoadsThePluginAndFixesTheProvider) {
  EXPECT_EXIT(run({efa(true, true)}), ::testing::ExitedWithCode(0),
              "plugin /opt/libnccl-net-ofi.so, provider efa, .*fine: level NVL, p2p off unset, shm off unset, nvls 0");
  EXPECT_EXIT(run({efa(true, false)}), ::testing::ExitedWithCode(0), "provider efa, .*fine: level unset, p2p off 1, shm off 1");
  EXPECT_EXIT(run({efa(true, true), nvlink}), ::testing::ExitedWithCode(0), "provider efa, .*fine: level NVL");
  EXPECT_EXIT(run({efa(true, false), nvlink}), ::testing::ExitedWithCode(0), "needs NCCL to use NVLink .*but transport efa");
}

TEST_F(NcclSettings, ThePluginOfTheEnvironmentIsKept) {
  setenv("NCCL_NET_PLUGIN", "ofi", 1);
  EXPECT_EXIT(run({nvlink, efa(false, true)}), ::testing::ExitedWithCode(0), "plugin ofi, provider efa, .*fine: level NVL");
}

TEST_F(NcclSettings, APluginThatComesTooLateIsAnError) {
  EXPECT_EXIT(run({nvlink, efa(false, true)}), ::testing::ExitedWithCode(0),
              "needs NCCL to load /opt/libnccl-net-ofi.so, but NCCL has been started without it for transport nvlink of group "
              "'tensor.0'; start with NCCL_NET_PLUGIN=/opt/libnccl-net-ofi.so");
}

TEST_F(NcclSettings, AnotherNetworkOrProviderOfTheEnvironmentIsNamed) {
  setenv("NCCL_NET", "Socket", 1);
  EXPECT_EXIT(run({efa(false, true)}), ::testing::ExitedWithCode(0),
              "needs NCCL's network 'Libfabric', but .* NCCL_NET='Socket'");
  setenv("NCCL_NET", "libfabric", 1);
  setenv("FI_PROVIDER", "tcp", 1);
  EXPECT_EXIT(run({efa(false, true)}), ::testing::ExitedWithCode(0), "needs FI_PROVIDER=efa, but the environment says 'tcp'");
}

TEST_F(NcclSettings, ShmForbidsWhatItIsNot) {
  EXPECT_EXIT(run({shm(WithinHost::shm)}), ::testing::ExitedWithCode(0),
              "intra off 1, fine: level unset, p2p off unset, shm off 0");
  EXPECT_EXIT(run({shm(WithinHost::memory)}), ::testing::ExitedWithCode(0),
              "intra off 1, fine: level unset, p2p off 1, shm off 0");
  EXPECT_EXIT(run({shm(WithinHost::pcie)}), ::testing::ExitedWithCode(0), "intra off 1, fine: level SYS, p2p off unset");
  EXPECT_EXIT(run({nvlink, shm(WithinHost::memory)}), ::testing::ExitedWithCode(0),
              "transport shm of group 'tensor.0' needs NCCL to use host memory between GPUs of one host, but transport nvlink");
  setenv("NCCL_SHM_DISABLE", "1", 1);
  EXPECT_EXIT(run({shm(WithinHost::shm)}), ::testing::ExitedWithCode(0),
              "transport shm needs NCCL_SHM_DISABLE=0, but the environment says '1'");
}

TEST_F(NcclSettings, PathsWithinHostsAreNoConcernOfGroupsBetweenThem) {
  setenv("NCCL_P2P_LEVEL", "PIX", 1);
  EXPECT_EXIT(run({socket_between}), ::testing::ExitedWithCode(0), "fine: level PIX");
  EXPECT_EXIT(run({nvlink}), ::testing::ExitedWithCode(0), "needs NCCL_P2P_LEVEL=NVL, but the environment says 'PIX'");
}

TEST_F(NcclSettings, IbChoosesDevicesAndGoesWithAnyPathWithinHosts) {
  EXPECT_EXIT(run({ib(true, WithinHost::nvlink)}), ::testing::ExitedWithCode(0), "ib off 0, hca unset, gdr unset.*level NVL");
  EXPECT_EXIT(run({nvlink, ib(true, WithinHost::nvlink, "mlx5_0:1")}), ::testing::ExitedWithCode(0), "ib off 0, hca =mlx5_0:1,");
  EXPECT_EXIT(run({shm(WithinHost::shm), ib(true, WithinHost::shm)}), ::testing::ExitedWithCode(0), "fine: level unset");
  EXPECT_EXIT(run({ib(true, WithinHost::network)}), ::testing::ExitedWithCode(0), "fine: level unset, p2p off 1, shm off 1");
  Need without = ib(false, WithinHost::nvlink);
  without.gpudirect_off = true;
  EXPECT_EXIT(run({without}), ::testing::ExitedWithCode(0), "gdr LOC");
}

TEST_F(NcclSettings, SocketsOfAnotherGroupDoNotKeepIbOff) {
  EXPECT_EXIT(run({socket_between}), ::testing::ExitedWithCode(0), "ib off 1");
  EXPECT_EXIT(run({socket_between, ib(false, WithinHost::nvlink)}), ::testing::ExitedWithCode(0), "ib off 0.*fine");
  EXPECT_EXIT(run({ib(false, WithinHost::nvlink), socket_between}), ::testing::ExitedWithCode(0), "ib off 0.*fine");
  setenv("NCCL_IB_DISABLE", "1", 1);
  EXPECT_EXIT(run({ib(false, WithinHost::nvlink)}), ::testing::ExitedWithCode(0),
              "transport ib needs NCCL_IB_DISABLE=0, but the environment says '1'");
}

TEST_F(NcclSettings, OtherDevicesOrAnotherNetworkOfTheEnvironmentAreNamed) {
  setenv("NCCL_IB_HCA", "mlx5_7", 1);
  EXPECT_EXIT(run({ib(false, WithinHost::nvlink)}), ::testing::ExitedWithCode(0), "hca mlx5_7, .*fine");
  EXPECT_EXIT(run({ib(false, WithinHost::nvlink, "mlx5_0")}), ::testing::ExitedWithCode(0),
              "needs NCCL_IB_HCA==mlx5_0, but the environment says 'mlx5_7'");
  setenv("NCCL_NET", "Socket", 1);
  EXPECT_EXIT(run({ib(false, WithinHost::nvlink)}), ::testing::ExitedWithCode(0),
              "needs NCCL's network 'IB', but .* NCCL_NET='Socket'");
}

TEST_F(NcclSettings, OneInterfacePerProcess) {
  Need on_eth0 = socket_within, on_eth1 = socket_within;
  on_eth0.interface = "eth0";
  on_eth1.interface = "eth1";
  EXPECT_EXIT(run({on_eth0, on_eth0}), ::testing::ExitedWithCode(0), "interface =eth0");
  EXPECT_EXIT(run({on_eth0, on_eth1}), ::testing::ExitedWithCode(0), "interface is 'eth1', but NCCL has already chosen 'eth0'");
  Need between_on_eth1 = socket_between;
  between_on_eth1.interface = "eth1";
  EXPECT_EXIT(run({socket_between, between_on_eth1}), ::testing::ExitedWithCode(0),
              "NCCL has already chosen an interface by itself");
}

}  // namespace
}  // namespace consist::nccl
