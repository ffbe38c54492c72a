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
  for (const char* name : {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_IB_DISABLE",
                           "NCCL_SOCKET_IFNAME", "NCCL_NET", "NCCL_NET_PLUGIN", "FI_PROVIDER"})
    unsetenv(name);
}

std::string value(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "unset" : text;
}

const Need nvlink{Path::nvlink, "nvlink", "tensor.0", true, ""};
const Need socket_within{Path::socket, "socket", "data.0", true, ""};
const Need socket_between{Path::socket, "socket", "data.0", false, ""};

Need efa(bool share_a_host, bool nvlink_within_host) {
  Need need{Path::efa, "efa", "data.0", share_a_host, ""};
  need.nvlink_within_host = nvlink_within_host;
  need.network = "Libfabric";
  need.network_plugin = "/opt/libnccl-net-ofi.so";
  return need;
}

/// In a process of its own: leaves with what() of the error, or with "fine" and the settings.
[[noreturn]] void run(const std::vector<Need>& needs) {
  try {
    for (const Need& need : needs) fix_process_settings(need);
    std::fprintf(stderr, "plugin %s, provider %s, ", value("NCCL_NET_PLUGIN").c_str(), value("FI_PROVIDER").c_str());
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
      "transport socket of group 'data.0' needs NCCL's peer-to-peer off.*but transport nvlink of group 'tensor.0' has it on");
  EXPECT_EXIT(
      run({socket_within, nvlink}), ::testing::ExitedWithCode(0),
      "transport nvlink of group 'tensor.0' needs NCCL's peer-to-peer on, but transport socket of group 'data.0' has it off");
}

TEST_F(NcclSettings, AnEnvironmentThatSaysOtherwiseIsNamed) {
  setenv("NCCL_SHM_DISABLE", "0", 1);
  EXPECT_EXIT(run({socket_within}), ::testing::ExitedWithCode(0), "needs NCCL_SHM_DISABLE=1, but the environment says '0'");
}

TEST_F(NcclSettings, EfaLoadsThePluginAndFixesTheProvider) {
  EXPECT_EXIT(run({efa(true, true)}), ::testing::ExitedWithCode(0),
              "plugin /opt/libnccl-net-ofi.so, provider efa, fine: level NVL, p2p off unset, shm off unset, nvls 0");
  EXPECT_EXIT(run({efa(true, false)}), ::testing::ExitedWithCode(0), "provider efa, fine: level unset, p2p off 1, shm off 1");
  EXPECT_EXIT(run({efa(true, true), nvlink}), ::testing::ExitedWithCode(0), "provider efa, fine: level NVL");
  EXPECT_EXIT(run({efa(true, false), nvlink}), ::testing::ExitedWithCode(0), "needs NCCL's peer-to-peer on, but transport efa");
}

TEST_F(NcclSettings, ThePluginOfTheEnvironmentIsKept) {
  setenv("NCCL_NET_PLUGIN", "ofi", 1);
  EXPECT_EXIT(run({nvlink, efa(false, true)}), ::testing::ExitedWithCode(0), "plugin ofi, provider efa, fine: level NVL");
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
