// The part of NVML's binary interface that is used here. The library comes with the driver and is loaded at run time; its header
// is a package of its own that many machines with a toolkit lack. Types and numbers as in NVIDIA's NVML API reference (stable
// since driver 450).
#pragma once

extern "C" {

using nvmlReturn_t = int;  ///< 0: success
using nvmlDevice_t = struct nvmlDevice_st*;

struct nvmlUtilization_t {
  unsigned gpu, memory;  ///< percent
};
struct nvmlMemory_t {
  unsigned long long total, free, used;  ///< bytes
};
struct nvmlFieldValue_t {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType;
  nvmlReturn_t nvmlReturn;
  union {
    double dVal;
    unsigned long long ullVal;
  } value;
};

}  // extern "C"

namespace consist::cuda::nvml {

inline constexpr int temperature_gpu = 0;
inline constexpr int clock_sm = 1, clock_memory = 2;
inline constexpr int pcie_sent = 0, pcie_received = 1;                         ///< KiB/s
inline constexpr unsigned nvlink_data_sent = 138, nvlink_data_received = 139;  ///< KiB since the driver was loaded
inline constexpr unsigned all_links = ~0U;                                     ///< scope

using Init = nvmlReturn_t();
using DriverVersion = nvmlReturn_t(char*, unsigned);
using ErrorString = const char*(nvmlReturn_t);
using ByBusId = nvmlReturn_t(const char*, nvmlDevice_t*);
using Utilization = nvmlReturn_t(nvmlDevice_t, nvmlUtilization_t*);
using Memory = nvmlReturn_t(nvmlDevice_t, nvmlMemory_t*);
using Number = nvmlReturn_t(nvmlDevice_t, unsigned*);
using NumberOf = nvmlReturn_t(nvmlDevice_t, int, unsigned*);
using Fields = nvmlReturn_t(nvmlDevice_t, int, nvmlFieldValue_t*);

}  // namespace consist::cuda::nvml
