// Warm-up, stable, decay (Hu et al., "MiniCPM", 2024): the peak until the last share of the steps, in which the rate falls. With
// --wsd.warmup-from at --wsd.final-rate times the peak (0 where that is 0) it is get_wsd_schedule of transformers
// (optimization.py) whose num_decay_steps is that share of the steps and whose min_lr_ratio is the final rate, at which its
// warm-up begins, too.
// The shape 1-sqrt is that of Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", 2024.
#include "consist/schedule.h"

#include <cmath>
#include <cstdio>

#include "consist/plugin.h"
#include "plugins/schedules/common/decay.h"

namespace {

using namespace consist;

class Wsd final : public Schedule {
 public:
  explicit Wsd(const Options& options)
      : warmup_(options),
        end_(options),
        decay_(options.real("decay")),
        shape_(options.text("decay-shape")),
        last_(options.real("final-rate")) {}
  double rate(std::int64_t done, std::int64_t of_run, double peak) const override {
    const std::int64_t steps = end_.of(of_run);
    if (done < warmup_.steps()) return warmup_.rate(done, peak);
    const std::int64_t length = std::llround(decay_ * static_cast<double>(steps));
    const std::int64_t begin = std::max(steps - length, warmup_.steps());  // never within the warm-up
    if (done < begin) return peak;
    return schedules::decayed(peak, last_, left(schedules::done_of(done - begin, steps - begin)));
  }
  std::string describe() const override {
    char text[100];
    std::snprintf(text, sizeof text, "constant, in the last %g of the steps %s to %g of the peak", decay_, shape_.c_str(), last_);
    return text + warmup_.describe();
  }

 private:
  double left(double done) const {
    if (shape_ == "linear") return 1.0 - done;
    return shape_ == "cosine" ? schedules::left_of_cosine(done) : 1.0 - std::sqrt(done);
  }

  Warmup warmup_;
  schedules::DecayEnd end_;
  double decay_;
  std::string shape_;
  double last_;
};

}  // namespace

CONSIST_PLUGIN(schedule, consist::Schedule, Wsd, "wsd", "1.0.0",
               "warm-up, stable, decay: the peak until the last share of the steps");
CONSIST_PLUGIN_OPTIONS(CONSIST_WARMUP_OPTIONS, CONSIST_DECAY_UNTIL_OPTION,
                       {"decay", consist::OptionKind::real, "0.2", "the share of all steps in which the rate falls", "0..1"},
                       {"decay-shape", consist::OptionKind::choice, "1-sqrt", "of the fall", "linear|cosine|1-sqrt"},
                       {"final-rate", consist::OptionKind::real, "0", "at the end, as a fraction of the peak", "0..1"});
