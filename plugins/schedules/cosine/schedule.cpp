// Half a period of a cosine from the peak down to a share of it. With --cosine.warmup-from 0 it is
// get_cosine_with_min_lr_schedule_with_warmup of transformers (optimization.py), with --cosine.final-rate 0 too
// get_cosine_schedule_with_warmup; with --cosine.counting deepspeed WarmupCosineLR of DeepSpeed. (Loshchilov & Hutter, "SGDR",
// 2017, without restarts.)
#include "consist/schedule.h"

#include <cmath>
#include <cstdio>
#include <numbers>

#include "consist/plugin.h"
#include "plugins/schedules/common/decay.h"

namespace {

using namespace consist;

class Cosine final : public Schedule {
 public:
  explicit Cosine(const Options& options) : warmup_(options), counting_(options), last_(options.real("final-rate")) {}
  double rate(std::int64_t done, std::int64_t steps, double peak) const override {
    const std::int64_t point = counting_.point(done);
    if (point < warmup_.steps()) return warmup_.rate(point, peak);
    const double share = schedules::done_of(point + counting_.ahead() - warmup_.steps(), steps - warmup_.steps());
    return schedules::decayed(peak, last_, 0.5 * (1.0 + std::cos(std::numbers::pi * share)));
  }
  std::string describe() const override {
    char text[60];
    std::snprintf(text, sizeof text, "cosine to %g of the peak", last_);
    return text + warmup_.describe();
  }

 private:
  Warmup warmup_;
  schedules::Counting counting_;
  double last_;
};

}  // namespace

CONSIST_PLUGIN(schedule, consist::Schedule, Cosine, "cosine", "1.0.0",
               "half a period of a cosine from the peak to a share of it");
CONSIST_PLUGIN_OPTIONS(CONSIST_WARMUP_OPTIONS,
                       {"final-rate", consist::OptionKind::real, "0.1", "at the end, as a fraction of the peak", "0..1"},
                       CONSIST_COUNTING_OPTION);
