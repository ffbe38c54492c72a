// The few functions of the CUDA driver that a transport needs, loaded at run time. Streams and contexts of the CUDA runtime are
// the driver's own.
#pragma once

#include <cuda.h>

#include <string>

namespace consist::nccl {

struct Driver {
  decltype(&::cuInit) init;
  decltype(&::cuDeviceGetCount) device_count;
  decltype(&::cuGetErrorName) error_name;
  decltype(&::cuCtxGetCurrent) current_context;
  decltype(&::cuCtxSetCurrent) set_current_context;
  decltype(&::cuCtxGetDevice) current_device;
  decltype(&::cuDeviceGetPCIBusId) pci_bus_id;
  decltype(&::cuMemGetInfo) memory_info;
  decltype(&::cuMemAlloc) allocate;
  decltype(&::cuMemFree) release;
  decltype(&::cuMemsetD8Async) fill;
  decltype(&::cuMemcpyDtoDAsync) copy;
  decltype(&::cuIpcGetMemHandle) export_memory;
  decltype(&::cuIpcOpenMemHandle) import_memory;
  decltype(&::cuIpcCloseMemHandle) close_memory;
  decltype(&::cuCtxEnablePeerAccess) enable_peer_access;
  decltype(&::cuMemHostAlloc) allocate_host;
  decltype(&::cuMemHostGetDevicePointer) device_pointer;
  decltype(&::cuMemFreeHost) release_host;
  decltype(&::cuStreamCreate) create_stream;
  decltype(&::cuStreamDestroy) destroy_stream;
  decltype(&::cuStreamQuery) query_stream;
  decltype(&::cuStreamIsCapturing) is_capturing;
  decltype(&::cuStreamBatchMemOp) batch_writes;
  decltype(&::cuEventCreate) create_event;
  decltype(&::cuEventDestroy) destroy_event;
  decltype(&::cuEventRecord) record_event;
  decltype(&::cuEventQuery) query_event;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode;

  /// Throws SystemError naming `what` and the driver's error, unless `result` is success.
  void check(CUresult result, const char* what) const;
};

/// The process's one driver. Thread-safe. Throws UnavailableError where there is no NVIDIA driver.
const Driver& load_driver();

}  // namespace consist::nccl
