#include "launch/import/common/fsdp.h"

namespace consist::readers {

void derive_fsdp(const FsdpSettings& settings, Target& target) {
  constexpr const char* plugin = "zero3-offload";
  constexpr const char* without_limit = "1000000000000000";  // elements; more than any machine has
  const std::string device = settings.offload ? "cpu" : "none";
  target.derive_plugin("offload", plugin, "offload-param.device", device);
  target.derive_plugin("offload", plugin, "offload-optimizer.device", device);
  if (settings.offload) target.derive_plugin("offload", plugin, "offload-optimizer.update", "cpu");
  target.derive_plugin("dtype of reductions", plugin, "communication-data-type", settings.reduce_dtype);
  if (settings.whole_until_backward)
    target.derive_plugin("no resharding after forward", plugin, "max-live-parameters", without_limit);
  target.derive_plugin(settings.whole_until_backward ? "no resharding after forward" : "resharding after forward", plugin,
                       "max-reuse-distance", settings.whole_until_backward ? without_limit : "0");
}

}  // namespace consist::readers
