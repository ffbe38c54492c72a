// A line from the peak down to a share of it at the last step's end. With --linear.warmup-from 0 and --linear.final-rate 0 it is
// get_linear_schedule_with_warmup of transformers (optimization.py), and with --linear.counting deepspeed WarmupDecayLR of
// DeepSpeed.
#include "consist/schedule.h"

#include <cstdio>

#include "consist/plugin.h"
#include "plugins/schedules/common/decay.h"

namespace {

using namespace consist;

class Linear final : public Schedule {
 public:
  explicit Linear(const Options& options) : warmup_(options), counting_(options), last_(options.real("final-rate")) {}
  double rate(std::int64_t done, std::int64_t steps, double peak) const override {
    const std::int64_t point = counting_.point(done);
    if (point < warmup_.steps()) return warmup_.rate(point, peak);
    return schedules::decayed(peak, last_, 1.0 - schedules::done_of(point - warmup_.steps(), steps - warmup_.steps()));
  }
  std::string describe() const override {
    char text[60];
    std::snprintf(text, sizeof text, "linear to %g of the peak", last_);
    return text + warmup_.describe();
  }

 private:
  Warmup warmup_;
  schedules::Counting counting_;
  double last_;
};

}  // namespace

CONSIST_PLUGIN(schedule, consist::Schedule, Linear, "linear", "1.0.0", "a line from the peak to a share of it");
CONSIST_PLUGIN_OPTIONS(CONSIST_WARMUP_OPTIONS,
                       {"final-rate", consist::OptionKind::real, "0.1", "at the end, as a fraction of the peak", "0..1"},
                       CONSIST_COUNTING_OPTION);
