// ZeRO stages 1 and 2: optimizer states and gradients are sharded over the ranks of the data axis, parameters are gathered at the
// start of each step.
#include "consist/plugin.h"
#include "plugins/strategies/zero/options.h"
#include "plugins/strategies/zero/strategy_base.h"

namespace {

using namespace consist;

constexpr const char* name = "zero2";

zero::Settings settings_of(const Options& options) {
  zero::Settings settings{.strategy = name, .reduce_each = options.text("stage") == "2"};
  settings.gather_bucket = zero::elements(options, name, "allgather-bucket-size", 0);
  zero::read_shared(options, settings);
  return settings;
}

class Zero2 final : public zero::ZeroStrategy {
 public:
  explicit Zero2(const Options& options) : ZeroStrategy(settings_of(options)) {}
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, Zero2, "zero2", "1.0.0",
               "ZeRO stages 1 and 2: optimizer states and gradients divided over the ranks");
CONSIST_PLUGIN_OPTIONS({"stage", consist::OptionKind::choice, "2",
                        "1: gradients are reduced once per step; 2: after each micro-batch, and kept divided", "1|2", "", "2|1 beside stages"},
                       {"allgather-bucket-size", consist::OptionKind::real, "5e7",
                        "parameters per all_gather, in elements; 0: each by itself", "", "", "5e7|2e8"},
                       CONSIST_ZERO_SHARED_OPTIONS);
