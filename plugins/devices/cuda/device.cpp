// The CUDA device: one GPU per rank.
#include "consist/device.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/host.h"
#include "consist/log.h"
#include "consist/plugin.h"
#include "plugins/devices/common/measured_matmul.h"
#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/executable.h"
#include "plugins/devices/cuda/kernels/common/compiled_code.h"
#include "plugins/devices/cuda/kernels/common/kernels.h"
#include "plugins/devices/cuda/kernels/optimizer/random_fill.h"
#include "plugins/devices/cuda/matmul.h"
#include "plugins/devices/cuda/pinned_memory.h"
#include "plugins/devices/cuda/runtime_code.h"
#include "plugins/devices/cuda/sensors.h"

namespace {

using namespace consist;
using cuda::check;

/// Folder for what is searched once per machine; empty: nothing is kept.
std::string cache_folder(const std::string& option) {
  if (option == "none") return {};
  if (option != "auto") return option;
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder != '\0')
    return std::string(folder) + "/consist";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return std::string(home) + "/.cache/consist";
  return {};
}

/// "13.0" of CUDA's 13000.
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// "9.13.1" of cuDNN's 91301, "8.9.6" of 8906; cuBLASLt counts like the former.
std::string library_version(std::size_t number) {
  const std::size_t major = number >= 10'000 ? 10'000 : 1'000;
  return std::to_string(number / major) + "." + std::to_string(number % major / 100) + "." + std::to_string(number % 100);
}

/// Within a major version any of its drivers will do (NVIDIA's "CUDA Compatibility"): that of its first minor version.
std::string needed_driver() {
  constexpr int major = CUDART_VERSION / 1000;
  const std::string oldest = major == 12 ? "525" : major == 13 ? "580" : "";
  return "a driver for CUDA " + std::to_string(major) + (oldest.empty() ? "" : " (" + oldest + " or later)");
}

/// Why the driver that is there, or none, does not serve this build; `supported`: the CUDA version that it knows, 0 without one.
std::string driver_problem(int supported) {
  const std::string needed = "this build, with CUDA " + cuda_version(CUDART_VERSION) + ", needs " + needed_driver();
  if (supported == 0)
    return "there is no NVIDIA driver (libcuda.so.1): " + needed + "; a container gets the host's if it is started with its GPUs";
  return "the NVIDIA driver supports CUDA " + cuda_version(supported) + ", and " + needed +
         ": install one, or NVIDIA's package cuda-compat of this version, or take a build with CUDA 12.8 (docs/install.md)";
}

