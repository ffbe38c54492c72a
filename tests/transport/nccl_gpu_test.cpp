// NCCL's communicators on GPUs: what conformance does not see. Ranks are threads with a GPU each; skipped with fewer than two
// GPUs.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "consist/error.h"
#include "plugins/transports/nccl/connect.h"
#include "tests/child_process.h"
#include "tests/conformance/transport/memory.h"
#include "tests/job/in_process.h"

namespace consist::nccl {
namespace {

using namespace std::chrono_literals;
using testing::Block;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::Memory;

struct Rank {
  JoinedJob& job;
  Communicator& group;
  Memory& memory;
  cudaStream_t stream() const { return static_cast<cudaStream_t>(memory.queue()); }
};

void check(cudaError_t result) {
  if (result != cudaSuccess) throw SystemError(std::string("CUDA: ") + cudaGetErrorString(result));
}

using Graph = std::unique_ptr<CUgraphExec_st, cudaError_t (*)(cudaGraphExec_t)>;

class NcclGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason = unavailable("");
    if (!reason.empty()) GTEST_SKIP() << reason;
    if (testing::ranks_with_memory("cuda", 2, reason) < 2) GTEST_SKIP() << "two ranks need two GPUs";
  }

  static ConnectOptions by_kernels() { return {.path = Path::nvlink, .transport = "nvlink", .library = {}, .interface = {}}; }
  static ConnectOptions by_copy_engines() {
    ConnectOptions options = by_kernels();
    options.copy_engines = CopyEngines::all;
    options.staging = 300'000;
    return options;
  }

  /// Two ranks over nvlink.
  static std::vector<std::exception_ptr> run(std::chrono::milliseconds timeout, const std::function<void(Rank&)>& body,
                                             const ConnectOptions& options = by_kernels()) {
    return testing::run_ranks(testing::make_addresses(2, timeout), [&](JoinedJob& job) {
      const auto memory = testing::make_memory("cuda", job.rank());
      const GroupRequest group{"data.0", {0, 1}, job.rank(), "cuda"};
      const auto communicator = connect(job, group, options);
      Rank rank{job, *communicator, *memory};
      body(rank);
    });
  }

  /// all_reduce of `count` floats at `data`, as a graph.
  static Graph capture(Rank& rank, void* data, std::int64_t count) {
    return capture(rank, [&] { rank.group.all_reduce(data, count, DType::f32, rank.stream()); });
  }
  static Graph capture(Rank& rank, const std::function<void()>& enqueue) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(rank.stream(), cudaStreamCaptureModeThreadLocal));
    enqueue();
    check(cudaStreamEndCapture(rank.stream(), &graph));
    check(cudaGraphInstantiate(&executable, graph, 0));
    check(cudaGraphDestroy(graph));
    return Graph(executable, &cudaGraphExecDestroy);
  }

  /// Replays a graph twice; from the second replay member 1 stays away until the job has failed.
  static void replay_without_member_1(Rank& rank, const Graph& graph) {
    check(cudaGraphLaunch(graph.get(), rank.stream()));
    rank.memory.finish(rank.group);
    if (rank.job.rank() == 1) {
      while (!rank.job.failed()) std::this_thread::sleep_for(10ms);
      rank.job.check();
    }
    check(cudaGraphLaunch(graph.get(), rank.stream()));
    rank.memory.finish(rank.group);
  }
};

TEST_F(NcclGpu, TheProvenPathNamesPeerToPeerAndTheVersion) {
  for (const auto& error : run(30s, [](Rank& rank) {
         EXPECT_THAT(rank.group.verified_path(), MatchesRegex("P2P/.* over .*NVLink.* \\(NCCL 2\\.[0-9]+\\.[0-9]+\\)"));
         rank.job.leave(30s);
       })) {
    EXPECT_EQ(testing::text_of(error), "");
  }
}

