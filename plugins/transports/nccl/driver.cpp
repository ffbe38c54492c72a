#include "plugins/transports/nccl/driver.h"

#include <dlfcn.h>

#include "consist/error.h"

// The header gives names to versions of functions by macros (cuMemAlloc is cuMemAlloc_v2); the library has the versions.
#define CONSIST_SYMBOL_TEXT(name) #name
#define CONSIST_SYMBOL(name) CONSIST_SYMBOL_TEXT(name)

namespace consist::nccl {
namespace {

template <typename Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr)
    throw UnavailableError(std::string("the NVIDIA driver has no function ") + name + ": it is too old for this build");
}

Driver open() {
  void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    throw UnavailableError(std::string("there is no NVIDIA driver: ") + (reason == nullptr ? "libcuda.so.1 is missing" : reason));
  }
  Driver d;
  find(handle, CONSIST_SYMBOL(cuInit), d.init);
  find(handle, CONSIST_SYMBOL(cuDeviceGetCount), d.device_count);
  find(handle, CONSIST_SYMBOL(cuGetErrorName), d.error_name);
  find(handle, CONSIST_SYMBOL(cuCtxGetCurrent), d.current_context);
  find(handle, CONSIST_SYMBOL(cuCtxSetCurrent), d.set_current_context);
  find(handle, CONSIST_SYMBOL(cuCtxGetDevice), d.current_device);
  find(handle, CONSIST_SYMBOL(cuDeviceGetPCIBusId), d.pci_bus_id);
  find(handle, CONSIST_SYMBOL(cuMemGetInfo), d.memory_info);
  find(handle, CONSIST_SYMBOL(cuMemAlloc), d.allocate);
  find(handle, CONSIST_SYMBOL(cuMemFree), d.release);
  find(handle, CONSIST_SYMBOL(cuMemsetD8Async), d.fill);
  find(handle, CONSIST_SYMBOL(cuMemcpyDtoDAsync), d.copy);
  find(handle, CONSIST_SYMBOL(cuIpcGetMemHandle), d.export_memory);
  find(handle, CONSIST_SYMBOL(cuIpcOpenMemHandle), d.import_memory);
  find(handle, CONSIST_SYMBOL(cuIpcCloseMemHandle), d.close_memory);
  find(handle, CONSIST_SYMBOL(cuCtxEnablePeerAccess), d.enable_peer_access);
  find(handle, CONSIST_SYMBOL(cuMemHostAlloc), d.allocate_host);
  find(handle, CONSIST_SYMBOL(cuMemHostGetDevicePointer), d.device_pointer);
  find(handle, CONSIST_SYMBOL(cuMemFreeHost), d.release_host);
  find(handle, CONSIST_SYMBOL(cuStreamCreate), d.create_stream);
  find(handle, CONSIST_SYMBOL(cuStreamDestroy), d.destroy_stream);
  find(handle, CONSIST_SYMBOL(cuStreamQuery), d.query_stream);
  find(handle, CONSIST_SYMBOL(cuStreamIsCapturing), d.is_capturing);
  find(handle, CONSIST_SYMBOL(cuStreamBatchMemOp), d.batch_writes);
  find(handle, CONSIST_SYMBOL(cuEventCreate), d.create_event);
  find(handle, CONSIST_SYMBOL(cuEventDestroy), d.destroy_event);
  find(handle, CONSIST_SYMBOL(cuEventRecord), d.record_event);
  find(handle, CONSIST_SYMBOL(cuEventQuery), d.query_event);
  find(handle, CONSIST_SYMBOL(cuThreadExchangeStreamCaptureMode), d.exchange_capture_mode);
  int devices = 0;
  if (d.init(0) != CUDA_SUCCESS || d.device_count(&devices) != CUDA_SUCCESS || devices == 0) {
    throw UnavailableError("the NVIDIA driver finds no GPU");
  }
  return d;
}

}  // namespace

void Driver::check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  throw SystemError(std::string("CUDA: ") + what + " failed: " + name);
}

const Driver& load_driver() {
  static const Driver driver = open();
  return driver;
}

}  // namespace consist::nccl
