// A schedule like wsd, counted from both ends in steps: up over `rise` steps, the peak, down to zero over the last `fall` steps.
#include <consist/plugin.h>
#include <consist/schedule.h>

#include <algorithm>
#include <string>

namespace {

class Trapezoid final : public consist::Schedule {
 public:
  explicit Trapezoid(const consist::Options& options)
      : rise_(options.integer("rise"), consist::Warmup::Shape::linear, {}), fall_(options.integer("fall")) {}

  double rate(std::int64_t done, std::int64_t steps, double peak) const override {
    if (done < rise_.steps()) return rise_.rate(done, peak);
    const std::int64_t left = std::max<std::int64_t>(steps - done, 0);
    return left >= fall_ ? peak : peak * static_cast<double>(left) / static_cast<double>(fall_);
  }
  std::string describe() const override {
    return "constant, to zero in the last " + std::to_string(fall_) + " steps" + rise_.describe();
  }

 private:
  consist::Warmup rise_;
  std::int64_t fall_;
};

}  // namespace

CONSIST_PLUGIN(schedule, consist::Schedule, Trapezoid, "trapezoid", "1.0.0",
               "up, the peak, and down to zero in a number of steps");
CONSIST_PLUGIN_OPTIONS({"rise", consist::OptionKind::integer, "0", "steps of warm-up", "0.."},
                       {"fall", consist::OptionKind::integer, "10", "steps of the fall to zero", "1.."});
