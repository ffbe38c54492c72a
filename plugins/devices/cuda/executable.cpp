#include "plugins/devices/cuda/executable.h"

#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "consist/error.h"
#include "consist/log.h"
#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/mark.h"

namespace consist::cuda {
namespace {

cudaEvent_t make_event(bool timed) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

std::vector<Queue> queues_of(const std::vector<Launch>& launches) {
  std::vector<Queue> queues;
  for (const Launch& launch : launches) queues.push_back(launch.queue);
  return queues;
}

/// A named range in profilers (Nsight Systems), for as long as it lives.
class NamedRange {
 public:
  explicit NamedRange(const Launch& launch) { nvtxRangePushA(launch.label.c_str()); }
  ~NamedRange() { nvtxRangePop(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace

CudaExecutable::CudaExecutable(std::vector<Launch> launches, GraphChoice graphs, double launch_seconds, bool profile)
    : launches_(std::move(launches)),
      queues_(queues_of(launches_)),
      lanes_(queues_.size()),
      events_(launches_.size(), nullptr),
      graphs_(!profile && becomes_graph(graphs, launches_, launch_seconds)),
      profile_(profile) {
  if (graphs == GraphChoice::always && !profile && !graphs_)
    log::info("the step is not recorded as a CUDA graph: there are messages between neighbours in it");
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  lanes_[queues_.number_of(Queue::compute())].used = true;
  std::unordered_set<const Kernel*> known;
  for (const Launch& launch : launches_) {
    lane_of(launch).used = true;
    for (std::int32_t wait : launch.waits) {
      cudaEvent_t& event = events_[static_cast<std::size_t>(wait)];
      if (event == nullptr) event = make_event(false);
    }
    // In the order in which they start, so that of several reports the earliest is thrown.
    if (known.insert(launch.kernel).second) kernels_.push_back(launch.kernel);
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].used) continue;
    // Communication goes first where both could run: others wait for it.
    const bool compute = queues_[i] == Queue::compute();
    check(cudaStreamCreateWithPriority(&lanes_[i].stream, cudaStreamNonBlocking, compute ? least : greatest),
          "cudaStreamCreateWithPriority");
    lanes_[i].joined = make_event(false);
    if (compute) main_ = lanes_[i].stream;
  }
  begun_ = make_event(profile_);
  check(cudaHostAlloc(reinterpret_cast<void**>(&position_), sizeof *position_, cudaHostAllocMapped), "cudaHostAlloc");
  *position_ = -1;
  if (profile_) {
    timings_.resize(launches_.size());
    for (Timing& t : timings_) t = {make_event(true), make_event(true)};
  }
}

CudaExecutable::~CudaExecutable() {
  for (const Lane& lane : lanes_) {
    // Not cudaDeviceSynchronize(): after a failure others have to let these streams go on, and would be kept out of the driver.
    while (lane.used && cudaStreamQuery(lane.stream) == cudaErrorNotReady) usleep(20);
  }
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  for (const Timing& t : timings_) {
    cudaEventDestroy(t.begin);
    cudaEventDestroy(t.end);
  }
  for (cudaEvent_t event : events_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (const Lane& lane : lanes_) {
    if (!lane.used) continue;
    cudaEventDestroy(lane.joined);
    cudaStreamDestroy(lane.stream);
  }
  cudaEventDestroy(begun_);
  cudaFreeHost(position_);
}

void CudaExecutable::enqueue() {
  check(cudaEventRecord(begun_, main_), "cudaEventRecord");
  for (const Lane& lane : lanes_) {
    if (lane.used && lane.stream != main_) check(cudaStreamWaitEvent(lane.stream, begun_, 0), "cudaStreamWaitEvent");
  }
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const Launch& launch = launches_[i];
    const NamedRange range(launch);
    const Lane& lane = lane_of(launch);
    cudaStream_t stream = lane.stream;
    for (std::int32_t wait : launch.waits)
      check(cudaStreamWaitEvent(stream, events_[static_cast<std::size_t>(wait)], 0), "cudaStreamWaitEvent");
    if (launch.queue != Queue::compute()) enqueue_mark(position_, static_cast<std::int32_t>(i), stream);
    if (profile_) check(cudaEventRecord(timings_[i].begin, stream), "cudaEventRecord");
    launch.kernel->launch(launch.inputs, launch.outputs, launch.workspace, stream);
    if (profile_) check(cudaEventRecord(timings_[i].end, stream), "cudaEventRecord");
    if (events_[i] != nullptr) check(cudaEventRecord(events_[i], stream), "cudaEventRecord");
  }
  for (const Lane& lane : lanes_) {
    if (!lane.used || lane.stream == main_) continue;
    check(cudaEventRecord(lane.joined, lane.stream), "cudaEventRecord");
    check(cudaStreamWaitEvent(main_, lane.joined, 0), "cudaStreamWaitEvent");
  }
}

void CudaExecutable::record_graph() {
  check(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal), "recording the step as a CUDA graph");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(main_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(main_, &graph), "recording the step as a CUDA graph");
  // As on streams: communication goes first where both could run.
  const cudaError_t status = cudaGraphInstantiate(&graph_, graph, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(graph);
  check(status, "making the recorded step executable (cudaGraphInstantiate)");
}

void CudaExecutable::run() {
  ++runs_;
  if (!graphs_ || runs_ == 1) {
    enqueue();
    return;
  }
  if (graph_ == nullptr) record_graph();
  check(cudaGraphLaunch(graph_, main_), "cudaGraphLaunch");
}

void CudaExecutable::wait() {
  // Polling with short sleeps: a step takes milliseconds at least, and the processor's core is free for NCCL's threads meanwhile.
  cudaError_t status = cudaStreamQuery(main_);
  for (; status == cudaErrorNotReady; status = cudaStreamQuery(main_)) usleep(20);
  for (Kernel* kernel : kernels_) kernel->check();
  if (status != cudaSuccess) {
    const std::int32_t at = position();
    check(status, ("a step on the GPU" +
                   (at >= 0 ? ", begun up to '" + launches_[static_cast<std::size_t>(at)].label + "'" : std::string()))
                      .c_str());
  }
  *static_cast<volatile std::int32_t*>(position_) = -1;
}

std::int32_t CudaExecutable::position() const noexcept {
  return *static_cast<volatile std::int32_t*>(position_);
}

std::vector<LaunchTime> CudaExecutable::launch_times() const {
  const auto seconds = [](cudaEvent_t from, cudaEvent_t to) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  };
  std::vector<LaunchTime> times;
  for (const Timing& t : timings_) {
    const double begin = seconds(begun_, t.begin);
    // Not the difference of two times since the run began: floats of milliseconds would leave few digits of a short launch.
    times.push_back({begin, begin + seconds(t.begin, t.end)});
  }
  return times;
}

}  // namespace consist::cuda
