// The CPU device: host memory, threads, kernels on oneDNN and own code.
#include "consist/device.h"

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/plugin.h"
#include "plugins/devices/common/measured_matmul.h"
#include "plugins/devices/cpu/bf16_choice.h"
#include "plugins/devices/cpu/executable.h"
#include "plugins/devices/cpu/kernel_library.h"

namespace {

using namespace consist;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "processor";
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const Options& options)
      : wanted_threads_(options.integer("threads")), bf16_(options.text("bf16")), level_(options.text("level")) {}

  void open(int /*local_rank*/, int local_ranks) override {
    if (wanted_threads_ < 0 || wanted_threads_ > 4096) throw UsageError("--cpu.threads must lie between 0 and 4096");
    settings_.threads =
        wanted_threads_ > 0 ? static_cast<int>(wanted_threads_) : std::max(1, usable_cores() / std::max(1, local_ranks));
    // oneDNN plans its products for the number of threads of whoever makes them.
    omp_set_num_threads(settings_.threads);
    const bool native = cpu::has_native_bf16();
    if (bf16_ == "native" && !native) {
      throw UnavailableError(
          "--cpu.bf16=native: this processor has no bf16 instructions (AVX-512 BF16 or AMX); use auto or emulated");
    }
    settings_.native_bf16 = native && bf16_ != "emulated";
    library_ = cpu::load_kernels(level_ == "auto" ? "" : level_);
    info_.kind = "cpu";
    name_device();
    info_.versions["onednn"] = cpu::onednn_version();
    info_.memory_bytes = available_host_memory() / std::max(1, local_ranks);
  }

  DeviceInfo info() const override { return info_; }

  std::map<std::string, std::string> choose_options(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    if (bf16_ != "auto" || dtype == DType::f32 || !cpu::has_native_bf16()) return {};
    const cpu::Bf16Rates rates = cpu::measure_bf16(library_, settings_, m, n, k);
    settings_.native_bf16 = rates.native_is_chosen();
    name_device();
    const std::string way = settings_.native_bf16 ? "native" : "emulated";
    info_.notes.push_back(rates.text() + " (another run measures anew; --cpu.bf16 " + way + " repeats this one)");
    return {{"bf16", way}};
  }

  void* allocate(MemorySpace space, std::int64_t bytes) override {
    void* memory = mmap(nullptr, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw SystemError("the cpu device cannot get " + std::to_string(bytes) + " bytes of memory: " + std::strerror(errno));
    }
    madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // advice only: fewer TLB misses where the system grants it
    sizes_[memory] = bytes;
    ++counters_.allocations;
    if (space == MemorySpace::device) {
      held_ += bytes;
      counters_.peak_bytes = std::max(counters_.peak_bytes, held_);
    }
    return memory;
  }

  void release(MemorySpace space, void* memory) noexcept override {
    auto size = sizes_.find(memory);
    if (size == sizes_.end()) return;
    munmap(memory, static_cast<std::size_t>(std::max<std::int64_t>(size->second, 1)));
    if (space == MemorySpace::device) held_ -= size->second;
    sizes_.erase(size);
  }

  // For zero bytes, pointers may be null, which memcpy does not allow.
  void upload(void* to, const void* host, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, host, static_cast<std::size_t>(bytes));
  }
  void download(void* host, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, from, static_cast<std::size_t>(bytes));
  }

  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    return std::unique_ptr<Kernel>(library_.make(request, settings_));
  }

  std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool profile) override {
    return std::make_unique<cpu::CpuExecutable>(std::move(launches), settings_.threads, profile);
  }

  DeviceCounters counters() const override { return counters_; }

  double measure_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    MeasuredMatmul product(*this, "cpu", dtype, m, n, k);
    // 0x3c3c.. is a small normal number in f32 and bf16, and 1.5 in e4m3: zeros could run faster than real data.
    std::vector<char> x(static_cast<std::size_t>(product.x_bytes()), 0x3c), w(static_cast<std::size_t>(product.w_bytes()), 0x3c),
        y(static_cast<std::size_t>(product.y_bytes()));
    std::vector<char> scratch(static_cast<std::size_t>(product.workspace_bytes()) + 256);
    void* aligned = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 255) / 256 * 256);
    product.use(x.data(), w.data(), y.data(), aligned);
    // The best of one look; the caller takes several. The first launch meets cold caches.
    constexpr double least_seconds = 0.08;
    double best = std::numeric_limits<double>::max(), total = 0;
    for (int i = 0; i < 3 || total < least_seconds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      product.launch(nullptr);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      total += seconds;
      if (i > 0) best = std::min(best, seconds);
    }
    return product.rate(best);
  }

 private:
  void name_device() {
    info_.name = processor_name() + ", " + std::to_string(settings_.threads) +
                 (settings_.threads == 1 ? " thread, " : " threads, ") + library_.level +
                 (settings_.native_bf16 ? ", bf16 native" : ", bf16 emulated");
  }

  std::int64_t wanted_threads_;
  std::string bf16_, level_;
  cpu::KernelSettings settings_;
  cpu::KernelLibrary library_;
  DeviceInfo info_;
  DeviceCounters counters_;
  std::map<void*, std::int64_t> sizes_;
  std::int64_t held_ = 0;
};

}  // namespace

CONSIST_PLUGIN(device, consist::Device, CpuDevice, "cpu", "1.0.0",
               "the processor: oneDNN matrix products, own kernels for the rest");
CONSIST_PLUGIN_OPTIONS({"threads", consist::OptionKind::integer, "0",
                        "threads per rank; 0: the cores divided by the ranks of this host"},
                       {"bf16", consist::OptionKind::choice, "auto",
                        "bf16 products: by the processor's instructions, or widened to fp32; auto: what is measured to be faster",
                        "auto|native|emulated"},
                       {"level", consist::OptionKind::choice, "auto", "instruction set of the kernels",
                        "auto|x86-64-v2|x86-64-v3|x86-64-v4"});
