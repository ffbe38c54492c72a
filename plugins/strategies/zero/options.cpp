#include "plugins/strategies/zero/options.h"

#include <cmath>

#include "consist/error.h"

namespace consist::zero {

std::int64_t elements(const Options& options, const char* strategy, std::string_view name, std::int64_t least) {
  const double value = options.real(name);
  constexpr double most = 1e15;  // counts below are exact as a double
  if (value < static_cast<double>(least) || value > most || value != std::floor(value)) {
    throw UsageError("--" + std::string(strategy) + "." + std::string(name) +
                     " counts elements; it must be a whole number from " + std::to_string(least) + " to 1e15");
  }
  return static_cast<std::int64_t>(value);
}

namespace {

/// Device memory is copied to and from by the GPU itself, which needs pinned memory on the host: there is no other kind here.
void require_pinned(const Options& options, const char* strategy, const std::string& what) {
  if (options.flag(what + ".pin-memory")) return;
  throw UsageError("--" + std::string(strategy) + "." + what +
                   ".pin-memory=false: memory of the host that the device copies from is always pinned");
}

}  // namespace

bool offloads(const Options& options, const char* strategy, const std::string& what) {
  require_pinned(options, strategy, what);
  return options.text(what + ".device") == "cpu";
}

void read_shared(const Options& options, Settings& settings) {
  settings.overlap = options.flag("overlap-comm");
  settings.contiguous_gradients = options.flag("contiguous-gradients");
  settings.reduce_bucket = elements(options, settings.strategy, "reduce-bucket-size", 0);
  const std::string reduce_dtype = options.text("communication-data-type");
  if (reduce_dtype != "auto") settings.reduce_dtype = reduce_dtype == "bf16" ? DType::bf16 : DType::f32;
  settings.sub_group = elements(options, settings.strategy, "sub-group-size", 0);
  settings.offload_optimizer = offloads(options, settings.strategy, "offload-optimizer");
  settings.offload_ratio = options.real("offload-optimizer.ratio");
  if (settings.offload_ratio < 0 || settings.offload_ratio > 1)
    throw UsageError("--" + std::string(settings.strategy) + ".offload-optimizer.ratio must lie between 0 and 1");
  // The host's memory is what both ways wait for. Streaming moves masters and moments out and back, 24 bytes per element in all;
  // updating there reads and writes them as well, and the gradient's way to the host comes on top.
  settings.update_on_host = options.text("offload-optimizer.update") == "cpu";
}

}  // namespace consist::zero
