// Devices: memory, queues, kernels and the execution of a planned step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/kernel.h"
#include "consist/program.h"

namespace consist {

/// One instruction, ready to run: kernel, local buffers at their final addresses, order.
struct Launch {
  Kernel* kernel = nullptr;  ///< owned by the caller of prepare(), outlives the executable
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  void* workspace = nullptr;
  Queue queue;
  std::vector<std::int32_t> waits;  ///< indices of earlier launches on other queues
  Tag tag;
  std::string label;  ///< op and first output, for profiles and error messages
  double seconds = 0;  ///< estimated, on the machine that the program is planned for
};

/// Begin and end of a launch, in seconds since the start of its run().
struct LaunchTime {
  double begin = 0;
  double end = 0;
  double seconds() const noexcept { return end - begin; }
};

/// A step, prepared on a device. run() starts it; wait() returns when it has finished. Steps do not overlap on the device.
class CONSIST_API Executable {
 public:
  virtual ~Executable();
  /// Starts the launches, in order within each queue. An asynchronous device returns at once. ERRORS: those of a launch.
  virtual void run() = 0;
  /// Blocks until the last run() has finished; rethrows the first failure of a launch (PeerError, SystemError).
  virtual void wait() = 0;
  /// Index of the newest launch that started, for reports about stuck ranks; callable from any thread, also while running.
  virtual std::int32_t position() const noexcept = 0;
  /// With profiling on: when each launch ran in the last finished run, by index; otherwise empty.
  virtual std::vector<LaunchTime> launch_times() const { return {}; }
};

struct DeviceInfo {
  std::string kind;               ///< "cpu", "cuda"
  std::string name;               ///< "AMD EPYC 9654, 2 threads", "NVIDIA H200"
  std::int64_t memory_bytes = 0;  ///< usable by this rank in MemorySpace::device
  double peak_flops_fp32 = 0;     ///< dense peak per second and precision, as the device is set; 0 where unknown
  double peak_flops_tf32 = 0;
  double peak_flops_bf16 = 0;
  double peak_flops_fp8 = 0;
  /// Versions of the driver and of the libraries that it uses, by name: "nvidia_driver", "cuda_runtime", "cudnn", "onednn".
  /// Recorded in the archive's /environment.
  std::map<std::string, std::string> versions;
  /// The choices that the device has made by itself, and why, one line each. Known after open().
  std::vector<std::string> notes;
};

/// Counts that must stay constant during steady steps; tests compare them.
struct DeviceCounters {
  std::int64_t allocations = 0;  ///< of memory, by the device plugin and its libraries where it can see them
  std::int64_t peak_bytes = 0;   ///< most bytes of MemorySpace::device held at once through allocate()
};

/// One figure of the device's state now, for the archive: "gpu_use" in "1" (a fraction, 0..1), "power" in "W", "sm_clock" in
/// "Hz".
struct DeviceReading {
  std::string name;
  std::string unit;
  double value = 0;
};

/// The plugin kind "device": one object per rank. Called from the trainer's thread unless stated otherwise.
class CONSIST_API Device {
 public:
  virtual ~Device();
  /// Takes the device for this rank: `local_rank` of `local_ranks` on this host. Throws UnavailableError.
  virtual void open(int local_rank, int local_ranks) = 0;
  virtual DeviceInfo info() const = 0;
  /// Chooses values for options of this device that are "auto" or that only measuring can decide, for a run whose largest matrix
  /// product is [m, k] by [k, n] with operands of `dtype`. Returns the values, by option; info().notes gives the reasons. Called
  /// at most once, on rank 0, after open() and before any other member; the devices of the other ranks, and of runs that resume
  /// from a checkpoint, are made with these values. The default chooses nothing.
  virtual std::map<std::string, std::string> choose_options(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k);

  /// Zeroed memory, 256-byte aligned; freed by release(). Throws SystemError when there is not enough.
  virtual void* allocate(MemorySpace space, std::int64_t bytes) = 0;
  virtual void release(MemorySpace space, void* memory) noexcept = 0;
  /// Copy `bytes` between the caller's memory and the device's and return when done. For set-up, checkpoints, inputs and metrics.
  virtual void upload(void* device_memory, const void* host, std::int64_t bytes) = 0;
  virtual void download(void* host, const void* device_memory, std::int64_t bytes) = 0;

  /// A kernel for an instruction; null if this device has none for the op or these dtypes.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) = 0;
  /// Prepares a step; launches are in program order. With `profile`, Executable::launch_times() has their times. The executable
  /// must be destroyed before the kernels and the memory that the launches name.
  virtual std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool profile) = 0;
  virtual DeviceCounters counters() const = 0;
  /// Readings of the sensors now, always the same figures in the same order; empty if there are none. THREADS: any, after open().
  virtual std::vector<DeviceReading> readings();

  /// Measures the rate of the local matrix product [m, k] by [k, n] now, in FLOP/s: the measured bound of compare.
  virtual double measure_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) = 0;
};

}  // namespace consist
