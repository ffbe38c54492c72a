// Findings of transport ib, and of what it shares with efa, about a machine, without starting anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "consist/host.h"
#include "plugins/transports/ib/requirements.h"
#include "plugins/transports/rdma/requirements.h"
#include "tests/temporary_folder.h"

namespace consist::ib {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Folders like /sys/class/infiniband and /dev/infiniband.
class IbMachine : public ::testing::Test {
 protected:
  void add(const std::string& device, const std::string& port, const std::string& state, const std::string& link_layer) {
    const fs::path folder = places().devices / device / "ports" / port;
    fs::create_directories(folder);
    std::ofstream(folder / "state") << state << '\n';
    std::ofstream(folder / "link_layer") << link_layer << '\n';
    std::ofstream(folder / "rate") << "400 Gb/sec (4X NDR)\n";
  }
  void give_verbs() {
    fs::create_directories(places().verbs);
    std::ofstream(places().verbs / "uverbs0") << "";
  }
  Places places() const { return {folder_.path() / "infiniband", folder_.path() / "dev"}; }
  std::string problem(const std::string& wanted = "") const { return choose_ports(wanted, nullptr, places()).problem; }

  TemporaryFolder folder_;
};

TEST_F(IbMachine, WithoutDevicesSaysWhatToDo) {
  EXPECT_THAT(problem(), AllOf(HasSubstr("there is none in"), HasSubstr("load the NIC's driver")));
  fs::create_directories(folder_.path() / "drivers/efa");
  fs::create_directories(places().devices / "rdmap0s6/device");
  fs::create_directory_symlink(folder_.path() / "drivers/efa", places().devices / "rdmap0s6/device/driver");
  EXPECT_THAT(problem(), HasSubstr("but rdmap0s6, which is EFA: take transport efa"));
}

TEST_F(IbMachine, NeedsAnActivePort) {
  add("mlx5_0", "1", "2: INIT", "InfiniBand");
  add("mlx5_1", "1", "1: DOWN", "InfiniBand");
  EXPECT_THAT(problem(), AllOf(HasSubstr("no port is ACTIVE: mlx5_0:1 (InfiniBand) is INIT, mlx5_1:1 (InfiniBand) is DOWN"),
                               HasSubstr("subnet manager"), Not(HasSubstr("ip link"))));
  add("mlx5_0", "1", "4: ACTIVE", "InfiniBand");
  EXPECT_EQ(problem(), "");
}

TEST_F(IbMachine, AnInterfaceThatIsDownIsNoFaultOfTheSubnetManager) {
  add("mlx5_0", "1", "1: DOWN", "Ethernet");
  EXPECT_THAT(problem(), AllOf(HasSubstr("mlx5_0:1 (RoCE) is DOWN"), HasSubstr("ip link set DEV up"), Not(HasSubstr("subnet"))));
}

TEST_F(IbMachine, TakesInfiniBandWhereRoceIsThereToo) {
  add("mlx5_0", "1", "4: ACTIVE", "InfiniBand");
  EXPECT_EQ(choose_ports("", nullptr, places()).hcas, "") << "there is nothing to choose";
  add("mlx5_1", "1", "4: ACTIVE", "Ethernet");
  add("mlx5_2", "1", "4: ACTIVE", "InfiniBand");
  add("mlx5_2", "2", "1: DOWN", "InfiniBand");
  EXPECT_EQ(choose_ports("", nullptr, places()).hcas, "mlx5_0:1,mlx5_2:1");
  EXPECT_EQ(choose_ports("", "mlx5_1", places()).hcas, "") << "the environment has chosen";
  EXPECT_EQ(choose_ports("mlx5_1", nullptr, places()).hcas, "mlx5_1:1");
  EXPECT_EQ(choose_ports("mlx5_0,mlx5_2:1", nullptr, places()).hcas, "mlx5_0:1,mlx5_2:1");
}

TEST_F(IbMachine, NamedDevicesMustBeThereAndActive) {
  add("mlx5_0", "1", "4: ACTIVE", "InfiniBand");
  add("mlx5_1", "1", "1: DOWN", "InfiniBand");
  EXPECT_EQ(problem("mlx5_0,mlx5_9"), "mlx5_9 is not there; there are mlx5_0:1, mlx5_1:1");
  EXPECT_THAT(problem("mlx5_0,mlx5_1"), HasSubstr("no port is ACTIVE: mlx5_1:1")) << "NCCL would leave it out in silence";
  EXPECT_EQ(problem("mlx5_0:2"), "mlx5_0:2 is not there; there are mlx5_0:1, mlx5_1:1");
}

TEST_F(IbMachine, ListsAllThatIsMissing) {
  EXPECT_THAT(problem_of_machine("", "/nowhere/libnccl.so.2", places()),
              AllOf(HasSubstr("for InfiniBand or RoCE these are missing:"), HasSubstr("- device: "), HasSubstr("- NCCL: "),
                    Not(HasSubstr("- verbs"))));
  add("mlx5_0", "1", "4: ACTIVE", "InfiniBand");
  EXPECT_THAT(problem_of_machine("", "/nowhere/libnccl.so.2", places()),
              AllOf(Not(HasSubstr("- device: ")), HasSubstr("- verbs: no " + (places().verbs / "uverbs*").string())));
  give_verbs();
  EXPECT_THAT(problem_of_machine("", "/nowhere/libnccl.so.2", places()), Not(HasSubstr("- verbs")));
}

TEST(IpcLock, IsReadFromTheTextOfAProcess) {
  EXPECT_FALSE(has_ipc_lock(""));
  EXPECT_FALSE(has_ipc_lock("CapInh:\t0000000000004000\nCapEff:\t0000000000000000\n"));
  EXPECT_TRUE(has_ipc_lock("Name:\tconsist\nCapEff:\t0000000000004000\nCapBnd:\t0\n"));
  EXPECT_TRUE(has_ipc_lock("CapEff:\t000001ffffffffff"));
  EXPECT_FALSE(has_ipc_lock("CapEff:\tnonsense"));
}

/// In a process of its own, since the limit can be lowered only.
[[noreturn]] void say_memlock_problem(rlim_t limit) {
  const rlimit wanted{limit, limit};
  setrlimit(RLIMIT_MEMLOCK, &wanted);
  std::fprintf(stderr, "problem: <%s>\n", rdma::memlock_problem().c_str());
  std::_Exit(0);
}

TEST(RdmaRequirements, ALowLimitOfPinnedMemoryIsAProblem) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::ostringstream status;
  status << std::ifstream("/proc/self/status").rdbuf();
  EXPECT_EXIT(say_memlock_problem(1 << 16), ::testing::ExitedWithCode(0),
              has_ipc_lock(status.str()) ? "problem: <>" : "problem: <a process may pin 64 KiB.*ulimit -l unlimited");
}

}  // namespace
}  // namespace consist::ib
