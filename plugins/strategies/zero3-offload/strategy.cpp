// ZeRO stage 3: parameters are sharded over the ranks of the data axis too, and gathered only around their use.
#include "consist/plugin.h"
#include "plugins/strategies/zero/options.h"
#include "plugins/strategies/zero/strategy_base.h"

namespace {

using namespace consist;

constexpr const char* name = "zero3-offload";

zero::Settings settings_of(const Options& options) {
  zero::Settings settings{.strategy = name, .reduce_each = options.flag("reduce-each-micro-batch")};
  settings.gather_bucket = zero::elements(options, name, "prefetch-bucket-size", 0);
  settings.persistence = zero::elements(options, name, "param-persistence-threshold", 0);
  settings.max_live = zero::elements(options, name, "max-live-parameters", 0);
  settings.max_reuse_distance = zero::elements(options, name, "max-reuse-distance", 0);
  settings.offload_param = zero::offloads(options, name, "offload-param");
  zero::read_shared(options, settings);
  return settings;
}

class Zero3Offload final : public zero::ZeroStrategy {
 public:
  explicit Zero3Offload(const Options& options) : ZeroStrategy(settings_of(options)) {}
};

}  // namespace

CONSIST_PLUGIN(
    strategy, consist::ParallelStrategy, Zero3Offload, "zero3-offload", "1.0.0",
    "ZeRO stage 3 (FSDP): parameters, gradients and optimizer states divided over the ranks, on the device or the host");
CONSIST_PLUGIN_OPTIONS(
    {"prefetch-bucket-size", consist::OptionKind::real, "5e7",
     "parameters per all_gather, which runs one bucket ahead of use (of larger ones: by time); in elements; 0: each by itself",
     "", "", "2e7|5e7|2e8"},
    {"param-persistence-threshold", consist::OptionKind::real, "1e5",
     "parameters of fewer elements are gathered once per step and kept"},
    {"max-live-parameters", consist::OptionKind::real, "1e9", "elements of parameters that are whole at one time", "", "",
     "1e9|1e10"},
    {"max-reuse-distance", consist::OptionKind::real, "1e9",
     "a parameter is not given up if it is used again within so many elements", "", "", "1e9|1e11"},
    {"reduce-each-micro-batch", consist::OptionKind::flag, "true",
     "false: gradients are added up whole and reduced once per step, which takes their memory", "", "", "true|false"},
    {"offload-param.device", consist::OptionKind::choice, "none", "where divided parameters lie: none is the device", "none|cpu",
     "", "none|cpu"},
    {"offload-param.pin-memory", consist::OptionKind::flag, "true", "the host's memory is pinned, always", "",
     "offload-param.device=cpu"},
    CONSIST_ZERO_SHARED_OPTIONS);