std::string unavailable() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int supported = 0;
    if (cudaDriverGetVersion(&supported) != cudaSuccess) supported = 0;
    return driver_problem(supported);
  }
  if (status != cudaSuccess) return std::string("CUDA: ") + cudaGetErrorString(status);
  if (count == 0) return "there is no NVIDIA GPU";
  return {};
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const Options& options)
      : graphs_(cuda::graph_choice_of(options.text("graphs"))),
        search_(options.integer("algorithm-search")),
        cache_(options.text("cache")) {
    settings_.tf32 = options.flag("tf32");
    settings_.deterministic_attention = options.flag("deterministic");
    settings_.plain_grouped = options.text("grouped-products") == "plain";
  }
  ~CudaDevice() override {
    if (copies_ != nullptr) cudaStreamDestroy(copies_);
  }

  void open(int local_rank, int local_ranks) override {
    // Queues that wait for other ranks must not share a hardware queue with those that these ranks wait for; 8 is the default. It
    // counts if it is set before the first use of the GPU.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (const std::string reason = unavailable(); !reason.empty()) throw UnavailableError("device 'cuda': " + reason);
    if (search_ < 0 || search_ > 100) throw UsageError("--cuda.algorithm-search must lie between 0 and 100");
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    if (local_ranks > count) {
      throw UnavailableError("device 'cuda': " + std::to_string(local_ranks) + " ranks on this host, but it has " +
                             std::to_string(count) + " GPU(s) (one rank needs one)");
    }
    settings_.device = local_rank;
    settings_.host_threads = std::max(1, usable_cores() / std::max(1, local_ranks));
    check(cudaSetDevice(local_rank), "cudaSetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, local_rank), "cudaGetDeviceProperties");
    settings_.compute_capability = properties.major * 10 + properties.minor;
    settings_.multiprocessors = properties.multiProcessorCount;
    cuda::require_code(properties.name, settings_);
    check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "the first use of the GPU");
    matmuls_ = std::make_unique<cuda::MatmulLibrary>(settings_.tf32, static_cast<int>(search_), cache_folder(cache_));
    settings_.matmuls = matmuls_.get();
    runtime_code_ = std::make_unique<cuda::RuntimeCode>(settings_.compute_capability, cache_folder(cache_));
    settings_.runtime_code = runtime_code_.get();
    char bus_id[32] = {};
    check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, local_rank), "cudaDeviceGetPCIBusId");
    sensors_ = std::make_unique<cuda::Sensors>(bus_id);
    if (!sensors_->why().empty()) log::info("no figures of the GPU's sensors: " + sensors_->why());
    describe(properties);
  }

  DeviceInfo info() const override { return info_; }

  void* allocate(MemorySpace space, std::int64_t bytes) override {
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    void* memory = nullptr;
    if (space == MemorySpace::device) {
      const cudaError_t status = cudaMalloc(&memory, size);
      if (status != cudaSuccess) {
        cudaGetLastError();  // an allocation that failed is not sticky, but would be reported by the next check
        throw SystemError("the GPU has no " + std::to_string(bytes) + " bytes left in one piece: " + cudaGetErrorString(status) +
                          "; " + std::to_string(free_memory()) + " are free");
      }
      check(cudaMemsetAsync(memory, 0, size, copies_), "cudaMemsetAsync");
      check(cudaStreamSynchronize(copies_), "cudaMemsetAsync");
      held_ += bytes;
      counters_.peak_bytes = std::max(counters_.peak_bytes, held_);
    } else {
      memory = cuda::allocate_pinned(size, settings_.host_threads);
    }
    sizes_[memory] = bytes;
    ++counters_.allocations;
    return memory;
  }

  void release(MemorySpace space, void* memory) noexcept override {
    auto size = sizes_.find(memory);
    if (size == sizes_.end()) return;
    if (space == MemorySpace::device) {
      cudaFree(memory);
      held_ -= size->second;
    } else {
      cuda::release_pinned(memory, static_cast<std::size_t>(std::max<std::int64_t>(size->second, 1)));
    }
    sizes_.erase(size);
  }

  void upload(void* to, const void* host, std::int64_t bytes) override {
    check(cudaMemcpyAsync(to, host, static_cast<std::size_t>(bytes), cudaMemcpyDefault, copies_), "a copy to the GPU");
    check(cudaStreamSynchronize(copies_), "a copy to the GPU");
  }
  void download(void* host, const void* from, std::int64_t bytes) override {
    check(cudaMemcpyAsync(host, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, copies_), "a copy from the GPU");
    check(cudaStreamSynchronize(copies_), "a copy from the GPU");
  }

  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    return kernels::Registered<cuda::KernelSettings>::make(request, settings_);
  }

  std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool profile) override {
    matmuls_->save();  // all kernels are made: keep what the searches found, whatever becomes of the run
    if (matmuls_->searches() > said_searches_) {
      said_searches_ = matmuls_->searches();
      log::info("timed algorithms for " + std::to_string(said_searches_) + " matrix products");
    }
    return std::make_unique<cuda::CudaExecutable>(std::move(launches), graphs_, launch_seconds_, profile);
  }

  DeviceCounters counters() const override { return counters_; }
  std::vector<DeviceReading> readings() override { return sensors_ ? sensors_->read() : std::vector<DeviceReading>{}; }

  double measure_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    MeasuredMatmul product(*this, "cuda", dtype, m, n, k);
    // Not through allocate(): these are gone before training and no part of the plan.
    struct Memory {
      void* at = nullptr;
      explicit Memory(std::int64_t bytes) {
        check(cudaMalloc(&at, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256))),
              "memory for measuring a matrix product");
      }
      ~Memory() { cudaFree(at); }
    };
    const Memory x(product.x_bytes()), w(product.w_bytes()), y(product.y_bytes()), workspace(product.workspace_bytes());
    cuda::fill_random(x.at, m * k, dtype, 1, copies_);
    cuda::fill_random(w.at, n * k, dtype, 2, copies_);
    product.use(x.at, w.at, y.at, workspace.at);
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    float best = 0;
    for (int round = 0; round < 5; ++round) {
      constexpr int repetitions = 5;
      check(cudaEventRecord(begin, copies_), "cudaEventRecord");
      for (int i = 0; i < repetitions; ++i) product.launch(copies_);
      check(cudaEventRecord(end, copies_), "cudaEventRecord");
      check(cudaEventSynchronize(end), "a matrix product");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
      if (round > 0 && (best == 0 || milliseconds / repetitions < best)) best = milliseconds / repetitions;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return product.rate(static_cast<double>(best) * 1e-3);
  }

 private:
  std::int64_t free_memory() const {
    std::size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<std::int64_t>(free) : 0;
  }

  std::map<std::string, std::string> versions() const {
    std::map<std::string, std::string> found{{"cudnn", library_version(cudnnGetVersion())},
                                             {"cublaslt", library_version(cublasLtGetVersion())}};
    int number = 0;
    if (cudaRuntimeGetVersion(&number) == cudaSuccess) found["cuda_runtime"] = cuda_version(number);
    if (cudaDriverGetVersion(&number) == cudaSuccess) found["cuda_driver"] = cuda_version(number);
    if (std::string driver = sensors_->driver_version(); !driver.empty()) found["nvidia_driver"] = std::move(driver);
    return found;
  }

  void describe(const cudaDeviceProp& properties) {
    info_.kind = "cuda";
    info_.name = properties.name;
    info_.versions = versions();
    // Memory that libraries allocate at their first use (modules, NCCL's buffers) is not in the plan: 1 GiB is left to
    // them.
    info_.memory_bytes = std::max<std::int64_t>(free_memory() - (std::int64_t{1} << 30), 0);
    // Peaks of others are unknown: a guess would make MFU meaningless.
    if (const Machine* machine = find_machine_of_device(info_.kind, info_.name)) {
      const DeviceRates& rates = machine->device;
      info_.peak_flops_fp32 = (settings_.tf32 ? rates.peak_tf32 : rates.peak_fp32).value;
      info_.peak_flops_tf32 = rates.peak_tf32.value;
      info_.peak_flops_bf16 = rates.peak_bf16.value;
      info_.peak_flops_fp8 = rates.peak_fp8.value;
      launch_seconds_ = rates.launch_seconds.value;
    }
  }

  cuda::GraphChoice graphs_;
  double launch_seconds_ = find_machine("h200")->device.launch_seconds.value;  // a matter of hosts, where the GPU's are not known
  std::int64_t search_;
  std::string cache_;
  cuda::KernelSettings settings_;
  std::unique_ptr<cuda::MatmulLibrary> matmuls_;
  std::unique_ptr<cuda::RuntimeCode> runtime_code_;
  int said_searches_ = 0;  // at the last prepare()
  std::unique_ptr<cuda::Sensors> sensors_;
  cudaStream_t copies_ = nullptr;
  DeviceInfo info_;
  DeviceCounters counters_;
  std::map<void*, std::int64_t> sizes_;
  std::int64_t held_ = 0;
};

}  // namespace

