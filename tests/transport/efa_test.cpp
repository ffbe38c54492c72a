// Findings of transport efa about a machine, without starting anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "consist/error.h"
#include "plugins/transports/efa/devices.h"
#include "plugins/transports/efa/ofi_plugin.h"
#include "plugins/transports/efa/requirements.h"
#include "tests/temporary_folder.h"

namespace consist::efa {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A folder like /sys/class/infiniband.
class Devices : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& driver) {
    fs::create_directories(folder_.path() / "drivers" / driver);
    fs::create_directories(sys() / name / "device");
    fs::create_directory_symlink(folder_.path() / "drivers" / driver, sys() / name / "device" / "driver");
  }
  void set_sent(const std::string& name, const std::string& value) {
    const fs::path counters = sys() / name / "ports/1/hw_counters";
    fs::create_directories(counters);
    std::ofstream(counters / "tx_bytes") << value << '\n';
  }
  fs::path sys() const { return folder_.path() / "infiniband"; }

  TemporaryFolder folder_;
};

TEST_F(Devices, AreThoseWithTheDriver) {
  std::vector<std::string> others;
  EXPECT_THAT(efa_devices(others, sys()), IsEmpty()) << "the folder is not there";
  add("rdmap16s27", "efa");
  add("mlx5_0", "mlx5_core");
  add("rdmap0s6", "efa");
  EXPECT_THAT(efa_devices(others, sys()), ElementsAre("rdmap0s6", "rdmap16s27"));
  EXPECT_THAT(others, ElementsAre("mlx5_0"));
}

TEST_F(Devices, MustHaveSentWhatWasSent) {
  add("rdmap0s6", "efa");
  set_sent("rdmap0s6", "1000");
  const SentBytes counter("rdmap0s6-rdm", sys());
  ASSERT_TRUE(counter.known());
  set_sent("rdmap0s6", "1063");
  try {
    counter.expect(64);
    FAIL() << "63 bytes are not 64";
  } catch (const UnavailableError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rdmap0s6 has sent 63 of 64 bytes"), HasSubstr("took another path")));
  }
  set_sent("rdmap0s6", "1064");
  EXPECT_NO_THROW(counter.expect(64));
}

TEST_F(Devices, WithoutCounterNothingIsSaid) {
  add("rdmap0s6", "efa");
  const SentBytes counter("rdmap0s6-rdm", sys());
  EXPECT_FALSE(counter.known());
  EXPECT_NO_THROW(counter.expect(64));
}

TEST(OfiPlugin, IsFoundByFileAndFolderWithItsNetwork) {
  const std::string folder = CONSIST_FAKE_PLUGINS "/ofi";
  for (const std::string& place : {folder, folder + "/libnccl-net-ofi.so"}) {
    const OfiPlugin plugin = find_ofi_plugin(place);
    EXPECT_EQ(plugin.network, "Libfabric");
    EXPECT_EQ(plugin.path, folder + "/libnccl-net-ofi.so");
  }
}

TEST(OfiPlugin, AnotherNetworkIsRefusedByName) {
  const auto reason = [](const std::string& place) -> std::string {
    try {
      find_ofi_plugin(place);
      return "found";
    } catch (const UnavailableError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(reason(CONSIST_FAKE_PLUGINS "/other"), HasSubstr("libnccl-net.so is NCCL's network 'IBext'"));
  EXPECT_THAT(reason(CONSIST_FAKE_PLUGINS), HasSubstr("holds neither libnccl-net-ofi.so nor libnccl-net.so"));
  EXPECT_THAT(reason("/nowhere/libnccl-net.so"), HasSubstr("/nowhere/libnccl-net.so"));
}

TEST(Requirements, ListWhatIsMissing) {
  std::vector<std::string> others;
  if (!efa_devices(others).empty()) GTEST_SKIP() << "this machine has EFA";
  const auto start = std::chrono::steady_clock::now();
  const std::string problem = problem_of_machine();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  for (const char* part : {"EFA device: ", "provider: ", "NCCL plugin: "}) EXPECT_THAT(problem, HasSubstr(part));
#ifdef CONSIST_WITH_LIBFABRIC
  EXPECT_THAT(problem, HasSubstr("GPUDirect: "));
#endif
  EXPECT_THAT(problem_on_host({}), AllOf(HasSubstr("EFA device"), ::testing::Not(HasSubstr("NCCL"))));
  EXPECT_THAT(problem_on_cuda({.host = {.provider = "tcp", .device = {}, .libfabric = {}}, .nccl = {}, .ofi_plugin = {}}),
              HasSubstr("transport socket"));
}

}  // namespace
}  // namespace consist::efa
