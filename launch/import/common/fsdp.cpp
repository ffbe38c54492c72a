#include "launch/import/common/fsdp.h"

namespace consist::readers {

void derive_fsdp(const FsdpSettings& settings, Target& target) {
  constexpr const char* plugin = "zero3-offload";
  constexpr const char* without_limit = "1000000000000000";  // elements; more than any machine has
  const std::string device = settings.offload ? "cpu" : "none";
  target.derive_plugin("offload", plugin, "offload_param.device", device);
  target.derive_plugin("offload", plugin, "offload_optimizer.device", device);
  if (settings.offload) target.derive_plugin("offload", plugin, "offload_optimizer.update", "cpu");
  target.derive_plugin("dtype of reductions", plugin, "communication_data_type", settings.reduce_dtype);
  if (settings.whole_until_backward)
    target.derive_plugin("no resharding after forward", plugin, "max_live_parameters", without_limit);
  target.derive_plugin(settings.whole_until_backward ? "no resharding after forward" : "resharding after forward", plugin,
                       "max_reuse_distance", settings.whole_until_backward ? without_limit : "0");
}

}  // namespace consist::readers
