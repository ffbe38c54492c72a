// Communicators of NCCL when something goes wrong, without a GPU: fake_nvidia.cpp stands in for the driver and for NCCL.
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "consist/error.h"
#include "plugins/transports/nccl/connect.h"
#include "tests/job/in_process.h"
#include "tests/nccl/fake_nvidia.h"

namespace consist::nccl {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::make_addresses;
using testing::text_of;

/// A rank's thread with a communicator and a stream.
struct Rank {
  JoinedJob& job;
  Communicator& group;
  CUstream stream;

  void all_reduce() { group.all_reduce(nullptr, 1000, DType::f32, stream); }
  /// As a device waits for a step: until the work is done, then asks what went wrong.
  void finish() {
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) std::this_thread::sleep_for(1ms);
    group.check();
  }
};

class NcclFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    fake::switches() = {};
    fake::remote_error() = false;
    const std::string reason = unavailable(CONSIST_FAKE_NVIDIA);
    ASSERT_EQ(reason, "");
  }

  static ConnectOptions nvlink() {
    return {.path = Path::nvlink,
            .transport = "nvlink",
            .library = CONSIST_FAKE_NVIDIA,
            .interface = {},
            .network = {},
            .network_plugin = {}};
  }
  static ConnectOptions efa() {
    ConnectOptions options = nvlink();
    options.path = Path::efa;
    options.transport = "efa";
    options.network = "Libfabric";
    options.network_plugin = "/opt/libnccl-net-ofi.so";
    return options;
  }

  static std::vector<std::exception_ptr> run(int ranks, std::chrono::milliseconds timeout, const std::function<void(Rank&)>& body,
                                             const ConnectOptions& options = nvlink()) {
    return testing::run_ranks(make_addresses(ranks, timeout), [&](JoinedJob& job) {
      cuCtxSetCurrent(reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(job.rank() + 1)));
      CUstream stream = nullptr;
      cuStreamCreate(&stream, 0);
      const std::unique_ptr<CUstream_st, CUresult (*)(CUstream)> owner(stream, cuStreamDestroy);
      GroupRequest group{"data.0", {}, job.rank(), "cuda"};
      for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
      const auto communicator = connect(job, group, options);
      Rank rank{job, *communicator, stream};
      body(rank);
    });
  }

  static void expect_all(const std::vector<std::exception_ptr>& errors, const std::string& text) {
    for (std::size_t rank = 0; rank < errors.size(); ++rank)
      EXPECT_THAT(text_of(errors[rank]), HasSubstr(text)) << "rank " << rank;
  }
};

TEST_F(NcclFailure, NothingGoesWrong) {
  const int destructions = fake::destructions(), aborts = fake::aborts();
  for (const auto& error : run(3, 20s, [](Rank& rank) {
         EXPECT_EQ(rank.group.verified_path(), "P2P/CUMEM over NVLink (by NCCL's topology; NVML does not tell) (NCCL 2.28.9)");
         for (int i = 0; i < 100; ++i) rank.all_reduce();
         rank.finish();
         rank.job.leave(20s);
       })) {
    EXPECT_EQ(text_of(error), "");
  }
  EXPECT_EQ(fake::destructions() - destructions, 6);  // one to meet, one to work with
  EXPECT_EQ(fake::aborts(), aborts);
}

