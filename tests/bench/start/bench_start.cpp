// Times the initial weights of one rank: bench_start [MODEL [STRATEGY [RANKS [PRECISION [THREADS]]]]]. By default
// llama-3.2-1b, ddp, 1 rank, bf16, as many threads as this process may use. Rank 1 of several is measured, which has parts of
// everything that is divided. Memory of the device is not really there: what is uploaded is copied into a few megabytes, over and
// over, as a GPU takes it without memory of the host's, so that models of any size can be measured. Of a model folder, reading
// its weights is measured, too. Nothing is trained.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/host.h"
#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/program/local_ranges.h"
#include "core/state/initial_values.h"
#include "core/state/training_state.h"
#include "core/weights/model_weights.h"

namespace {

using namespace consist;

/// The processor with addresses in place of memory.
class SinkDevice final : public Device {
 public:
  explicit SinkDevice(std::shared_ptr<Device> device) : device_(std::move(device)), sink_(std::size_t{64} << 20) {}

  void open(int local_rank, int local_ranks) override { device_->open(local_rank, local_ranks); }
  DeviceInfo info() const override { return device_->info(); }
  void* allocate(MemorySpace space, std::int64_t bytes) override {
    if (space == MemorySpace::host) return device_->allocate(space, bytes);
    void* addresses =
        mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) throw SystemError(std::string("no addresses: ") + std::strerror(errno));
    return addresses;
  }
  void release(MemorySpace space, void* memory) noexcept override {
    if (space == MemorySpace::host) device_->release(space, memory);  // addresses cost nothing and end with the program
  }
  void upload(void* /*to*/, const void* host, std::int64_t bytes) override {
    const char* from = static_cast<const char*>(host);
    ++uploads;
    while (bytes > 0) {
      const std::size_t part = std::min(static_cast<std::size_t>(bytes), sink_.size() - at_);
      std::memcpy(sink_.data() + at_, from, part);
      at_ = (at_ + part) % sink_.size();
      from += part;
      bytes -= static_cast<std::int64_t>(part);
    }
  }
  void download(void* /*host*/, const void* /*from*/, std::int64_t /*bytes*/) override { throw ProgramError("nothing is kept"); }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override { return device_->make_kernel(request); }
  std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool profile) override {
    return device_->prepare(std::move(launches), profile);
  }
  DeviceCounters counters() const override { return device_->counters(); }
  double measure_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    return device_->measure_matmul(dtype, m, n, k);
  }

  std::int64_t uploads = 0;

 private:
  std::shared_ptr<Device> device_;
  std::vector<char> sink_;
  std::size_t at_ = 0;
};

/// Runs `work` and prints what it took, and how many `elements` that is per second.
template <typename Work>
void timed(const char* what, double elements, Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  std::forward<Work>(work)();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("  %-40s %7.3f s  %8.1f M elements/s\n", what, taken.count(), elements / taken.count() / 1e6);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const auto argument = [&](int index, const char* otherwise) { return argc > index ? argv[index] : otherwise; };
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  RunConfig config;
  config.model = argument(1, "llama-3.2-1b");
  config.strategies = parse_strategies(argument(2, "ddp"));
  config.ranks = std::atoi(argument(3, "1"));
  config.precision = argument(4, "bf16");
  config.device = "cpu";
  config.batch = 1;
  config.sequence = 128;
  const int threads = argc > 5 ? std::atoi(argv[5]) : usable_cores();

  constexpr std::size_t block = 1 << 14;
  constexpr int blocks = 2000;
  std::vector<float> values(block);
  timed("values alone, on one thread", double{block} * blocks, [&] {
    for (int i = 0; i < blocks; ++i) initial_values(values, 1, "name", static_cast<std::int64_t>(block) * i, 0, 0.02F);
  });

  const Parts parts = make_parts(config, host);
  const std::shared_ptr<Device> made = make_device(config, host).device;
  made->open(0, 1);
  const Layout layout = lay_out(parts.uses, config.ranks);
  const int rank = config.ranks > 1 ? 1 : 0;
  SinkDevice device(made);
  TrainingState state({{train_program, compile_step(parts.compile_request(config), layout, rank)}}, device, {}, rank,
                      std::int64_t{1} << 50);
  const Program& program = state.step().program();
  double elements = 0, bytes = 0;
  std::size_t ranges = 0;
  for (const Parameter& parameter : program.parameters) {
    elements += static_cast<double>(program.local(parameter.tensor).elements());
    for (TensorId tensor : {parameter.tensor, parameter.master}) {
      if (tensor == no_tensor) continue;
      const Tensor& t = program[tensor];
      bytes += static_cast<double>(program.bytes(tensor));
      ranges += local_ranges(t.shape, t.placements, program.mesh, rank).size();
    }
  }
  std::printf("%s, %s, rank %d of %d, %s: %.1f M elements in %zu ranges, %.2f GB; %d threads\n", config.model.c_str(),
              argument(2, "ddp"), rank, config.ranks, config.precision.c_str(), elements / 1e6, ranges, bytes / 1e9, threads);
  state.allocate(false);
  const std::int64_t before = device.uploads;
  timed("initial weights", elements, [&] { state.initialize(1, threads); });
  std::printf("  in %lld uploads\n", static_cast<long long>(device.uploads - before));
  if (!parts.model_folder.empty() && ModelWeights::present(parts.model_folder)) {
    const ModelWeights weights(parts.model_folder);
    const auto read = [&](const std::string& name, std::int64_t first, std::span<float> out) {
      weights.read_f32(name, first, out);
    };
    timed("weights of the model's folder", elements, [&] { state.load_weights(read, threads); });
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_start: %s\n", error.what());
    return 1;
  }
}
