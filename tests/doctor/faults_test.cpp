// A made-up machine with one fault at a time: its check finds it, no other does, and the remedy is the right one.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <set>

#include "tests/doctor/stand_in.h"

namespace consist::doctor {
namespace {

struct Fault {
  const char* name;
  std::function<void(StandIn&)> make;
  std::set<std::string> found_by;  ///< all checks that complain
  Status status;
  const char* found;
  const char* remedy;
};
void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

/// Makes nvidia-smi tell something else of one GPU.
std::function<void(StandIn&)> gpu_with(std::size_t index, const char* column, const char* value) {
  return [=](StandIn& m) { m.gpus[index][column] = value; };
}

/// Sets an environment variable.
std::function<void(StandIn&)> with_variable(const char* name, const char* value) {
  return [=](StandIn& m) { m.environment[name] = value; };
}

std::vector<Fault> faults_of_drivers() {
  return {
      {"HiddenGpu",
       with_variable("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6"),
       {"gpu-visible"},
       Status::warning,
       "shows 7 of 8 GPUs",
       "unset CUDA_VISIBLE_DEVICES"},
      {"NoSuchGpu",
       with_variable("CUDA_VISIBLE_DEVICES", "0,9,1"),
       {"gpu-visible"},
       Status::wrong,
       "there is no GPU '9'",
       "nvidia-smi -L"},
      {"AllGpusHidden",
       with_variable("CUDA_VISIBLE_DEVICES", ""),
       {"gpu-visible"},
       Status::wrong,
       "shows 0 of 8 GPUs",
       "unset CUDA_VISIBLE_DEVICES"},
      {"LostGpu", [](StandIn& m) { m.gpus.pop_back(); }, {"gpu-count"}, Status::warning, "lists 7 of the 8 GPUs", "Xid 79"},
      {"GpuThatDoesNotAnswer",
       [](StandIn& m) {
         m.gpus.pop_back();
         m.smi_ending = "Unable to determine the device handle for GPU0000:07:00.0: GPU is lost.";
       },
       {"gpu-driver", "gpu-count"},
       Status::wrong,
       "nvidia-smi says: Unable to determine the device handle",
       "reset the GPU"},
      {"DriverMismatch",
       [](StandIn& m) { m.smi_failure = "Failed to initialize NVML: Driver/library version mismatch"; },
       {"gpu-driver", "gpu-alike", "gpu-count", "gpu-ecc", "gpu-mig", "gpu-nvlink", "gpu-pcie", "gpu-persistence", "gpu-power",
        "gpu-throttling", "gpu-visible"},
       Status::wrong,
       "version mismatch",
       "reboot"},
      {"OldDriver",
       [](StandIn& m) {
         m.plugin("cuda").found.reason =
             "the NVIDIA driver supports CUDA 12.2, and this build, with CUDA 13.0, needs a driver for CUDA 13 (580 or later): "
             "install one, or NVIDIA's package cuda-compat of this version";
       },
       {"gpu-driver-version"},
       Status::wrong,
       "needs a driver for CUDA 13 (580 or later)",
       "install a newer driver"},
  };
}

std::vector<Fault> faults_of_nvlink() {
  return {
      {"LinkDown",
       [](StandIn& m) { m.links[3][5] = m.links[3][6] = '-'; },
       {"gpu-nvlink"},
       Status::wrong,
       "GPU 3 has 16 active links, others of its kind 18",
       "nvidia-smi nvlink -e"},
      {"SlowLink",
       [](StandIn& m) { m.links[6][0] = 's'; },
       {"gpu-nvlink"},
       Status::wrong,
       "GPU 6 has a link of 13.3 GB/s, others of its kind 26.6 GB/s",
       "fabricmanager"},
      {"NoBridge",
       [](StandIn& m) { m.links[7] = std::string(18, '-'); },
       {"gpu-nvlink"},
       Status::warning,
       "GPU 7 has 0 active links",
       "Xid 74"},
  };
}

std::vector<Fault> faults_of_gpus() {
  return {
      {"Ecc",
       gpu_with(3, "ecc.errors.uncorrected.volatile.total", "2"),
       {"gpu-ecc"},
       Status::wrong,
       "GPU 3 has 2 uncorrected errors",
       "--gpu-reset"},
      {"Heat",
       gpu_with(1, "clocks_event_reasons.active", "0x0000000000000060"),
       {"gpu-throttling"},
       Status::wrong,
       "GPU 1 is slowed down: temperature (software), temperature (hardware)",
       "cooling"},
      {"HeatAsOldDriversSay",
       [](StandIn& m) {
         m.has_new_columns = false;
         m.gpus[1]["clocks_event_reasons.active"] = "0x0000000000000080";
       },
       {"gpu-throttling"},
       Status::wrong,
       "GPU 1 is slowed down: power brake",
       "power supplies"},
      {"PowerOfAll",
       [](StandIn& m) {
         for (auto& gpu : m.gpus) gpu["power.limit"] = "500.00";
       },
       {"gpu-power"},
       Status::warning,
       "GPU 0 is limited to 500 W of 700 W",
       "nvidia-smi -pl"},
      {"PowerOfOne",
       gpu_with(2, "power.limit", "650.00"),
       {"gpu-alike", "gpu-power"},
       Status::warning,
       "GPU 2 has a power limit of 650 W, others of its kind 700 W",
       "-pl"},
      {"SlowClock",
       gpu_with(5, "clocks.applications.graphics", "1500"),
       {"gpu-alike"},
       Status::warning,
       "GPU 5 has an application clock of 1500 MHz, others of its kind 1980 MHz",
       "nvidia-smi -rgc"},
      {"OtherKind",
       gpu_with(7, "name", "NVIDIA A100-SXM4-80GB"),
       {"gpu-alike"},
       Status::warning,
       "GPU 7 is NVIDIA A100",
       "the slowest sets the pace"},
      {"NoPersistence",
       gpu_with(0, "persistence_mode", "Disabled"),
       {"gpu-persistence"},
       Status::warning,
       "GPU 0 has it off",
       "nvidia-smi -pm 1"},
      {"PcieWidth",
       gpu_with(4, "pcie.link.width.current", "8"),
       {"gpu-pcie"},
       Status::wrong,
       "GPU 4 has 8 of 16 lanes",
       "reseat"},
      {"PcieGeneration",
       gpu_with(4, "pcie.link.gen.current", "3"),
       {"gpu-pcie"},
       Status::wrong,
       "GPU 4 has generation 3 of 5",
       "firmware"},
      {"Mig", gpu_with(6, "mig.mode.current", "Enabled"), {"gpu-mig"}, Status::warning, "GPU 6 has it on", "-mig 0"},
  };
}

std::vector<Fault> faults_of_libraries() {
  return {
      {"MissingLibraryOfAPlugin",
       [](StandIn& m) {
         m.plugin("cpu").found = {"it cannot be loaded: it needs libdnnl.so.2, which is not found", false};
       },
       {"plugins"},
       Status::wrong,
       "device cpu: it cannot be loaded: it needs libdnnl.so.2",
       "LD_LIBRARY_PATH"},
      {"SlowPlugins",
       [](StandIn& m) {
         for (PluginState& plugin : m.plugins) plugin.found = {"it did not answer within 4500 ms", false};
       },
       {"plugins", "cudnn", "nccl", "libfabric", "aws-ofi-nccl", "gpu-driver-version"},
       Status::unknown,
       "device cuda: it did not answer within 4500 ms",
       "consist plugins waits longer"},
      {"NoPlugins",
       [](StandIn& m) { m.plugins.clear(); },
       {"plugins", "libfabric"},
       Status::wrong,
       "no plugin was found",
       "CONSIST_PLUGIN_PATH"},
      {"NoCudnn",
       [](StandIn& m) {
         m.plugin("cuda").found = {"it cannot be loaded: it needs libcudnn.so.9, which is not found", false};
       },
       {"cudnn", "plugins", "gpu-driver-version"},
       Status::wrong,
       "libcudnn.so.9",
       "pip install consist[cuda13]"},
      {"NoNccl",
       [](StandIn& m) { m.plugin("nvlink").found.reason = "NCCL cannot be loaded; install it:\n  libnccl.so.2: cannot open"; },
       {"nccl"},
       Status::wrong,
       "NCCL cannot be loaded",
       "nvidia-nccl-cu13"},
      {"NoLibfabric",
       [](StandIn& m) {
         m.plugin("efa").found.reason =
             "for host memory over libfabric's provider efa these are missing:\n    - provider: libfabric.so.1 is not found";
       },
       {"libfabric"},
       Status::wrong,
       "libfabric.so.1 is not found",
       "EFA package"},
      {"NoOfiPlugin",
       [](StandIn& m) {
         m.plugin("efa").found.reason =
             "for GPUs these are missing:\n    - NCCL plugin: the AWS OFI plugin cannot be loaded (libnccl-net-ofi.so: cannot "
             "open)";
       },
       {"aws-ofi-nccl"},
       Status::wrong,
       "the AWS OFI plugin cannot be loaded",
       "aws-ofi-nccl"},
      {"BuildWithoutEfa",
       [](StandIn& m) { m.plugins.pop_back(); },
       {"libfabric", "aws-ofi-nccl"},
       Status::wrong,
       "this build has no transport efa",
       "libfabric's headers"},
  };
}

constexpr std::int64_t mib = std::int64_t{1} << 20;

std::vector<Fault> faults_of_memory() {
  return {
      {"SmallSharedMemory",
       [](StandIn& m) {
         m.spaces["/dev/shm"] = {64 * mib, 64 * mib, true};
       },
       {"shared-memory"},
       Status::wrong,
       "/dev/shm has 64.0 MiB",
       "--shm-size=8g"},
      {"FullSharedMemory",
       [](StandIn& m) { m.spaces["/dev/shm"].free_bytes = mib; },
       {"shared-memory"},
       Status::warning,
       "1.0 MiB are free",
       "ls -l /dev/shm"},
      {"Memlock",
       [](StandIn& m) { m.limits("65536", "1048576"); },
       {"memlock"},
       Status::wrong,
       "a process may pin 64.0 KiB",
       "ulimit -l unlimited"},
      {"MemlockOfGpus",
       [](StandIn& m) {
         m.limits("65536", "1048576");
         std::filesystem::remove_all(m.root.path() / "sys/class");
       },
       {"memlock"},
       Status::warning,
       "a process may pin 64.0 KiB",
       "memlock=-1"},
  };
}

std::vector<Fault> faults_of_limits() {
  return {
      {"FewFiles",
       [](StandIn& m) { m.limits("unlimited", "256"); },
       {"open-files"},
       Status::wrong,
       "a process may open 256 files; 1032 are enough for 8 ranks",
       "nofile"},
      {"RatherFewFiles",
       [](StandIn& m) { m.limits("unlimited", "1024"); },
       {"open-files"},
       Status::warning,
       "a process may open 1024 files",
       "ulimit -n 65536"},
      {"CpuQuota",
       [](StandIn& m) { m.write("sys/fs/cgroup/cpu.max", "800000 100000\n"); },
       {"cpu-quota"},
       Status::warning,
       "the quota is worth 8 of the 96 processors",
       "docker --cpus"},
      {"CpuQuotaOfTheOlderGroups",
       [](StandIn& m) {
         m.write("proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/pod\n");
         m.write("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "400000\n");
         m.write("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
       },
       {"cpu-quota"},
       Status::warning,
       "the quota is worth 4 of the 96 processors",
       "limits.cpu"},
      {"MemoryLimit",
       [](StandIn& m) {
         m.write("sys/fs/cgroup/job/memory.max", std::to_string(1024 * mib) + "\n");
         m.write("sys/fs/cgroup/job/memory.current", std::to_string(512 * mib) + "\n");
       },
       {"memory"},
       Status::warning,
       "512 MiB are left, the limit is 1.0 GiB",
       "docker --memory"},
      {"Threads",
       with_variable("OMP_NUM_THREADS", "128"),
       {"threads"},
       Status::warning,
       "OMP_NUM_THREADS=128 beside 96 processors",
       "unset it"},
      {"NoSpace",
       [](StandIn& m) { m.spaces["/archives"].free_bytes = 10 * mib; },
       {"archive-space"},
       Status::wrong,
       "10.0 MiB are free in \"/archives\"",
       "12 to 16 bytes a parameter"},
      {"NoRights",
       [](StandIn& m) { m.spaces["/archives"].writable = false; },
       {"archive-space"},
       Status::wrong,
       "may not be written",
       "--archive"},
      {"NoFolder", [](StandIn& m) { m.spaces.erase("/archives"); }, {"archive-space"}, Status::wrong, "is no folder", "mkdir -p"},
  };
}

std::vector<Fault> faults_of_networks() {
  return {
      {"OwnNameDoesNotResolve",
       [](StandIn& m) { m.unresolved = "node07"; },
       {"host-name"},
       Status::warning,
       "node07: Name or service not known",
       "/etc/hosts"},
      {"NoLoopback",
       [](StandIn& m) { m.loopback = "cannot connect to 127.0.0.1"; },
       {"loopback"},
       Status::wrong,
       "127.0.0.1",
       "ip link set lo up"},
      {"NoToken",
       [](StandIn& m) {
         set_job(m, "0");
         m.environment.erase("CONSIST_JOB_TOKEN");
       },
       {"job", "master-port"},
       Status::wrong,
       "no token",
       "docs/jobs.md"},
      {"MasterDoesNotResolve",
       [](StandIn& m) {
         set_job(m, "3");
         m.unresolved = "node01";
       },
       {"master-address"},
       Status::wrong,
       "node01: Name or service not known",
       "MASTER_ADDR"},
      {"MasterAloneDoesNotResolve",
       [](StandIn& m) {
         m.environment["MASTER_ADDR"] = "node01";
         m.unresolved = "node01";
       },
       {"master-address"},
       Status::wrong,
       "node01: Name or service not known",
       "MASTER_ADDR"},
      {"PortTaken",
       [](StandIn& m) {
         set_job(m, "0");
         m.taken_port = 29501;
       },
       {"master-port"},
       Status::wrong,
       "Address already in use",
       "CONSIST_JOB_PORT"},
  };
}

std::vector<Fault> faults_of_hosts() {
  return {
      {"PortDown",
       [](StandIn& m) { m.add_port("mlx5_0", "1: DOWN", "10 Gb/sec (4X SDR)", "InfiniBand"); },
       {"rdma-ports"},
       Status::wrong,
       "mlx5_0, port 1 is DOWN",
       "cable"},
      {"UnusedEthernetPort",
       [](StandIn& m) { m.add_port("mlx5_9", "1: DOWN", "10 Gb/sec (1X QDR)", "Ethernet"); },
       {"rdma-ports"},
       Status::warning,
       "mlx5_9, port 1 is DOWN",
       "NCCL_IB_HCA"},
      {"SlowPort",
       [](StandIn& m) { m.add_port("rdmap2s6", "4: ACTIVE", "25 Gb/sec (1X EDR)", "Unspecified"); },
       {"rdma-rate"},
       Status::warning,
       "rdmap2s6, port 1 has 25 Gb/sec",
       "cable"},
      {"Clock", [](StandIn& m) { m.synchronized = false; }, {"clock"}, Status::warning, "not synchronized", "chronyd"},
  };
}

class Doctor : public ::testing::TestWithParam<Fault> {};

TEST_P(Doctor, FindsTheFaultAndNothingElse) {
  StandIn machine;
  GetParam().make(machine);
  const Report report = machine.examined();
  EXPECT_EQ(complaints(report), GetParam().found_by);
  bool found = false;  // by one of the checks: others may see what follows from it
  for (const std::string& name : GetParam().found_by) {
    const Finding& finding = finding_of(report, name);
    found = found || (finding.status == GetParam().status && finding.found.find(GetParam().found) != std::string::npos &&
                      finding.remedy.find(GetParam().remedy) != std::string::npos);
  }
  EXPECT_TRUE(found) << report_text(report, false);
  EXPECT_EQ(report.exit_status(), GetParam().status == Status::wrong ? 1 : 0);
}

std::string name_of_fault(const ::testing::TestParamInfo<Fault>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Drivers, Doctor, ::testing::ValuesIn(faults_of_drivers()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(NvLink, Doctor, ::testing::ValuesIn(faults_of_nvlink()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Gpus, Doctor, ::testing::ValuesIn(faults_of_gpus()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Libraries, Doctor, ::testing::ValuesIn(faults_of_libraries()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Memory, Doctor, ::testing::ValuesIn(faults_of_memory()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Limits, Doctor, ::testing::ValuesIn(faults_of_limits()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Hosts, Doctor, ::testing::ValuesIn(faults_of_hosts()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Networks, Doctor, ::testing::ValuesIn(faults_of_networks()), name_of_fault);

}  // namespace
}  // namespace consist::doctor