TEST_F(NcclFailure, AProcessThatTheDriverKeepsEndsAfterTheTimeout) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  fake::switches().abort_never_returns = true;
  const auto stuck = [] {
    run(2, 1s, [](Rank& rank) {
      if (rank.job.rank() == 0) rank.all_reduce();
      std::this_thread::sleep_for(30s);  // in the driver
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(EXIT_FAILURE), "");  // why is in the log
}

TEST_F(NcclFailure, AGroupOfOneCopiesAndNeedsNoConnection) {
  for (const auto& error : run(1, 20s, [](Rank& rank) {
         EXPECT_EQ(rank.group.verified_path(), "none (one member)");
         const std::vector<float> data{1, 2, 3};
         std::vector<float> gathered(3), scattered(3);
         rank.group.all_gather(data.data(), gathered.data(), 3, DType::f32, rank.stream);
         rank.group.reduce_scatter(data.data(), scattered.data(), 3, DType::f32, rank.stream);
         EXPECT_EQ(gathered, data);
         EXPECT_EQ(scattered, data);
         EXPECT_THROW(rank.group.send(data.data(), 3, DType::f32, 0, rank.stream), ProgramError);
         rank.job.leave(20s);
       })) {
    EXPECT_EQ(text_of(error), "");
  }
}

TEST_F(NcclFailure, AnotherPathIsAnErrorOnAllMembers) {
  fake::switches().path = "SHM/direct/direct";
  const auto errors = run(3, 20s, [](Rank& /*rank*/) { ADD_FAILURE() << "it connected"; });
  // Each member sees its own connections, but all judge the same.
  expect_all(errors, "transport nvlink: asked for nvlink, got SHM/direct/direct between ranks 0 and 1");
}

TEST_F(NcclFailure, APathOfPointToPointIsVerifiedToo) {
  fake::switches().send_path = "NET/Socket/0";
  expect_all(run(2, 20s, [](Rank& /*rank*/) {}), "asked for nvlink, got NET/Socket/0 between ranks 0 and 1");
}

TEST_F(NcclFailure, CopyEnginesNeedMemoryThatRanksCanOpenToEachOther) {
  ConnectOptions options = nvlink();
  options.copy_engines = CopyEngines::all;
  const auto errors = run(
      2, 20s, [](Rank& /*rank*/) { ADD_FAILURE() << "it connected"; }, options);
  expect_all(errors, "cuIpcGetMemHandle");
  expect_all(errors, "--nvlink.copy-engines=none");
}

TEST_F(NcclFailure, WithoutSuchMemoryNcclDoesAllAndThePathSaysSo) {
  ConnectOptions options = nvlink();
  options.copy_engines = CopyEngines::automatic;
  for (const auto& error : run(
           2, 20s,
           [](Rank& rank) {
             EXPECT_THAT(rank.group.verified_path(), ::testing::HasSubstr("without copy engines (rank 0: CUDA: "));
             EXPECT_THAT(rank.group.verified_path(), ::testing::HasSubstr("cuIpcGetMemHandle"));
             rank.job.leave(20s);
           },
           options)) {
    EXPECT_EQ(text_of(error), "");
  }
}

TEST_F(NcclFailure, ASilentLogProvesNothing) {
  fake::switches().silent = true;
  expect_all(run(2, 20s, [](Rank& /*rank*/) {}), "NCCL named no connection of rank 0");
}

TEST_F(NcclFailure, AMemberThatDoesNotJoinIsNamedAfterTheTimeout) {
  fake::switches().member_1_never_joins = true;
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(2, 1s, [](Rank& /*rank*/) {});
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), HasSubstr("ncclCommInitRankConfig of group 'data.0' did not finish within 1 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST_F(NcclFailure, AMemberThatNeverComesIsNamed) {
  const auto errors = testing::run_ranks(make_addresses(2, 1s), [](JoinedJob& job) {
    cuCtxSetCurrent(reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(job.rank() + 1)));
    if (job.rank() == 1) {
      while (!job.failed()) std::this_thread::sleep_for(5ms);
      return;
    }
    connect(job, {"data.0", {0, 1}, 0, "cuda"}, nvlink());
  });
  EXPECT_THAT(text_of(errors[0]), HasSubstr("rank 1"));
  EXPECT_THAT(text_of(errors[0]), HasSubstr("rank 1 has not come to 'group/data.0/"));
}

