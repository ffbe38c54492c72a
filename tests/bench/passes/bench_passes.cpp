// Times the passes on a large program: bench_passes [ACCUMULATION [RANKS [MODEL]]]. By default 80 layers (llama-3.1-70b)
// on 8 ranks, with as many micro-batches as make 100,000 instructions. Nothing is run. Ends with status 1 if all passes, memory
// plan and waits included, take longer than 1 s together, or the verifications behind them longer than 2 s. Times are the
// processor's, of one thread.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <string>
#include <utility>

#include "core/compile/compile.h"
#include "core/lower/memory_plan.h"
#include "core/lower/prepared_program.h"
#include "core/lower/waits.h"
#include "core/passes/unroll_micro_batches.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"

namespace {

using namespace consist;

constexpr double most_seconds = 1;
constexpr double most_verifying = 2;
constexpr std::size_t wanted_instructions = 100'000;

/// Runs `work`, prints and returns the processor time that it took, in seconds.
template <typename Work>
double timed(const char* what, Work&& work) {
  const std::clock_t start = std::clock();
  std::forward<Work>(work)();
  const double taken = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("  %-34s %7.3f s\n", what, taken);
  return taken;
}

/// Adds up what passes take, and prints it.
class Sums final : public PassObserver {
 public:
  void after(const PassReport& report, const Program& /*program*/) override {
    if (prints)
      std::printf("  %-34s %7.3f s, verified %7.3f s%s\n", report.name.c_str(), report.seconds, report.verify_seconds,
                  report.changed ? "" : " (unchanged)");
    seconds += report.seconds;
    verifying += report.verify_seconds;
  }
  bool prints = false;
  double seconds = 0, verifying = 0;
};

int run(int argc, char** argv) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  RunConfig config;
  config.model = argc > 3 ? argv[3] : "llama-3.1-70b";
  config.precision = "bf16";
  config.device = "cpu";
  config.batch = 1;
  config.sequence = 2048;
  config.ranks = argc > 2 ? std::atoi(argv[2]) : 8;
  const Parts parts = make_parts(config, host);
  const std::shared_ptr<Device> device = make_device(config, host).device;
  device->open(0, 1);
  const Layout layout = lay_out(parts.uses, config.ranks);

  Sums sums;
  const auto compile = [&](int accumulation) {
    config.accumulation = accumulation;
    CompileRequest request = parts.compile_request(config);
    request.observer = sums.prints ? &sums : nullptr;
    return compile_step(request, layout);
  };
  if (argc > 1) {
    config.accumulation = std::atoi(argv[1]);
  } else {
    const std::size_t one = compile(1).instructions.size(), two = compile(2).instructions.size();
    config.accumulation = 1 + static_cast<int>((wanted_instructions - one + (two - one) - 1) / (two - one));
  }

  Program program;
  sums.prints = true;
  timed("compile_step, verified", [&] { program = compile(config.accumulation); });
  std::printf("%s on %d ranks, accumulation %d: %zu instructions, %zu tensors\n", config.model.c_str(), config.ranks,
              config.accumulation, program.instructions.size(), program.tensors.size());
  timed("of that: verify", [&] { verify(program); });
  const Program copy = program;
  std::unique_ptr<PreparedProgram> prepared;
  timed("kernels and their workspaces",
        [&] { prepared = std::make_unique<PreparedProgram>(std::move(program), *device, CommunicatorOfQueue{}); });
  sums.seconds += timed("memory plan and waits", [&] { prepared->plan(); });
  MemoryPlan plan;
  timed("of that: memory plan", [&] { plan = plan_memory(copy, prepared->workspace_bytes()); });
  std::size_t characters = 0;
  timed("text (explain only)", [&] { characters = to_text(prepared->program()).size(); });
  std::printf("planned %lld bytes, text of %zu characters\n", static_cast<long long>(prepared->memory().bytes[0]), characters);
  std::printf("all passes: %.3f s, at most %.0f s allowed; verification behind each: %.3f s, at most %.0f s allowed\n",
              sums.seconds, most_seconds, sums.verifying, most_verifying);
  return sums.seconds <= most_seconds && sums.verifying <= most_verifying ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_passes: %s\n", error.what());
    return 1;
  }
}
