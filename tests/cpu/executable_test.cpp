// The CPU device's executable: order within and between queues, failures, positions, times, and no allocation in a step.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "consist/error.h"
#include "tests/allocations.h"
#include "tests/cpu/kernel_run.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::ThrowsMessage;

class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(std::function<void()> function) : function_(std::move(function)) {}
  void launch(std::span<const Buffer>, std::span<const Buffer>, void*, NativeQueue) override { function_(); }

 private:
  std::function<void()> function_;
};

/// Launches that call functions.
class Steps {
 public:
  void add(Queue queue, std::vector<std::int32_t> waits, std::function<void()> function) {
    kernels_.push_back(std::make_unique<FunctionKernel>(std::move(function)));
    Launch launch;
    launch.kernel = kernels_.back().get();
    launch.queue = queue;
    launch.waits = std::move(waits);
    launches_.push_back(std::move(launch));
  }
  std::unique_ptr<Executable> prepare(bool profile = false) { return device_->prepare(launches_, profile); }

 private:
  std::shared_ptr<Device> device_ = test::cpu_device({{"threads", "2"}});
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<Launch> launches_;
};

void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(CpuExecutable, QueuesKeepTheirOrder) {
  Steps steps;
  std::vector<int> compute, copies;
  for (int i = 0; i < 50; ++i) steps.add(Queue::compute(), {}, [&, i] { compute.push_back(i); });
  for (int i = 0; i < 50; ++i) steps.add(Queue::host_to_device(), {}, [&, i] { copies.push_back(i); });
  const auto executable = steps.prepare();
  for (int step = 0; step < 3; ++step) {
    compute.clear();
    copies.clear();
    executable->run();
    executable->wait();
    ASSERT_EQ(compute.size(), 50U);
    EXPECT_TRUE(std::is_sorted(compute.begin(), compute.end()));
    EXPECT_EQ(copies, compute);
  }
}

TEST(CpuExecutable, ALaunchWaitsForThoseOfOtherQueues) {
  Steps steps;
  std::atomic<int> value{0};
  std::vector<int> seen;
  steps.add(Queue::communication(0), {}, [&] {
    pause(20);
    value = 1;
  });
  steps.add(Queue::compute(), {0}, [&] { seen.push_back(value); });
  steps.add(Queue::communication(0), {1}, [&] { value = 2; });
  steps.add(Queue::device_to_host(), {2}, [&] { seen.push_back(value); });
  const auto executable = steps.prepare();
  for (int step = 0; step < 5; ++step) {  // a wait is for this step's launch, not for that of the last step
    value = 0;
    seen.clear();
    executable->run();
    executable->wait();
    EXPECT_THAT(seen, ElementsAre(1, 2));
  }
}

TEST(CpuExecutable, QueuesRunSideBySide) {
  Steps steps;
  std::atomic<bool> compute_started{false}, met{false};
  const auto meet = [](std::atomic<bool>& other) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!other && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return other.load();
  };
  std::atomic<bool> communication_started{false};
  steps.add(Queue::compute(), {}, [&] {
    compute_started = true;
    met = meet(communication_started);
  });
  steps.add(Queue::communication(0), {}, [&] {
    communication_started = true;
    meet(compute_started);
  });
  const auto executable = steps.prepare();
  executable->run();
  executable->wait();
  EXPECT_TRUE(met);
}

// The order proof of tests/interpreter takes this for granted: nothing of a step is under way when the next one begins.
TEST(CpuExecutable, AStepIsOverOnAllQueuesBeforeTheNextBegins) {
  Steps steps;
  std::atomic<int> under_way{0}, early{0};
  for (const Queue queue : {Queue::compute(), Queue::communication(0), Queue::communication(1), Queue::communication(0, Lane::to_next),
                            Queue::host_to_device(), Queue::device_to_host()}) {
    steps.add(queue, {}, [&] { ++under_way; });
    steps.add(queue, {}, [&, queue] {
      pause(static_cast<int>(queue.kind()) % 3);
      --under_way;
    });
  }
  const auto executable = steps.prepare();
  for (int step = 0; step < 20; ++step) {
    early += under_way != 0;
    executable->run();
    executable->wait();
    early += under_way != 0;
  }
  EXPECT_EQ(early, 0);
}

TEST(CpuExecutable, AFailureEndsTheStepAndTheNextOneRuns) {
  Steps steps;
  bool fail = true;
  std::atomic<int> after{0}, others{0};
  steps.add(Queue::communication(0), {}, [&] {
    if (fail) throw PeerError(3, "rank 3 is gone");
  });
  steps.add(Queue::communication(0), {}, [&] { ++after; });
  steps.add(Queue::compute(), {0}, [&] { ++others; });
  const auto executable = steps.prepare();
  executable->run();
  try {
    executable->wait();
    ADD_FAILURE() << "the failure is lost";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 3);
    EXPECT_STREQ(error.what(), "rank 3 is gone");
  }
  EXPECT_EQ(after, 0);
  EXPECT_EQ(others, 0) << "what waits for a launch that failed must not run";
  fail = false;
  executable->run();
  executable->wait();
  EXPECT_EQ(after, 1);
  EXPECT_EQ(others, 1);
}

