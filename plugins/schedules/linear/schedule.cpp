// A line from the peak down to a share of it at the last step's end. With --linear.warmup-from 0 and --linear.final-rate 0 it is
// get_linear_schedule_with_warmup of transformers (optimization.py), and with --linear.counting deepspeed WarmupDecayLR of
// DeepSpeed.
#include "consist/plugin.h"
#include "plugins/schedules/common/decay.h"

namespace {

using namespace consist;

class Linear final : public schedules::FinalDecay {
 public:
  explicit Linear(const Options& options)
      : FinalDecay(
            options, "linear", [](double done) { return 1.0 - done; }, false) {}
};

}  // namespace

CONSIST_PLUGIN(schedule, consist::Schedule, Linear, "linear", "1.0.0", "a line from the peak to a share of it");
CONSIST_PLUGIN_OPTIONS(CONSIST_WARMUP_OPTIONS, CONSIST_FINAL_RATE_OPTION, CONSIST_DECAY_UNTIL_OPTION, CONSIST_COUNTING_OPTION);
