// The peak at every step, after a warm-up. With --constant.warmup-from 0 it is get_constant_schedule_with_warmup of transformers
// (optimization.py), and with --constant.counting deepspeed WarmupLR of DeepSpeed.
#include "consist/schedule.h"

#include "consist/plugin.h"
#include "plugins/schedules/common/decay.h"

namespace {

using namespace consist;

class Constant final : public Schedule {
 public:
  explicit Constant(const Options& options) : warmup_(options), counting_(options) {}
  double rate(std::int64_t done, std::int64_t /*steps*/, double peak) const override {
    const std::int64_t point = counting_.point(done);
    return point < warmup_.steps() ? warmup_.rate(point, peak) : peak;
  }
  std::string describe() const override { return "constant" + warmup_.describe(); }

 private:
  Warmup warmup_;
  schedules::Counting counting_;
};

}  // namespace

CONSIST_PLUGIN(schedule, consist::Schedule, Constant, "constant", "1.0.0", "the peak at every step after a warm-up");
CONSIST_PLUGIN_OPTIONS(CONSIST_WARMUP_OPTIONS, CONSIST_COUNTING_OPTION);
