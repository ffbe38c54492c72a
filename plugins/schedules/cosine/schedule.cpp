// Half a period of a cosine from the peak down to a share of it. With --cosine.warmup-from 0 it is
// get_cosine_with_min_lr_schedule_with_warmup of transformers (optimization.py), with --cosine.final-rate 0 too
// get_cosine_schedule_with_warmup; with --cosine.counting deepspeed WarmupCosineLR of DeepSpeed. (Loshchilov & Hutter, "SGDR",
// 2017, without restarts.)
#include "consist/plugin.h"
#include "plugins/schedules/common/decay.h"

namespace {

using namespace consist;

class Cosine final : public schedules::FinalDecay {
 public:
  explicit Cosine(const Options& options) : FinalDecay(options, "cosine", schedules::left_of_cosine, true) {}
};

}  // namespace

CONSIST_PLUGIN(schedule, consist::Schedule, Cosine, "cosine", "1.0.0",
               "half a period of a cosine from the peak to a share of it");
CONSIST_PLUGIN_OPTIONS(CONSIST_WARMUP_OPTIONS, CONSIST_FINAL_RATE_OPTION, CONSIST_DECAY_UNTIL_OPTION, CONSIST_COUNTING_OPTION);