TEST(CpuExecutable, TheFirstOfTwoFailuresIsTold) {
  Steps steps;
  steps.add(Queue::compute(), {}, [] { throw SystemError("first"); });
  steps.add(Queue::communication(0), {}, [] {
    pause(30);
    throw SystemError("second");
  });
  const auto executable = steps.prepare();
  executable->run();
  EXPECT_THAT([&] { executable->wait(); }, ThrowsMessage<SystemError>(::testing::StartsWith("first")));
}

TEST(CpuExecutable, PositionNamesTheLaunchThatRuns) {
  Steps steps;
  std::atomic<bool> reached{false}, go_on{false};
  steps.add(Queue::compute(), {}, [] {});
  steps.add(Queue::compute(), {}, [&] {
    reached = true;
    while (!go_on) std::this_thread::yield();
  });
  const auto executable = steps.prepare();
  EXPECT_EQ(executable->position(), -1);
  executable->run();
  while (!reached) std::this_thread::yield();
  EXPECT_EQ(executable->position(), 1);
  go_on = true;
  executable->wait();
  EXPECT_EQ(executable->position(), -1) << "a rank that is not in a step would seem to be ahead of those that are";
}

TEST(CpuExecutable, TimesOfLaunches) {
  Steps steps;
  steps.add(Queue::compute(), {}, [] { pause(30); });
  steps.add(Queue::compute(), {}, [] {});
  EXPECT_TRUE(steps.prepare(false)->launch_times().empty());
  const auto executable = steps.prepare(true);
  executable->run();
  executable->wait();
  const std::vector<LaunchTime> times = executable->launch_times();
  ASSERT_EQ(times.size(), 2U);
  EXPECT_GE(times[0].begin, 0);
  EXPECT_GE(times[0].seconds(), 0.03);
  EXPECT_GE(times[1].begin, times[0].end);
  EXPECT_LT(times[1].seconds(), 0.03);
}

TEST(CpuExecutable, AStepAllocatesNothing) {
  Steps steps;
  std::atomic<int> runs{0};
  for (int i = 0; i < 20; ++i) {
    steps.add(i % 2 == 0 ? Queue::compute() : Queue::communication(0),
              i == 0 ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{i - 1}, [&] { ++runs; });
  }
  const auto executable = steps.prepare(true);
  executable->run();
  executable->wait();
  const std::int64_t before = test::allocations();
  for (int step = 0; step < 10; ++step) {
    executable->run();
    executable->wait();
  }
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(runs, 220);
  ::operator delete(::operator new(1));
  EXPECT_GT(test::allocations(), before) << "allocations are not counted: the test shows nothing";
}

TEST(CpuExecutable, EndsWhileNothingRuns) {
  Steps steps;
  steps.add(Queue::compute(), {}, [] {});
  steps.prepare();  // never run
  const auto executable = steps.prepare();
  executable->run();
  executable->wait();
}

TEST(CpuDevice, MemoryIsZeroedAlignedAndCounted) {
  const auto device = test::cpu_device({});
  const DeviceCounters before = device->counters();
  void* a = device->allocate(MemorySpace::device, 1000);
  void* b = device->allocate(MemorySpace::host, 5000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 256, 0U);
  EXPECT_EQ(std::count(static_cast<char*>(a), static_cast<char*>(a) + 1000, 0), 1000);
  EXPECT_EQ(device->counters().allocations, before.allocations + 2);
  EXPECT_EQ(device->counters().peak_bytes, before.peak_bytes + 1000);
  std::vector<char> bytes(1000, 'x'), back(1000);
  device->upload(a, bytes.data(), 1000);
  device->download(back.data(), a, 1000);
  EXPECT_EQ(back, bytes);
  device->release(MemorySpace::device, a);
  device->release(MemorySpace::host, b);
  EXPECT_THAT([&] { device->allocate(MemorySpace::device, std::int64_t{1} << 60); },
              ThrowsMessage<SystemError>(::testing::HasSubstr("1152921504606846976")));
}

TEST(CpuDevice, OptionsThatCannotBe) {
  EXPECT_THROW(test::cpu_device({{"threads", "-1"}}), UsageError);
  EXPECT_THROW(test::cpu_device({{"level", "x86-64-v9"}}), UsageError);
}

}  // namespace
}  // namespace consist
