// Updates of tensors in pinned memory of the host: the cpu device's kernel, called from the stream when what it reads has arrived.
#include <omp.h>

#include <map>
#include <vector>

#include "plugins/devices/cpu/kernel_library.h"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

class HostUpdate final : public Kernel {
 public:
  HostUpdate(std::unique_ptr<Kernel> on_processor, int threads) : on_processor_(std::move(on_processor)), threads_(threads) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    std::vector<const void*> key;
    for (const Buffer& buffer : in) key.push_back(buffer.data);
    Call& call = calls_[key];
    if (call.kernel == nullptr) call = {this, {in.begin(), in.end()}, {out.begin(), out.end()}};
    cuda::check(cudaLaunchHostFunc(stream_of(queue), &HostUpdate::run, &call), "an update on the host");
  }

 private:
  /// Arguments of one instruction: kept, since a recorded graph calls with them in every step.
  struct Call {
    HostUpdate* kernel = nullptr;
    std::vector<Buffer> in, out;
  };

  /// Runs on a thread of the driver's.
  static void CUDART_CB run(void* data) {
    const Call& call = *static_cast<const Call*>(data);
    omp_set_num_threads(call.kernel->threads_);
    call.kernel->on_processor_->launch(call.in, call.out, nullptr, nullptr);
  }

  std::unique_ptr<Kernel> on_processor_;
  int threads_;
  std::map<std::vector<const void*>, Call> calls_;  // by addresses; entries stay where they are
};

}  // namespace

Made make_host_update(const KernelRequest& r, const KernelSettings& s) {
  static const cpu::KernelLibrary library = cpu::load_kernels("");
  std::unique_ptr<Kernel> kernel(library.make(r, {.threads = s.host_threads}));
  return kernel ? std::make_unique<HostUpdate>(std::move(kernel), s.host_threads) : nullptr;
}

}  // namespace consist::cuda