TEST_F(NcclFailure, AStuckMemberIsNamedAndTheWorkAborted) {
  const int aborts = fake::aborts();
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(3, 1s, [](Rank& rank) {
    rank.job.set_progress([number = rank.job.rank()] {
      return number == 2 ? "step 1, instruction 3: linear" : "step 1, instruction 4: all_reduce";
    });
    rank.all_reduce();
    rank.finish();
    if (rank.job.rank() == 2) {
      while (!rank.job.failed()) std::this_thread::sleep_for(5ms);
      rank.job.check();
    }
    rank.all_reduce();
    rank.finish();
  });
  expect_all(errors, "step 1, instruction 3: linear");
  EXPECT_GE(fake::aborts() - aborts, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST_F(NcclFailure, AFailingMemberEndsAllWaits) {
  const auto errors = run(3, 20s, [](Rank& rank) {
    for (int i = 0;; ++i) {
      if (rank.job.rank() == 1 && i == 3) throw DataError("broken input");
      rank.all_reduce();
      rank.finish();
    }
  });
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_THAT(text_of(errors[rank]), HasSubstr("rank 1 on host"));
    EXPECT_THAT(text_of(errors[rank]), HasSubstr("broken input"));
  }
}

TEST_F(NcclFailure, AnErrorOfNcclIsThrownByCheckAndByLaterCalls) {
  const auto errors = run(2, 20s, [](Rank& rank) {
    fake::remote_error() = true;
    while (true) {
      rank.group.check();
      std::this_thread::sleep_for(5ms);
    }
  });
  EXPECT_THAT(text_of(errors[0]) + text_of(errors[1]), HasSubstr("remote process exited"));
  fake::remote_error() = false;
  std::atomic<int> thrown{0};
  run(2, 20s, [&](Rank& rank) {
    fake::remote_error() = true;
    std::this_thread::sleep_for(300ms);
    for (int i = 0; i < 2; ++i) {
      try {
        while (true) {
          rank.all_reduce();
          std::this_thread::sleep_for(5ms);
        }
      } catch (const Error&) {
        ++thrown;
      }
    }
  });
  EXPECT_EQ(thrown, 4);
}

TEST_F(NcclFailure, AConnectionOfAnotherPathDuringTheRunIsAnError) {
  const auto errors = run(2, 20s, [](Rank& rank) {
    if (rank.job.rank() == 1) fake::write_log(1, "Channel 00/1 : 1[1] -> 0[0] via SHM/direct/direct");
    while (true) {
      rank.group.check();
      std::this_thread::sleep_for(5ms);
    }
  });
  expect_all(errors, "opened a connection through SHM/direct/direct during the run");
}

TEST_F(NcclFailure, TwoMembersOnOneGpuAreRefused) {
  const auto errors = testing::run_ranks(make_addresses(2, 5s), [](JoinedJob& job) {
    cuCtxSetCurrent(reinterpret_cast<CUcontext>(std::intptr_t{1}));
    connect(job, {"data.0", {0, 1}, job.rank(), "cuda"},
            {.path = Path::nvlink, .transport = "nvlink", .library = CONSIST_FAKE_NVIDIA, .interface = {}});
  });
  expect_all(errors, "rank 0 and rank 1 use the same GPU, 0000:00:00.0");
}

/// In processes of their own, since NCCL's settings are those of the process.
[[noreturn]] void connect_with(ConnectOptions options) {
  options.library = CONSIST_FAKE_NVIDIA;
  for (const char* name : {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA"}) unsetenv(name);
  const auto errors = testing::run_ranks(make_addresses(2, 20s), [&](JoinedJob& job) {
    cuCtxSetCurrent(reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(job.rank() + 1)));
    const auto communicator = connect(job, {"data.0", {0, 1}, job.rank(), "cuda"}, options);
    std::fprintf(stderr, "path: %s; p2p off %s; network %s\n", communicator->verified_path().c_str(),
                 getenv("NCCL_P2P_DISABLE") == nullptr ? "unset" : getenv("NCCL_P2P_DISABLE"), fake::last_network().c_str());
    job.leave(20s);
  });
  for (const auto& error : errors) std::fprintf(stderr, "error: %s\n", text_of(error).c_str());
  std::_Exit(0);
}

ConnectOptions gpu_options(Path path, WithinHost within) {
  ConnectOptions options;
  options.path = path;
  options.transport = std::string(name_of(path));
  options.within = within;
  options.gpudirect = false;
  return options;
}

TEST_F(NcclFailure, ShmTurnsPeerCopiesOffWhereNvlinkIsNotRuledOut) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  fake::switches().path = fake::switches().send_path = "SHM/direct/direct";
  EXPECT_EXIT(connect_with(gpu_options(Path::shm, WithinHost::shm)), ::testing::ExitedWithCode(0),
              "path: SHM/direct/direct through host memory \\(NCCL 2.28.9\\); p2p off 1; network Socket");
  fake::switches().path = "P2P/CUMEM";
  EXPECT_EXIT(connect_with(gpu_options(Path::shm, WithinHost::pcie)), ::testing::ExitedWithCode(0),
              "error: transport shm: asked for shm, got SHM/direct/direct between ranks 0 and 1");
}

TEST_F(NcclFailure, IbIsNcclsOwnNetworkAndProvenByTheLog) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  fake::switches().path = fake::switches().send_path = "NET/IB/0/GDRDMA";
  EXPECT_EXIT(connect_with(gpu_options(Path::ib, WithinHost::network)), ::testing::ExitedWithCode(0),
              "path: NET/IB with GPUDirect; devices that NCCL did not name \\(NCCL 2.28.9\\); p2p off 1; network IB");
  fake::switches().path = "NET/Socket/0";
  EXPECT_EXIT(connect_with(gpu_options(Path::ib, WithinHost::automatic)), ::testing::ExitedWithCode(0),
              "error: transport ib: asked for ib, got NET/Socket/0 between ranks 0 and 1");
}

// Last, since the log of a process with groups of different paths is not watched during the run.
TEST_F(NcclFailure, EfaIsTheNetworkOfThePluginAndProvenByTheLog) {
  setenv("NCCL_NET_PLUGIN", "/opt/libnccl-net-ofi.so", 1);  // other tests of this process may have started NCCL
  fake::switches().path = fake::switches().send_path = "NET/Libfabric/0/GDRDMA";
  const auto verified = [](Rank& rank) {
    EXPECT_EQ(rank.group.verified_path(), "NET/Libfabric with GPUDirect; provider efa, aws-ofi-nccl 1.16.2 (NCCL 2.28.9)");
    EXPECT_EQ(fake::last_network(), "Libfabric");
    rank.all_reduce();
    rank.finish();
    rank.job.leave(20s);
  };
  expect_all(run(
                 2, 20s, [](Rank& /*rank*/) {}, efa()),
             "the AWS OFI plugin named no provider of libfabric on rank 0");
  fake::write_log(0, "NET/OFI Initializing aws-ofi-nccl 1.16.2");
  fake::write_log(0, "NET/OFI Selected provider is efa, fabric is efa (found 1 nics)");
  for (const auto& error : run(2, 20s, verified, efa())) EXPECT_EQ(text_of(error), "");
  fake::switches().path = "NET/Libfabric/0";
  expect_all(run(
                 2, 20s, [](Rank& /*rank*/) {}, efa()),
             "asked for efa, got NET/Libfabric without GPUDirect between ranks 0 and 1");
  fake::switches().path = "NET/Socket/0";
  expect_all(run(
                 2, 20s, [](Rank& /*rank*/) {}, efa()),
             "asked for efa, got NET/Socket/0 between ranks 0 and 1");
}

}  // namespace
}  // namespace consist::nccl