CONSIST_PLUGIN(device, consist::Device, CudaDevice, "cuda", "1.0.0",
               "NVIDIA GPUs: cuBLASLt, cuDNN attention, own kernels for the rest");
CONSIST_PLUGIN_OPTIONS(
    {"graphs", consist::OptionKind::choice, "auto",
     "record the step as one CUDA graph; auto: unless queues beside one another are faster without", "auto|true|false"},
    {"deterministic", consist::OptionKind::flag, "false",
     "attention's gradient sums in a fixed order too: repeats to the bit, is slower and takes more memory"},
    {"grouped-products", consist::OptionKind::choice, "auto",
     "products of experts' rows; auto: the kernel for H100 and H200 on those, plain: the one that every GPU has", "auto|plain"},
    {"tf32", consist::OptionKind::flag, "false", "fp32 matrix products may use TF32 (10 bits of mantissa)"},
    {"algorithm-search", consist::OptionKind::integer, "8",
     "proposals of cuBLASLt that are timed for each product; 0: take the first"},
    {"cache", consist::OptionKind::text, "auto",
     "folder for algorithms found and kernels compiled at run time; auto: the user's cache folder, none: keep nothing", "", "",
     "", consist::OptionRole::results});
CONSIST_PLUGIN_AVAILABILITY(unavailable);
