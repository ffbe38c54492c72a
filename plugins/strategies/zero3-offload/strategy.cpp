// ZeRO stage 3: parameters are divided over the ranks of the data axis too, and whole only around their use.
#include "consist/plugin.h"
#include "plugins/strategies/zero/options.h"
#include "plugins/strategies/zero/strategy_base.h"

namespace {

using namespace consist;

constexpr const char* name = "zero3-offload";

class Zero3Offload final : public zero::ZeroStrategy {
 public:
  explicit Zero3Offload(const Options& options)
      : ZeroStrategy({.strategy = name,
                      .stage = 3,
                      .overlap = options.flag("overlap_comm"),
                      .reduce_bucket = zero::elements(options, name, "reduce_bucket_size", 1),
                      .gather_bucket = zero::elements(options, name, "prefetch_bucket_size", 1),
                      .persistence = zero::elements(options, name, "param_persistence_threshold", 0),
                      .max_live = zero::elements(options, name, "max_live_parameters", 0),
                      .max_reuse_distance = zero::elements(options, name, "max_reuse_distance", 0)}) {}
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, Zero3Offload, "zero3-offload", "1.0.0",
               "ZeRO stage 3: parameters, gradients and optimizer states divided over the ranks");
CONSIST_PLUGIN_OPTIONS({"overlap_comm", consist::OptionKind::flag, "true", "communication runs beside computation"},
                       {"reduce_bucket_size", consist::OptionKind::real, "5e7", "gradients per reduce_scatter, in elements"},
                       {"prefetch_bucket_size", consist::OptionKind::real, "5e7",
                        "parameters per all_gather, which runs one bucket ahead of use; in elements"},
                       {"param_persistence_threshold", consist::OptionKind::real, "1e5",
                        "parameters of fewer elements are gathered once per step and kept"},
                       {"max_live_parameters", consist::OptionKind::real, "1e9",
                        "elements of parameters that are whole at one time"},
                       {"max_reuse_distance", consist::OptionKind::real, "1e9",
                        "a parameter is not given up if it is used again within so many elements"});