TEST_F(NcclGpu, CapturedCollectivesGiveTheSameSumsAtEveryReplay) {
  for (const auto& error : run(30s, [](Rank& rank) {
         std::vector<float> host(10'000, static_cast<float>(rank.group.rank() + 1));
         const Block data(rank.memory, host.size() * sizeof(float));
         const Graph graph = capture(rank, data.data(), 10'000);
         for (int replay = 0; replay < 3; ++replay) {
           rank.memory.upload(data.data(), host.data(), host.size() * sizeof(float));
           check(cudaGraphLaunch(graph.get(), rank.stream()));
           rank.memory.finish(rank.group);
           std::vector<float> sums(host.size());
           rank.memory.download(sums.data(), data.data(), sums.size() * sizeof(float));
           EXPECT_EQ(sums, std::vector<float>(host.size(), 3.0F)) << "replay " << replay;
         }
         rank.job.leave(30s);
       })) {
    EXPECT_EQ(testing::text_of(error), "");
  }
}

/// A rank's part of a tensor, and the whole.
struct Parted {
  Parted(Memory& memory, std::int64_t count)
      : count(count),
        part(memory, static_cast<std::size_t>(count) * sizeof(float)),
        whole(memory, 2 * static_cast<std::size_t>(count) * sizeof(float)) {}
  std::int64_t count;
  Block part, whole;
};

// Tensors of several rounds, of less than one, and of odd sizes. What is gathered is scattered again, so that each part comes
// back twice as large.
TEST_F(NcclGpu, CopyEnginesMoveGroupsOfTensorsInRoundsAtEveryReplay) {
  const auto body = [](Rank& rank) {
    EXPECT_THAT(rank.group.verified_path(), HasSubstr("copy engines"));
    const auto own = static_cast<std::size_t>(rank.group.rank());
    std::vector<std::unique_ptr<Parted>> tensors;
    for (const std::int64_t count : {100'003, 7, 400'001, 65'536})
      tensors.push_back(std::make_unique<Parted>(rank.memory, count));
    const Graph graph = capture(rank, [&] {
      rank.group.group_begin(rank.stream());
      for (const auto& t : tensors) rank.group.all_gather(t->part.data(), t->whole.data(), t->count, DType::f32, rank.stream());
      rank.group.group_end(rank.stream());
      rank.group.group_begin(rank.stream());
      for (const auto& t : tensors)
        rank.group.reduce_scatter(t->whole.data(), t->part.data(), t->count, DType::f32, rank.stream());
      rank.group.group_end(rank.stream());
    });
    for (int replay = 0; replay < 4; ++replay) {
      const auto value = [&](std::size_t member, std::size_t i) {
        return static_cast<float>((i * 7 + member * 1000 + static_cast<std::size_t>(replay)) % 4096);
      };
      for (const auto& t : tensors) {
        std::vector<float> part(static_cast<std::size_t>(t->count));
        for (std::size_t i = 0; i < part.size(); ++i) part[i] = value(own, i);
        rank.memory.upload(t->part.data(), part.data(), part.size() * sizeof(float));
      }
      check(cudaGraphLaunch(graph.get(), rank.stream()));
      rank.memory.finish(rank.group);
      for (const auto& t : tensors) {
        const auto count = static_cast<std::size_t>(t->count);
        std::vector<float> part(count), whole(2 * count), expected_part, expected_whole;
        rank.memory.download(part.data(), t->part.data(), count * sizeof(float));
        rank.memory.download(whole.data(), t->whole.data(), 2 * count * sizeof(float));
        for (std::size_t i = 0; i < count; ++i) expected_part.push_back(2 * value(own, i));
        for (std::size_t i = 0; i < 2 * count; ++i) expected_whole.push_back(value(i / count, i % count));
        EXPECT_TRUE(part == expected_part) << count << " elements, replay " << replay;
        EXPECT_TRUE(whole == expected_whole) << count << " elements, replay " << replay;
      }
    }
    rank.job.leave(30s);
  };
  for (const auto& error : run(30s, body, by_copy_engines())) EXPECT_EQ(testing::text_of(error), "");
}

TEST_F(NcclGpu, NobodyWaitsForCopiesOfAMemberThatIsStuck) {
  const auto start = std::chrono::steady_clock::now();
  const auto body = [](Rank& rank) {
    rank.job.set_progress([number = rank.job.rank()] {
      return number == 1 ? "step 7, instruction 3: linear" : "step 7, instruction 4: all_gather";
    });
    const Parted tensor(rank.memory, 400'001);
    const Graph graph = capture(
        rank, [&] { rank.group.all_gather(tensor.part.data(), tensor.whole.data(), tensor.count, DType::f32, rank.stream()); });
    replay_without_member_1(rank, graph);
  };
  for (const auto& error : run(5s, body, by_copy_engines()))
    EXPECT_THAT(testing::text_of(error), HasSubstr("step 7, instruction 3: linear"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST_F(NcclGpu, AStuckMemberOfAReplayedGraphIsNamed) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(5s, [](Rank& rank) {
    rank.job.set_progress([number = rank.job.rank()] {
      return number == 1 ? "step 7, instruction 3: linear" : "step 7, instruction 4: all_reduce";
    });
    const Block data(rank.memory, 40'000);
    const Graph graph = capture(rank, data.data(), 10'000);
    replay_without_member_1(rank, graph);
  });
  for (const auto& error : errors) EXPECT_THAT(testing::text_of(error), HasSubstr("step 7, instruction 3: linear"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST_F(NcclGpu, AGroupHasOneGpuForEachMember) {
  const auto errors = testing::run_ranks(testing::make_addresses(2), [&](JoinedJob& job) {
    const auto memory = testing::make_memory("cuda", 0);
    connect(job, {"data.0", {0, 1}, job.rank(), "cuda"},
            {.path = Path::nvlink, .transport = "nvlink", .library = {}, .interface = {}});
  });
  EXPECT_THAT(testing::text_of(errors[0]), HasSubstr("use the same GPU"));
}

/// Run by the test below in a process whose environment hides the path.
TEST_F(NcclGpu, DISABLED_ConnectsAndSaysWhy) {
  for (const auto& error : run(30s, [](Rank& rank) { rank.job.leave(30s); }))
    std::printf("rank says: %s\n", testing::text_of(error).c_str());
}

TEST_F(NcclGpu, AHiddenPathIsAnErrorThatNamesWhatWasFound) {
  const auto child = test::run_child({"env", "NCCL_P2P_DISABLE=1", "/proc/" + std::to_string(getpid()) + "/exe",
                                      "--gtest_also_run_disabled_tests", "--gtest_filter=NcclGpu.DISABLED_ConnectsAndSaysWhy"});
  EXPECT_THAT(child.output, HasSubstr("rank says: transport nvlink: asked for nvlink, got SHM/")) << child.output;
  EXPECT_THAT(child.output, HasSubstr("between ranks 0 and 1"));
}

/// Run by the test below in a process of its own, since NCCL's settings are those of the process.
TEST_F(NcclGpu, DISABLED_ConnectsByShm) {
  ConnectOptions options;
  options.path = Path::shm;
  options.transport = "shm";
  options.within = WithinHost::shm;
  const auto body = [](Rank& rank) {
    const Block data(rank.memory, 40'000);
    rank.group.all_reduce(data.data(), 10'000, DType::f32, rank.stream());
    rank.memory.finish(rank.group);
    std::printf("path: %s\n", rank.group.verified_path().c_str());
    rank.job.leave(30s);
  };
  for (const auto& error : run(30s, body, options)) std::printf("rank says: <%s>\n", testing::text_of(error).c_str());
}

TEST_F(NcclGpu, ShmGoesWithoutNvlink) {
  const auto child = test::run_child({"/proc/" + std::to_string(getpid()) + "/exe", "--gtest_also_run_disabled_tests",
                                      "--gtest_filter=NcclGpu.DISABLED_ConnectsByShm"});
  EXPECT_THAT(child.output, HasSubstr("rank says: <>")) << child.output;
  EXPECT_THAT(child.output, ::testing::ContainsRegex("path: .*(over PCIe|through host memory)")) << child.output;
}

}  // namespace
}  // namespace consist::nccl
