// Stands in for libcuda.so.1 and libnccl.so.2 on machines without GPUs: ranks are threads, memory is the host's, a collective is
// finished on all members when all have called it, and moves nothing. What it keeps of the real ones is what the transports rely
// on: which calls return at once, which states are seen in between, what is written to NCCL's log, and that work of an aborted
// communicator ends.
#include "tests/nccl/fake_nvidia.h"

#include <cuda.h>
#include <nccl.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using consist::fake::switches;

std::recursive_mutex all;  // everything below
std::atomic<int> abort_count{0};
std::atomic<int> destroy_count{0};
thread_local CUcontext current = nullptr;

/// State that the members of a communicator share.
struct Group {
  int size = 0;
  int joined = 0;
  std::vector<std::int64_t> calls;
  std::shared_ptr<Group> child;

  bool finished(std::int64_t call) const { return *std::min_element(calls.begin(), calls.end()) >= call; }
};
struct Work {
  std::shared_ptr<Group> group;
  std::int64_t call = 0;
  std::shared_ptr<bool> aborted;  ///< of the member's own communicator
  bool finished() const { return !group || *aborted || group->finished(call); }
};
std::map<std::string, std::shared_ptr<Group>> groups;  // by unique id
std::atomic<int> next_id{1};
std::string network;

int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
}

}  // namespace

struct CUstream_st {
  Work last;
};
struct CUevent_st {
  Work recorded;
};
struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int device = 0;
  bool connected = false, connected_for_send = false;
  bool splitting = false;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
};

namespace consist::fake {

Switches& switches() {
  static Switches values;
  return values;
}
std::atomic<bool>& remote_error() {
  static std::atomic<bool> value{false};
  return value;
}
std::string last_network() {
  const std::lock_guard lock(all);
  return network;
}
int aborts() {
  return abort_count;
}
int destructions() {
  return destroy_count;
}

void write_log(int device, const std::string& message) {
  static std::FILE* const file = [] {
    std::FILE* opened = std::fopen(getenv("NCCL_DEBUG_FILE"), "w");
    setvbuf(opened, nullptr, _IOLBF, 1024);
    return opened;
  }();
  std::fprintf(file, "host:1:1 [%d] NCCL INFO %s\n", device, message.c_str());
}

}  // namespace consist::fake

namespace {

void write_connections(const ncclComm& comm, const std::string& path) {
  if (switches().silent) return;
  const int next = (comm.rank + 1) % comm.group->size;
  const std::string from = std::to_string(comm.rank), to = std::to_string(next);
  consist::fake::write_log(comm.device, "Channel 00/0 : " + from + "[" + from + "] -> " + to + "[" + to + "] via " + path);
}

ncclResult_t collective(ncclComm_t comm, CUstream stream) {
  const std::lock_guard lock(all);
  if (!comm->connected) write_connections(*comm, switches().path);
  comm->connected = true;
  stream->last = {comm->group, ++comm->group->calls[static_cast<std::size_t>(comm->rank)], comm->aborted};
  return ncclSuccess;
}

ncclResult_t point_to_point(ncclComm_t comm, CUstream stream) {
  const std::lock_guard lock(all);
  if (!comm->connected_for_send) write_connections(*comm, switches().send_path);
  comm->connected_for_send = true;
  stream->last = {};
  return ncclSuccess;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  return *count = 8, CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** name) {
  return *name = "CUDA_ERROR_OF_THE_TEST", CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  return *context = current, CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  return current = context, CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  return *device = device_of(current), CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return *free = *total = std::size_t{1} << 30, CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* memory, size_t bytes) {
  return *memory = reinterpret_cast<CUdeviceptr>(malloc(bytes)), CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr memory) {
  return free(reinterpret_cast<void*>(memory)), CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream) {
  return std::memset(reinterpret_cast<void*>(memory), value, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), CUDA_SUCCESS;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr*, CUipcMemHandle, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) {
  return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  return *memory = malloc(bytes), CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* pointer, void* memory, unsigned) {
  return *pointer = reinterpret_cast<CUdeviceptr>(memory), CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* memory) {
  return free(memory), CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return *stream = new CUstream_st, CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  return delete stream, CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  const std::lock_guard lock(all);
  return stream->last.finished() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
CUresult cuStreamBatchMemOp(CUstream, unsigned count, CUstreamBatchMemOpParams* writes, unsigned) {
  for (unsigned i = 0; i < count; ++i) *reinterpret_cast<cuuint32_t*>(writes[i].writeValue.address) = writes[i].writeValue.value;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  return *event = new CUevent_st, CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  return delete event, CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  const std::lock_guard lock(all);
  return event->recorded = stream->last, CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  const std::lock_guard lock(all);
  return event->recorded.finished() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) {
  return CUDA_SUCCESS;
}

ncclResult_t ncclGetVersion(int* version) {
  return *version = NCCL_VERSION(2, 28, 9), ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 'x', sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "id %d", next_id++);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;
  const std::lock_guard lock(all);
  network = config->netName;
  std::shared_ptr<Group>& group = groups[std::string(id.internal, sizeof id.internal)];
  if (!group)
    group = std::make_shared<Group>(Group{.size = size, .calls = std::vector<std::int64_t>(static_cast<std::size_t>(size))});
  if (!(switches().member_1_never_joins && rank == 1)) ++group->joined;
  *comm = new ncclComm{group, rank, device_of(current)};
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int, int rank, ncclComm_t* comm, ncclConfig_t* config) {
  if (config->blocking != 1) return ncclInvalidUsage;
  const std::lock_guard lock(all);
  std::shared_ptr<Group>& group = parent->group->child;
  if (!group) {
    group = std::make_shared<Group>(
        Group{.size = parent->group->size, .calls = std::vector<std::int64_t>(static_cast<std::size_t>(parent->group->size))});
  }
  ++group->joined;
  parent->splitting = true;
  *comm = new ncclComm{group, rank, parent->device};
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(all);
  const bool splitting = comm->splitting && comm->group->child->joined < comm->group->size;
  *state = comm->group->joined < comm->group->size || splitting ? ncclInProgress : ncclSuccess;
  if (consist::fake::remote_error() && comm->connected) *state = ncclRemoteError;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ++destroy_count;
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  while (consist::fake::switches().abort_never_returns) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::lock_guard lock(all);
  ++abort_count;
  *comm->aborted = true;  // the other members' work goes on
  return delete comm, ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "an error of the test";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream);
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream);
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream);
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream);
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream) {
  return point_to_point(comm, stream);
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream) {
  return point_to_point(comm, stream);
}
ncclResult_t ncclGroupStart() {
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return ncclSuccess;
}

}  // extern "C"
